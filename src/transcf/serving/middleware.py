"""ASGI middleware: who may ask, how much at once, and what becomes of each request.

Starlette's `TrustedHostMiddleware` is not used: it answers in plain text with status 400, cuts IPv6
hosts at their first colon and does not check `Origin`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
import time
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transcf.serving.errors import DEFAULT_HEADERS, RefusedError, error_response, request_id
from transcf.serving.service import Service
from transcf.serving.settings import Tokens, is_loopback

log = logging.getLogger("transcf.serving")

#: Paths that answer even under overload.
_UNLIMITED_PATHS = ("/healthz", "/readyz", "/metrics")
#: Paths that need no token: the page, which holds no data, and health checks.
_OPEN_PATHS, _OPEN_PREFIX = ("/", "/healthz", "/readyz"), "/page/"
#: Scopes that paths need; all others need `read`.
_SCOPES = {"/metrics": "metrics", "/v1/models/current": "admin", "/v1/events": "write"}
#: Ids of requests that are taken over from clients.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADERS = [(name.encode(), value.encode()) for name, value in DEFAULT_HEADERS.items()]


def new_request_id() -> str:
    """Return a random id for a request that has none."""
    return f"{random.getrandbits(64):016x}"


class Gate:
    """Gives each request an id, refuses it or passes it on, counts it and logs it.

    HEAD is answered like GET, without a body.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._settings, self._metrics = service.settings, service.metrics
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, method = time.perf_counter(), 0, scope["method"]
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        current = given.decode() if _REQUEST_ID.fullmatch(given) else new_request_id()
        request_id.set(current)
        if method == "HEAD":  # the server looks at its own scope and sends no body
            scope = {**scope, "method": "GET"}

        async def note_start(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], message["headers"]
                names = [name for name, _ in headers]
                for header in (*_HEADERS, (b"x-request-id", current.encode())):
                    if header[0] not in names:
                        headers.append(header)
            await send(message)

        try:
            await self._answer(scope, receive, note_start)
        except RefusedError as error:
            if error.code in ("overloaded", "timeout"):
                self._metrics.refused.labels(error.code).inc()
            if status:
                raise TimeoutError(str(error)) from error  # the server cuts the connection
            response = error_response(error.status, error.code, str(error), error.retry_after)
            if scope["method"] != "GET":
                response.headers["connection"] = "close"  # instead of waiting for the body
            await response(scope, receive, note_start)
        finally:
            self._note(scope, method, status or 500, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on within the limits."""
        settings = self._settings
        _check_access(scope, self._service.tokens, settings.rate_limit)
        if scope["path"] in _UNLIMITED_PATHS:
            await self._app(scope, receive, send)
            return
        if self._active >= settings.max_requests:
            sentence = "The service has as many requests as it can take: try again in a moment."
            raise RefusedError(503, "overloaded", sentence, settings.retry_after)
        self._active += 1
        self._metrics.in_progress.set(self._active)
        try:
            async with asyncio.timeout(settings.request_seconds):
                await self._app(scope, _limited(receive, settings.max_body_bytes), send)
        except TimeoutError:
            sentence = f"This took longer than {settings.request_seconds:g} seconds: ask for less."
            raise RefusedError(504, "timeout", sentence) from None
        finally:
            self._active -= 1
            self._metrics.in_progress.set(self._active)

    def _note(self, scope: Scope, method: str, status: int, spent: float) -> None:
        """Count a request, and log it if it was slow or all are logged."""
        # Routes rather than paths: paths contain ids.
        other = f"{_OPEN_PREFIX}{{name}}" if scope["path"].startswith(_OPEN_PREFIX) else "other"
        route = getattr(scope.get("route"), "path_format", other)
        requests, seconds = self._metrics.count_request(route, method, status)
        requests.inc()
        seconds.observe(spent)
        is_slow = spent >= self._settings.slow_seconds
        if not is_slow and not self._settings.access_log:
            return
        client, token = (scope.get("client") or ("",))[0], scope.get("token")
        about = {"method": method[:16], "route": route, "status": status}
        about |= {"ms": round(1000 * spent, 1), "client": client, "token": token}
        if is_slow:
            log.warning("Slow request", extra={"fields": about})
        else:
            log.info("Request", extra={"fields": about})


def _check_access(scope: Scope, tokens: Tokens | None, rate_limit: float) -> None:
    """Require a token with the right scope; without tokens, a loopback `Host` and `Origin`."""
    headers, path = dict(scope["headers"]), scope["path"]
    if tokens is None:
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not _has_loopback_host(f"//{host}") or (origin and not _has_loopback_host(origin)):
            sentence = "Without a token the service answers to this machine alone."
            raise RefusedError(403, "forbidden", sentence)
        return
    if path in _OPEN_PATHS or path.startswith(_OPEN_PREFIX):
        return
    token = tokens.find(headers.get(b"authorization", b""))
    if token is None:
        raise RefusedError(401, "unauthorized", "Send the header Authorization: Bearer TOKEN.")
    scope["token"] = token.name
    needed = _SCOPES.get(path, "read")
    if needed not in token.scopes and "admin" not in token.scopes:
        raise RefusedError(403, "forbidden", f"This needs a token with the scope {needed}.")
    if wait := token.wait(rate_limit):
        sentence = "This token sends more requests than it may: send fewer a second."
        raise RefusedError(429, "rate_limited", sentence, math.ceil(wait))


@lru_cache(256)
def _has_loopback_host(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _limited(receive: Receive, limit: int) -> Receive:
    """Return a `receive` that raises if the body is too large."""
    size = 0

    async def next_message() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            sentence = f"The body has more than {limit:,} bytes: send less at a time."
            # FastAPI turns other exceptions into errors of the parser.
            raise HTTPException(413, sentence, {"connection": "close"})
        return message

    return next_message
