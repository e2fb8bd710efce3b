"""Log lines of the service, as text or JSON, with the id of the request that they belong to."""

from __future__ import annotations

import logging
import sys
import time
from contextvars import ContextVar
from typing import Any, Literal

from pydantic_core import to_json

#: Id of the request that is being answered.
request_id: ContextVar[str] = ContextVar("request_id", default="")


def _line(record: logging.LogRecord, formatter: logging.Formatter) -> dict[str, Any]:
    """Return the parts of a log line: time, level, message, request id and further fields."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    line = {
        "time": f"{stamp}.{int(record.msecs):03d}Z",
        "level": record.levelname.lower(),
        "message": record.getMessage(),
    }
    if current := request_id.get():
        line["request_id"] = current
    line |= getattr(record, "fields", {})
    if record.exc_info:
        line["traceback"] = formatter.formatException(record.exc_info)
    return line


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return to_json(_line(record, self), fallback=str).decode()


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = _line(record, self)
        first = f"{line.pop('time')} {line.pop('level')} {line.pop('message')}"
        trace = line.pop("traceback", None)
        text = " ".join([first, *(f"{name}={value}" for name, value in line.items())])
        text = text.replace("\r", "\\r").replace("\n", "\\n")
        return text if trace is None else f"{text}\n{trace}"


def configure_logging(form: Literal["text", "json"]) -> None:
    """Send log lines of this process to standard error; those of libraries from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("transcf").setLevel(logging.INFO)


def fields(**values: Any) -> dict[str, Any]:
    """Return the argument `extra` of a logging call with further fields of a line."""
    return {"fields": values}
