"""How much a request may ask for, and how many may be inside at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from transcf.serving.errors import problem

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Longest list, and most people, items of a session or events in a call.
MOST_ITEMS = MOST_USERS = MOST_EVENTS = 1000
#: Most pairs that are scored in a call, and most lines of lists that one may have.
MOST_PAIRS, MOST_LINES = 10_000, 100_000
#: Most items that are explained in a call.
MOST_REASONS = 100
#: What has to answer when nothing else does.
_ALWAYS = ("/healthz", "/metrics")
#: Longest id and longest key of an event, in characters.
LONGEST_ID, LONGEST_KEY = 1024, 200


@dataclass(frozen=True)
class Limits:
    """What one worker takes on.

    Attributes:
        inside: Requests that are being answered or wait for it; more are turned away.
        seconds: How long one may take.
        body: Largest body in bytes.
        retry: Seconds after which somebody who was turned away may try again.
    """

    inside: int = 512
    seconds: float = 10.0
    body: int = 2**20
    retry: int = 1


class LoadLimiter:
    """Turns requests away before they cost anything: too many, too large, too slow.

    Args:
        app: What answers.
        limits: How much of it.
        refused: Called with the reason whenever one is turned away.
    """

    def __init__(self, app: App, limits: Limits, refused: Callable[[str], None]) -> None:
        """Begin with nobody inside."""
        self._app, self._limits, self._refused = app, limits, refused
        self.inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or say why not."""
        if scope["type"] != "http" or scope["path"] in _ALWAYS:
            await self._app(scope, receive, send)
            return
        if self.inside >= self._limits.inside:
            self._refused("overloaded")
            sentence = "The service has as many requests as it can take: try again in a moment."
            await problem(503, "overloaded", sentence, self._limits.retry)(scope, receive, send)
            return
        self.inside += 1
        try:
            await self._timed(scope, receive, send)
        finally:
            self.inside -= 1

    async def _timed(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with asyncio.timeout(self._limits.seconds):
                await self._sized(scope, receive, noted)
        except TimeoutError:
            self._refused("timeout")
            if begun:
                raise
            sentence = f"This took longer than {self._limits.seconds:g} seconds: ask for less."
            await problem(504, "timeout", sentence)(scope, receive, send)

    async def _sized(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body first, as far as it may go."""
        if scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        body = await self._body(scope, receive)
        if body is None:
            self._refused("too_large")
            sentence = f"The body has more than {self._limits.body:,} bytes: send less at a time."
            await problem(413, "too_large", sentence)(scope, receive, send)
            return
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        for name, value in scope["headers"]:
            if (
                name == b"content-length"
                and value.isdigit()
                and int(value[:20]) > self._limits.body
            ):
                return None
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b""
            part = message.get("body", b"")
            size += len(part)
            if size > self._limits.body:
                return None
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)
