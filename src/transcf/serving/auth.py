"""Who may ask: a token, or on loopback without one, nobody's web page."""

from __future__ import annotations

import hmac
import ipaddress
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from transcf.errors import ParameterError
from transcf.serving.errors import problem
from transcf.serving.limits import App, Receive, Scope, Send

#: What is open to everybody: the page itself, which knows nothing, and signs of life.
_OPEN = ("/", "/healthz", "/readyz")
_PAGE = "/page/"
#: Shorter tokens could be guessed.
_SHORTEST = 16
_BEARER = b"bearer "


def read_token(path: Path | None) -> str | None:
    """Read a token from a file.

    Raises:
        ParameterError: It holds none, or one that could be guessed.
    """
    if path is None:
        return None
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"{path} cannot be read as a token: {type(error).__name__}."
        ) from error
    if len(token) < _SHORTEST or not token.isprintable() or " " in token:
        raise ParameterError(
            f"{path} does not hold a token: one line of at least {_SHORTEST} characters, such as "
            "`openssl rand -hex 32` makes."
        )
    return token


def is_loopback(host: str) -> bool:
    """Tell whether an address can be reached from this machine alone.

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
    """Raise a `ParameterError` where others could reach the service without a token."""
    if token is None and not is_loopback(host):
        raise ParameterError(
            f"--host {host} can be reached by others: give --token-file FILE with a token that "
            "they need, or leave it at 127.0.0.1."
        )


class AuthMiddleware:
    """Lets in who has the token; without a token, who asks from this machine on purpose.

    Args:
        app: What answers.
        token: The token, or None.
    """

    def __init__(self, app: App, token: str | None) -> None:
        """Keep both."""
        self._app, self._token = app, None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or say what is missing."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self._allows(scope["path"], headers):
            await self._app(scope, receive, send)
        elif self._token is not None:
            sentence = "Send the header Authorization: Bearer TOKEN."
            await problem(401, "unauthorized", sentence)(scope, receive, send)
        else:
            sentence = "Without a token the service answers to this machine alone."
            await problem(403, "forbidden", sentence)(scope, receive, send)

    def _allows(self, path: str, headers: dict[bytes, bytes]) -> bool:
        if self._token is None:
            return _is_local(headers)
        return path in _OPEN or path.startswith(_PAGE) or self._knows(headers)

    def _knows(self, headers: dict[bytes, bytes]) -> bool:
        assert self._token is not None, "asked for with a token alone"
        given = headers.get(b"authorization", b"")
        word, token = given[: len(_BEARER)].lower(), given[len(_BEARER) :].strip()
        # Both are compared whole and in the same time, whatever was given.
        return hmac.compare_digest(token, self._token) and word == _BEARER


def _is_local(headers: dict[bytes, bytes]) -> bool:
    """Whether a request names this machine, and no page of another origin has sent it."""
    host = headers.get(b"host", b"").decode("latin-1")
    origin = headers.get(b"origin", b"").decode("latin-1")
    return _names_loopback(f"//{host}") and (not origin or _names_loopback(origin))


@lru_cache(256)
def _names_loopback(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
