"""ASGI middleware: authentication, load limits and metrics.

Starlette's `TrustedHostMiddleware` is not used: it answers in plain text with status 400, cuts IPv6
hosts at their first colon and does not check `Origin`. `prometheus-fastapi-instrumentator` is not
used: it would replace the 20 lines of `MetricsMiddleware` and rename all time series.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transcf.errors import ParameterError
from transcf.serving.errors import error_response

# -- authentication ------------------------------------------------------------------------------

#: Paths that need no token: the page, which holds no data, and health checks.
_OPEN_PATHS, _OPEN_PREFIX = ("/", "/healthz", "/readyz"), "/page/"
_MIN_TOKEN_LENGTH = 16
_BEARER = b"bearer "


def read_token(path: Path | None) -> str | None:
    """Read a token from a file.

    Raises:
        ParameterError: The file holds no token, or a short one.
    """
    if path is None:
        return None
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"{path} cannot be read as a token: {type(error).__name__}."
        ) from error
    if len(token) < _MIN_TOKEN_LENGTH or not token.isprintable() or " " in token:
        raise ParameterError(
            f"{path} does not hold a token: one line of at least {_MIN_TOKEN_LENGTH} characters, "
            "such as `openssl rand -hex 32` makes."
        )
    return token


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is of this machine only.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_host(host: str, token: str | None) -> None:
    """Raise a `ParameterError` if other machines could reach the service without a token."""
    if token is None and not is_loopback(host):
        raise ParameterError(
            f"--host {host} can be reached by others: give --token-file FILE with a token that "
            "they need, or leave it at 127.0.0.1."
        )


class AuthMiddleware:
    """Requires the bearer token; without a token, a loopback `Host` and no foreign `Origin`."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an allowed request on, or refuse it."""
        if scope["type"] != "http" or self._allows(scope["path"], dict(scope["headers"])):
            await self._app(scope, receive, send)
        elif self._token is not None:
            sentence = "Send the header Authorization: Bearer TOKEN."
            await error_response(401, "unauthorized", sentence)(scope, receive, send)
        else:
            sentence = "Without a token the service answers to this machine alone."
            await error_response(403, "forbidden", sentence)(scope, receive, send)

    def _allows(self, path: str, headers: dict[bytes, bytes]) -> bool:
        if self._token is None:
            host = headers.get(b"host", b"").decode("latin-1")
            origin = headers.get(b"origin", b"").decode("latin-1")
            return _has_loopback_host(f"//{host}") and (not origin or _has_loopback_host(origin))
        if path in _OPEN_PATHS or path.startswith(_OPEN_PREFIX):
            return True
        given = headers.get(b"authorization", b"")
        scheme, token = given[: len(_BEARER)].lower(), given[len(_BEARER) :].strip()
        return hmac.compare_digest(token, self._token) and scheme == _BEARER


@lru_cache(256)
def _has_loopback_host(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


# -- load limits ---------------------------------------------------------------------------------

#: Paths that answer even under overload.
_UNLIMITED_PATHS = ("/healthz", "/metrics")


@dataclass(frozen=True)
class Limits:
    """Limits of one worker.

    Attributes:
        requests: Requests in progress; further ones are refused.
        seconds: Time limit of a request.
        body: Largest body in bytes.
        retry_after: Seconds after which a client may repeat a refused request.
    """

    requests: int = 512
    seconds: float = 10.0
    body: int = 2**20
    retry_after: int = 1


class LoadLimiter:
    """Refuses requests that are too many, too large or too slow.

    Args:
        app: The application.
        limits: The limits.
        refused: Called with the error code of each refused request.
    """

    def __init__(self, app: ASGIApp, limits: Limits, refused: Callable[[str], None]) -> None:
        self._app, self._limits, self._refused = app, limits, refused
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on within the limits, or refuse it."""
        if scope["type"] != "http" or scope["path"] in _UNLIMITED_PATHS:
            await self._app(scope, receive, send)
            return
        limits, started = self._limits, False

        async def refuse(status: int, code: str, sentence: str, retry: int | None = None) -> None:
            self._refused(code)
            await error_response(status, code, sentence, retry)(scope, receive, send)

        async def note_start(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        if self._active >= limits.requests:
            sentence = "The service has as many requests as it can take: try again in a moment."
            await refuse(503, "overloaded", sentence, limits.retry_after)
            return
        self._active += 1
        try:
            async with asyncio.timeout(limits.seconds):
                body: bytes | None = b""
                has_body = scope["method"] not in ("GET", "HEAD")
                if has_body:
                    body = await self._read_body(scope, receive)
                if body is None:
                    sentence = f"The body has more than {limits.body:,} bytes: send less at a time."
                    await refuse(413, "too_large", sentence)
                else:
                    source = _replay(body, receive) if has_body else receive
                    await self._app(scope, source, note_start)
        except TimeoutError:
            if started:
                self._refused("timeout")
                raise
            sentence = f"This took longer than {limits.seconds:g} seconds: ask for less."
            await refuse(504, "timeout", sentence)
        finally:
            self._active -= 1

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body; None if it is too large."""
        limit = self._limits.body
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


# -- metrics -------------------------------------------------------------------------------------

#: Environment variable with the folder in which workers share metrics; read by prometheus_client.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Prometheus metrics of a service, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self._registry}
        self.requests = Counter(
            "transcf_requests", "Answered requests.", ["route", "method", "status"], **own
        )
        self.seconds = Histogram(
            "transcf_request_seconds", "Time to answer.", ["route"], buckets=_SECONDS, **own
        )
        self.refused = Counter("transcf_refused", "Refused requests.", ["reason"], **own)
        self.batches = Histogram(
            "transcf_batch_size", "Requests answered together.", buckets=_SIZES, **own
        )
        self.events = Counter("transcf_events", "Received events.", ["outcome"], **own)
        self.version = Gauge("transcf_version", "Served version.", multiprocess_mode="max", **own)
        self.refused_versions = Counter("transcf_refused_versions", "Broken versions.", **own)

    def text(self) -> bytes:
        """Return the metrics of all workers in the Prometheus text format."""
        registry = self._registry
        if METRICS_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


class MetricsMiddleware:
    """Counts requests by route, method and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            # Routes rather than paths: paths contain ids.
            route = getattr(scope.get("route"), "path_format", "other")
            self._metrics.requests.labels(route, scope["method"], str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - started)
