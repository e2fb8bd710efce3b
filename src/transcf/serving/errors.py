"""JSON responses, exceptions as JSON errors with one sentence, and log lines with request ids."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from transcf.errors import (
    DataError,
    ParameterError,
    TransCFError,
    UnknownIdError,
    UnsupportedError,
    brief,
)
from transcf.serving.events import StoreError
from transcf.serving.schemas import json_id

log = logging.getLogger("transcf.serving")

#: Id of the request that is being answered.
request_id: ContextVar[str] = ContextVar("request_id", default="")
#: Headers of every response that does not have them already.
DEFAULT_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


class RefusedError(TransCFError):
    """A request that is not answered: status, error code, sentence, seconds until a retry."""

    def __init__(self, status: int, code: str, sentence: str, retry_after: int | None = None):
        super().__init__(sentence)
        self.status, self.code, self.retry_after = status, code, retry_after


# -- responses -----------------------------------------------------------------------------------


def json_bytes(value: Any) -> bytes:
    """Return JSON; non-finite numbers become null, and integers above 2^53 text."""
    return to_json(_readable(value), inf_nan_mode="null", fallback=_plain)


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _readable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(entry) for entry in value]
    return json_id(value)


def _plain(value: Any) -> Any:
    return json_id(value.item()) if hasattr(value, "item") else str(value)


def json_response(value: Any, status: int = 200) -> Response:
    """Return a JSON response; see `json_bytes`."""
    return Response(json_bytes(value), status, media_type="application/json")


def error_response(
    status: int, code: str, sentence: str, retry_after: int | None = None
) -> Response:
    """Return an error as a JSON response with all headers, as some do not pass the middleware."""
    current = request_id.get()
    error = {"code": code, "message": sentence, "request_id": current}
    response = json_response({"error": error}, status)
    response.headers.update(DEFAULT_HEADERS | {"x-request-id": current})
    if retry_after is not None:
        response.headers["retry-after"] = str(retry_after)
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    return response


def store_failed(retry_after: int) -> Response:
    """Return what clients read if the event store fails; the reason may contain paths."""
    sentence = "Events cannot be stored or read at the moment; the log of the service says why."
    return error_response(503, "unavailable", sentence, retry_after)


# -- exceptions ----------------------------------------------------------------------------------


def add_exception_handlers(app: FastAPI) -> None:
    """Turn all exceptions of an application into JSON errors."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(TransCFError, _library_error)
    app.add_exception_handler(Exception, _unexpected)


async def _invalid(request: Request, error: Any) -> Response:
    """Name the first invalid field; the value is not repeated."""
    errors = error.errors()
    if errors[0]["loc"] == ("body",) and "json" not in request.headers.get("content-type", ""):
        sentence = "body: send a JSON object with the header Content-Type: application/json."
        return error_response(422, "invalid", sentence)
    # Of a union, pydantic has the errors of all members: those of the member with the fewest count.
    members = Counter(_union_member(one["loc"]) for one in errors)
    fewest = min(members, key=lambda member: members[member])
    first = next(one for one in errors if _union_member(one["loc"]) == fewest)
    names = [str(part) for part in first["loc"] if str(part) != fewest]
    where = ".".join(names[1:]) or names[0]
    reason = first["msg"].removeprefix("Value error, ")
    return error_response(422, "invalid", brief(f"{where[:200]}: {reason}."))


def _union_member(loc: Sequence[Any]) -> str:
    name = str(loc[1]) if len(loc) > 1 else ""
    return name if name.endswith("Request") else ""


async def _http_error(request: Request, error: Any) -> Response:
    code = _CODES.get(error.status_code, "invalid")
    sentence = error.detail
    if code == "too_large":
        request.app.state.service.metrics.refused.labels(code).inc()
    else:
        sentence += ": GET /docs lists what there is."
    response = error_response(error.status_code, code, sentence)
    response.headers.update(error.headers or {})
    return response


async def _library_error(request: Request, error: Any) -> Response:
    service = request.app.state.service
    match error:
        case RefusedError():
            service.metrics.refused.labels(error.code).inc()
            return error_response(error.status, error.code, str(error), error.retry_after)
        case UnknownIdError():
            return error_response(404, "unknown", str(error))
        case UnsupportedError():
            return error_response(409, "unsupported", str(error))
        case StoreError():
            return store_failed(service.settings.retry_after)
        case ParameterError() | DataError():
            return error_response(422, "invalid", str(error))
    return await _unexpected(request, error)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method[:16], request.scope.get("route"), exc_info=error)
    return error_response(500, "internal", "Internal error; see the log of the service.")


# -- log lines -----------------------------------------------------------------------------------


class _Formatter(logging.Formatter):
    """Writes time, level, message, request id and the `fields` of a record, as text or JSON."""

    def __init__(self, form: Literal["text", "json"]) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        first = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        current = request_id.get()
        others = ({"request_id": current} if current else {}) | getattr(record, "fields", {})
        trace = self.formatException(record.exc_info) if record.exc_info else None
        if self._form == "json":
            line = first | others | ({} if trace is None else {"traceback": trace})
            return to_json(line, fallback=str).decode()
        text = " ".join([*first.values(), *(f"{name}={value}" for name, value in others.items())])
        text = text.replace("\r", "\\r").replace("\n", "\\n")
        return text if trace is None else f"{text}\n{trace}"


def configure_logging(form: Literal["text", "json"]) -> None:
    """Send log lines of this process to standard error; those of libraries from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(form))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("transcf").setLevel(logging.INFO)
