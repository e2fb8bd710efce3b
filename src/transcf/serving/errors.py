"""Errors as the service says them: one shape, one sentence, never a traceback."""

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
from transcf.serving.events.store import StoreError

log = logging.getLogger("transcf.serving")

#: What the library's errors are to somebody who asks over the network.
_KINDS: tuple[tuple[type[TransCFError], int, str], ...] = (
    (UnknownIdError, 404, "unknown"),
    (UnsupportedError, 409, "unsupported"),
    (StoreError, 503, "unavailable"),
    (ParameterError, 422, "invalid"),
    (DataError, 422, "invalid"),
)
_CODES = {404: "not_found", 405: "method_not_allowed"}


def as_json(value: Any, status: int = 200) -> Response:
    """Return a value as an answer; numbers that JSON does not have become null."""
    return Response(to_json(value, compact=True), status, media_type="application/json")


def problem(status: int, code: str, sentence: str, retry: int | None = None) -> Response:
    """Return an error as an answer."""
    answer = as_json({"error": {"code": code, "message": sentence}}, status)
    if retry is not None:
        answer.headers["retry-after"] = str(retry)
    if status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    return answer


def add_words(app: FastAPI) -> None:
    """Let an application say what is wrong in this way."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(TransCFError, _ours)
    app.add_exception_handler(Exception, _unexpected)


async def _invalid(request: Request, error: Exception) -> Response:
    """Name the first thing that is wrong; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    return problem(422, "invalid", brief(f"{where[:200]}: {first['msg']}."))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = f"{error.detail}: GET /docs lists what there is."
    answer = problem(error.status_code, _CODES.get(error.status_code, "invalid"), sentence)
    answer.headers.update(error.headers or {})
    return answer


async def _ours(request: Request, error: Exception) -> Response:
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            return problem(status, code, str(error), 1 if status == 503 else None)
    return await _unexpected(request, error)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.scope.get("route"), exc_info=error)
    return problem(
        500, "internal", "Something went wrong inside; the log of the service says what."
    )
