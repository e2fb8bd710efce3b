"""JSON responses, and exceptions as JSON errors with one sentence."""

from __future__ import annotations

import logging
from typing import Any

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
from transcf.serving.batching import OverloadedError
from transcf.serving.events import StoreError
from transcf.serving.logs import request_id
from transcf.serving.schemas import json_id

log = logging.getLogger("transcf.serving")

#: Status and code of the library's exceptions.
_STATUSES: tuple[tuple[type[TransCFError], int, str], ...] = (
    (UnknownIdError, 404, "unknown"),
    (UnsupportedError, 409, "unsupported"),
    (StoreError, 503, "unavailable"),
    (OverloadedError, 503, "overloaded"),
    (ParameterError, 422, "invalid"),
    (DataError, 422, "invalid"),
)
_CODES = {404: "not_found", 405: "method_not_allowed"}
#: What clients read if the event store fails; the log has the reason, which may contain paths.
STORE_FAILED = "Events cannot be stored or read at the moment; the log of the service says why."


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
    """Return an error as a JSON response, with the id of the current request."""
    error = {"code": code, "message": sentence, "request_id": request_id.get()}
    response = json_response({"error": error}, status)
    if retry_after is not None:
        response.headers["retry-after"] = str(retry_after)
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"
    return response


def add_exception_handlers(app: FastAPI) -> None:
    """Turn all exceptions of an application into JSON errors."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(TransCFError, _library_error)
    app.add_exception_handler(Exception, _unexpected)


async def _invalid(request: Request, error: Exception) -> Response:
    """Name the first invalid field; the value is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    # Of a union, pydantic names the validator, too.
    names = [str(part) for part in first["loc"] if not str(part).startswith("function-")]
    where = ".".join(names[1:]) or names[0]
    return error_response(422, "invalid", brief(f"{where[:200]}: {first['msg']}."))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = f"{error.detail}: GET /docs lists what there is."
    code = _CODES.get(error.status_code, "invalid")
    response = error_response(error.status_code, code, sentence)
    response.headers.update(error.headers or {})
    return response


async def _library_error(request: Request, error: Exception) -> Response:
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            service = request.app.state.service
            if code == "overloaded":
                service.metrics.refused.labels(code).inc()
            sentence = STORE_FAILED if kind is StoreError else str(error)
            retry_after = service.settings.retry_after if status == 503 else None
            return error_response(status, code, sentence, retry_after)
    return await _unexpected(request, error)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method[:16], request.scope.get("route"), exc_info=error)
    return error_response(500, "internal", "Internal error; see the log of the service.")
