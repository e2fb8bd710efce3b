"""ASGI middleware: request ids, logs and metrics of requests, and limits."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transcf.serving.errors import error_response
from transcf.serving.logs import fields, request_id
from transcf.serving.metrics import Metrics
from transcf.serving.settings import ServiceSettings

log = logging.getLogger("transcf.serving")

#: Paths that answer even under overload.
_UNLIMITED_PATHS = ("/healthz", "/readyz", "/metrics")
#: Ids of requests that are taken over from clients.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_NO_STORE, _NO_SNIFF = (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")


def new_request_id() -> str:
    """Return a random id for a request that has none."""
    return f"{random.getrandbits(64):016x}"


def _given_id(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            found: str = value.decode()
            return found
    return None


class ObserveMiddleware:
    """Gives each request an id, counts it and logs it; answers HEAD like GET, without a body.

    Args:
        app: The application.
        metrics: Counts requests by route, method and status.
        settings: What is logged.

    Attributes:
        active: Number of requests in progress.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, settings: ServiceSettings) -> None:
        self._app, self._metrics = app, metrics
        self._logs_all, self._slow = settings.access_log, settings.slow_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and note what becomes of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, method = time.perf_counter(), 500, scope["method"]
        current = _given_id(scope) or new_request_id()
        request_id.set(current)
        if method == "HEAD":
            scope = {**scope, "method": "GET"}  # the server looks at its own scope

        async def note_start(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], message["headers"]
                headers.append((b"x-request-id", current.encode()))
                names = [name for name, _ in headers]
                if b"cache-control" not in names:
                    headers.append(_NO_STORE)
                if b"x-content-type-options" not in names:
                    headers.append(_NO_SNIFF)
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, receive, note_start)
        finally:
            # Routes rather than paths: paths contain ids.
            route = getattr(scope.get("route"), "path_format", "other")
            spent = time.perf_counter() - started
            requests, seconds = self._metrics.count_request(route, method, status)
            requests.inc()
            seconds.observe(spent)
            if spent >= self._slow or self._logs_all:
                self._log(scope, route, method, status, spent)

    def _log(self, scope: Scope, route: str, method: str, status: int, spent: float) -> None:
        is_slow = spent >= self._slow
        client = scope.get("client") or ("",)
        log.log(
            logging.WARNING if is_slow else logging.INFO,
            "Slow request" if is_slow else "Request",
            extra=fields(
                method=method[:16],
                route=route,
                status=status,
                ms=round(1000 * spent, 1),
                client=client[0],
                token=scope.get("token"),
            ),
        )


class LoadLimiter:
    """Refuses requests that are too many, too large or too slow.

    Args:
        app: The application.
        settings: The limits.
        refused: Called with the error code of each refused request.
        note_active: Called with the number of requests in progress when it changes.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServiceSettings,
        refused: Callable[[str], None],
        note_active: Callable[[int], None],
    ) -> None:
        self._app, self._settings, self._refused = app, settings, refused
        self._note_active = note_active
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on within the limits, or refuse it."""
        if scope["type"] != "http" or scope["path"] in _UNLIMITED_PATHS:
            await self._app(scope, receive, send)
            return
        settings, started, body_is_read = self._settings, False, False

        async def refuse(status: int, code: str, sentence: str, retry: int | None = None) -> None:
            self._refused(code)
            response = error_response(status, code, sentence, retry)
            if not body_is_read:
                response.headers["connection"] = "close"  # instead of waiting for the rest
            await response(scope, receive, send)

        async def note_start(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        has_body = scope["method"] not in ("GET", "HEAD")
        if self._active >= settings.max_requests:
            body_is_read = not has_body
            sentence = "The service has as many requests as it can take: try again in a moment."
            await refuse(503, "overloaded", sentence, settings.retry_after)
            return
        self._active += 1
        self._note_active(self._active)
        try:
            async with asyncio.timeout(settings.request_seconds):
                body = await self._read_body(scope, receive) if has_body else b""
                if body is None:
                    limit = settings.max_body_bytes
                    sentence = f"The body has more than {limit:,} bytes: send less at a time."
                    await refuse(413, "too_large", sentence)
                else:
                    body_is_read = True
                    source = _replay(body, receive) if has_body else receive
                    await self._app(scope, source, note_start)
        except TimeoutError:
            if started:
                self._refused("timeout")
                raise
            sentence = f"This took longer than {settings.request_seconds:g} seconds: ask for less."
            await refuse(504, "timeout", sentence)
        finally:
            self._active -= 1
            self._note_active(self._active)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body; None if it is too large."""
        limit = self._settings.max_body_bytes
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value[:20]) > limit:
                return None
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b""
            body += message.get("body", b"")
            if len(body) > limit:
                return None
            if not message.get("more_body"):
                return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the whole body first."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message
