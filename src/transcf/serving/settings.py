"""Settings of a service: from options, environment variables and a TOML file, in this order."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from transcf.errors import ParameterError, did_you_mean

#: Environment variables have this prefix before the name of the setting, in capitals.
ENVIRONMENT_PREFIX = "TRANSCF_SERVE_"

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
ADAPTER = TypeAdapter(ServiceSettings)


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
    if config is None and (named := environment.get(f"{ENVIRONMENT_PREFIX}CONFIG")):
        config = Path(named)
    values = {} if config is None else _read(config)
    for variable, value in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable != f"{ENVIRONMENT_PREFIX}CONFIG":
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
            _check_name(name, f"The environment variable {variable}")
            values[name] = value
    values |= {name: value for name, value in options.items() if value is not None}
    if "model" not in values:
        raise ParameterError(
            f"Name a DIR to serve, or give --demo, or set {ENVIRONMENT_PREFIX}MODEL."
        )
    try:
        return ADAPTER.validate_python(values)
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
