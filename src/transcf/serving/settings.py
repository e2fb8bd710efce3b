"""Settings and tokens of a service.

Settings come from options, environment variables and a TOML file, in this order; tokens with scopes
and rate limits from a file of their own.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import math
import os
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from transcf.errors import ParameterError, did_you_mean

log = logging.getLogger("transcf.serving")

#: Environment variables have this prefix before the name of the setting, in capitals.
ENVIRONMENT_PREFIX = "TRANSCF_SERVE_"
#: What a token may do; `admin` may do everything.
SCOPES = ("read", "write", "metrics", "admin")
_MIN_TOKEN_LENGTH = 16
_BEARER = b"bearer "

_Count: TypeAlias = Annotated[int, Field(ge=1)]
_Seconds: TypeAlias = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service; docs/reference/service.md says what they mean.

    Limits are those of one worker. Work is counted in about milliseconds of processor time.
    """

    model: Path
    events: str | None = None
    items: Path | None = None
    token_file: Path | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    workers: _Count = 1
    log_format: Literal["text", "json"] = "text"
    access_log: bool = False
    slow_seconds: _Seconds = 1.0
    max_requests: _Count = 512
    max_connections: _Count = 2048
    max_queued_cost: _Count = 5000
    max_body_bytes: _Count = 2**20
    max_header_bytes: _Count = 2**16
    header_seconds: _Seconds = 10.0
    request_seconds: _Seconds = 10.0
    keep_alive_seconds: _Count = 75  # longer than clients and load balancers keep connections
    shutdown_seconds: _Count = 15
    retry_after: _Count = 1
    rate_limit: Annotated[float, Field(ge=0)] = 0.0
    check_seconds: _Seconds = 5.0
    verb: Annotated[str, Field(min_length=1, max_length=40)] = "chose"


NAMES = tuple(field.name for field in fields(ServiceSettings))


def load_settings(
    options: Mapping[str, Any],
    config: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> ServiceSettings:
    """Return settings; options come before environment variables, and these before the file.

    Args:
        options: Settings by name; None stands for a setting that was not given.
        config: A TOML file with settings by name; relative paths in it are relative to the file.
        environment: Environment variables, such as `TRANSCF_SERVE_MAX_REQUESTS`.
    """
    given = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }
    named = given.pop("config", None)
    config = Path(named) if config is None and named else config
    values = {} if config is None else _read(config)
    for name in given:
        _check_name(name, f"The environment variable {ENVIRONMENT_PREFIX}{name.upper()}")
    values |= given | {name: value for name, value in options.items() if value is not None}
    if "model" not in values:
        raise ParameterError(
            f"Name a DIR to serve, or give --demo, or set {ENVIRONMENT_PREFIX}MODEL."
        )
    try:
        return TypeAdapter(ServiceSettings).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise ParameterError(f"The setting {name} is not allowed: {first['msg']}.") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ParameterError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ParameterError(f"{path} is not TOML: {error}.") from error
    for name in values:
        _check_name(name, f"{path}: {name}")
    for name in ("model", "items", "token_file"):
        if isinstance(values.get(name), str):
            values[name] = path.parent / values[name]
    return values


def _check_name(name: str, place: str) -> None:
    if name not in NAMES:
        raise ParameterError(f"{place} is no setting of the service.{did_you_mean(name, NAMES)}")


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


# -- tokens --------------------------------------------------------------------------------------


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
        if words and not words[0].startswith("#"):
            secret, token = _read_token(words, f"{path}, line {number}")
            found[hashlib.sha256(secret.encode()).digest()] = token
    if not found:
        raise ParameterError(f"{path} holds no token: write one of at least 16 characters.")
    return found


def _read_token(words: list[str], place: str) -> tuple[str, Token]:
    """Return the secret and the token of a line."""
    if len(words) == 1:
        words = ["default", "admin", words[0]]
    if len(words) not in (3, 4):
        raise ParameterError(f"{place}: write a token, or NAME SCOPES TOKEN [RATE].")
    name, scopes, secret = words[0], words[1].split(","), words[2]
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise ParameterError(f"{place}: {unknown[0]!r} is none of {', '.join(SCOPES)}.")
    if len(secret) < _MIN_TOKEN_LENGTH or not secret.isprintable():
        raise ParameterError(
            f"{place} does not hold a token of at least {_MIN_TOKEN_LENGTH} characters, such as "
            "`openssl rand -hex 32` makes."
        )
    try:
        rate = float(words[3]) if len(words) == 4 else None
    except ValueError:
        rate = -1.0
    if rate is not None and not 0 <= rate < math.inf:
        raise ParameterError(f"{place}: the rate is a number of requests a second.")
    return secret, Token(name, frozenset(scopes), rate)


class Tokens:
    """The tokens of a file, by the SHA-256 of their secret; read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, _file_state(path)
        self._by_digest = read_tokens(path)

    def find(self, authorization: bytes) -> Token | None:
        """Return the token of an `Authorization` header, None if there is none."""
        if authorization[: len(_BEARER)].lower() != _BEARER:
            return None
        # The time that looking up a digest takes says nothing about secrets.
        secret = authorization[len(_BEARER) :].strip()
        return self._by_digest.get(hashlib.sha256(secret).digest())

    def reload(self) -> None:
        """Read the file if it has changed; the tokens stay as they are if it cannot be used."""
        state = _file_state(self._path)
        if state == self._seen:
            return
        self._seen = state
        try:
            self._by_digest = read_tokens(self._path)
        except ParameterError as error:
            log.error("The tokens stay as they were: %s", error)
        else:
            log.info("The tokens were read again.")


def _file_state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
