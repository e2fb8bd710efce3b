"""JSON responses, and exceptions as JSON errors with one sentence."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from transcf.data.json_text import to_json
from transcf.errors import (
    DataError,
    ParameterError,
    TransCFError,
    UnknownIdError,
    UnsupportedError,
    brief,
)
from transcf.serving.events import StoreError

log = logging.getLogger("transcf.serving")

#: Status and code of the library's exceptions.
_STATUSES: tuple[tuple[type[TransCFError], int, str], ...] = (
    (UnknownIdError, 404, "unknown"),
    (UnsupportedError, 409, "unsupported"),
    (StoreError, 503, "unavailable"),
    (ParameterError, 422, "invalid"),
    (DataError, 422, "invalid"),
)
_CODES = {404: "not_found", 405: "method_not_allowed"}


def json_response(value: Any, status: int = 200) -> Response:
    """Return a JSON response; non-finite numbers become null."""
    return Response(to_json(value, compact=True), status, media_type="application/json")


def error_response(
    status: int, code: str, sentence: str, retry_after: int | None = None
) -> Response:
    """Return an error as a JSON response."""
    response = json_response({"error": {"code": code, "message": sentence}}, status)
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
            return error_response(status, code, str(error), 1 if status == 503 else None)
    return await _unexpected(request, error)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.scope.get("route"), exc_info=error)
    return error_response(500, "internal", "Internal error; see the log of the service.")
