"""Tokens with scopes and rate limits, and the check of who may send a request.

Starlette's `TrustedHostMiddleware` is not used: it answers in plain text with status 400, cuts IPv6
hosts at their first colon and does not check `Origin`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import math
import os
import time
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from starlette.types import Scope

from transcf.errors import ParameterError
from transcf.serving.errors import RefusedError

log = logging.getLogger("transcf.serving")

#: Paths that need no token: the page, which holds no data, and health checks.
_OPEN_PATHS, _OPEN_PREFIX = ("/", "/healthz", "/readyz"), "/page/"
_MIN_TOKEN_LENGTH = 16
_BEARER = b"bearer "
#: What a token may do; `admin` may do everything.
SCOPES = ("read", "write", "metrics", "admin")


@dataclass
class Token:
    """A client of the service: its name in logs, its scopes, and its requests a second.

    The rate is None for the limit of the service, and 0 for no limit.
    """

    name: str
    scopes: frozenset[str]
    rate: float | None = None
    _left: float = field(default=math.inf, repr=False)
    _taken_at: float = field(default=0.0, repr=False)

    def wait(self, default_rate: float) -> float:
        """Take one request from the rate limit; return the seconds to wait, 0 if it is allowed.

        A token may send the requests of one second at once.
        """
        rate = default_rate if self.rate is None else self.rate
        if not rate:
            return 0.0
        now = time.monotonic()
        self._left = min(max(rate, 1.0), self._left + rate * (now - self._taken_at))
        self._taken_at = now
        if self._left < 1:
            return (1 - self._left) / rate
        self._left -= 1
        return 0.0


def read_tokens(path: Path) -> dict[bytes, Token]:
    """Read a file of tokens; return them by the SHA-256 of their secret.

    A line is a secret, which may do everything, or `NAME SCOPES SECRET [RATE]`, with scopes
    separated by commas. Lines that begin with # are comments.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError) as error:
        raise ParameterError(f"{path} cannot be read as tokens: {type(error).__name__}.") from error
    found: dict[bytes, Token] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        place = f"{path}, line {number}"
        if len(words) == 1:
            words = ["default", "admin", words[0]]
        if len(words) not in (3, 4):
            raise ParameterError(f"{place}: write a token, or NAME SCOPES TOKEN [RATE].")
        name, scopes, secret = words[0], words[1].split(","), words[2]
        if unknown := [scope for scope in scopes if scope not in SCOPES]:
            raise ParameterError(f"{place}: {unknown[0]!r} is none of {', '.join(SCOPES)}.")
        if len(secret) < _MIN_TOKEN_LENGTH or not secret.isprintable():
            raise ParameterError(
                f"{place} does not hold a token of at least {_MIN_TOKEN_LENGTH} characters, such "
                "as `openssl rand -hex 32` makes."
            )
        try:
            rate = float(words[3]) if len(words) == 4 else None
        except ValueError:
            rate = -1.0
        if rate is not None and not 0 <= rate < math.inf:
            raise ParameterError(f"{place}: the rate is a number of requests a second.")
        found[hashlib.sha256(secret.encode()).digest()] = Token(name, frozenset(scopes), rate)
    if not found:
        raise ParameterError(f"{path} holds no token: write one of at least 16 characters.")
    return found


class Tokens:
    """The tokens of a file, read again when it changes.

    `by_digest` has them by the SHA-256 of their secret; it is None if no tokens are needed.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen = self._state()
        self.by_digest = None if path is None else read_tokens(path)

    def find(self, authorization: bytes) -> Token | None:
        """Return the token of an `Authorization` header, None if there is none."""
        if self.by_digest is None or authorization[: len(_BEARER)].lower() != _BEARER:
            return None
        # The time that looking up a digest takes says nothing about secrets.
        secret = authorization[len(_BEARER) :].strip()
        return self.by_digest.get(hashlib.sha256(secret).digest())

    def reload(self) -> None:
        """Read the file if it has changed; the tokens stay as they are if it cannot be used."""
        state = self._state()
        if self._path is None or state == self._seen:
            return
        self._seen = state
        try:
            self.by_digest = read_tokens(self._path)
        except ParameterError as error:
            log.error("The tokens stay as they were: %s", error)
        else:
            log.info("The tokens were read again.")

    def _state(self) -> tuple[int, int, int] | None:
        try:
            status = None if self._path is None else os.stat(self._path)
        except OSError:
            return None
        return None if status is None else (status.st_ino, status.st_mtime_ns, status.st_size)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is of this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_host(host: str, has_tokens: bool) -> None:
    """Raise a `ParameterError` if other machines could reach the service without a token."""
    if not has_tokens and not is_loopback(host):
        raise ParameterError(
            f"--host {host} can be reached by others: give --token-file FILE with a token that "
            "they need, or leave it at 127.0.0.1."
        )


def check_access(scope: Scope, tokens: Tokens, rate_limit: float) -> None:
    """Require a token with the right scope; without tokens, a loopback `Host` and `Origin`.

    Raises:
        RefusedError: The request may not be answered.
    """
    headers = dict(scope["headers"])
    if tokens.by_digest is None:
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not _has_loopback_host(f"//{host}") or (origin and not _has_loopback_host(origin)):
            sentence = "Without a token the service answers to this machine alone."
            raise RefusedError(403, "forbidden", sentence)
        return
    path = scope["path"]
    if path in _OPEN_PATHS or path.startswith(_OPEN_PREFIX):
        return
    token = tokens.find(headers.get(b"authorization", b""))
    if token is None:
        raise RefusedError(401, "unauthorized", "Send the header Authorization: Bearer TOKEN.")
    scope["token"] = token.name
    needed = "read"
    if path == "/metrics":
        needed = "metrics"
    elif path == "/v1/models/current":
        needed = "admin"
    elif path == "/v1/events" and scope["method"] == "POST":
        needed = "write"
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
