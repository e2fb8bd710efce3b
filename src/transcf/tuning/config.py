"""Settings of a model in a TOML file: written by `transcf tune`, read by `--config`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from transcf.data.atomic import atomic_write
from transcf.data.paths import path_of
from transcf.errors import ParameterError, shown
from transcf.models.params import Number
from transcf.models.registry import canonical_name, create, current, model_class


@dataclass(frozen=True)
class Config:
    """A model with its settings.

    Attributes:
        model: Name in the registry.
        params: Parameters that are set.
        found: How they were found; for information only.
    """

    model: str
    params: Mapping[str, Any] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path, model: str | None = None) -> Self:
        """Read a file.

        Args:
            path: TOML file.
            model: The expected model, if any.

        Raises:
            ParameterError: The file is missing or malformed, a parameter is not allowed, or the
                settings are those of another model.
        """
        content = _content(path_of(path))
        about = content.get("model")
        if not isinstance(about, dict) or not isinstance(about.get("name"), str):
            raise ParameterError(f'{path} names no model: write [model] and name = "bpr" into it.')
        if unknown := sorted(about.keys() - {"name", "params"}):
            raise ParameterError(
                f"{path} has {unknown[0]!r} under [model], which holds name and params alone."
            )
        params = about.get("params", {})
        if not isinstance(params, dict):
            raise ParameterError(f"{path} has params = {shown(params)}: write [model.params].")
        name, params = current(about["name"], params)
        if model is not None and canonical_name(model) != name:
            raise ParameterError(
                f"{path} has settings of {name}, not of {canonical_name(model)}: name one model."
            )
        rules = model_class(name)._rules()
        params = {
            key: None if value == "none" and isinstance(rules.get(key), Number) else value
            for key, value in params.items()
        }
        create(name, **params)._check_params()
        return cls(name, params, content.get("found", {}))

    def to_toml(self) -> str:
        """Return the text of the file.

        Example:
            >>> print(Config("ease", {"regularization": 50.0}).to_toml())
            [model]
            name = "ease"
            <BLANKLINE>
            [model.params]
            regularization = 50.0
            <BLANKLINE>
        """
        parts = [f"[model]\nname = {_written(self.model)}\n", _table("model.params", self.params)]
        return "\n".join([*parts, *([_table("found", self.found)] if self.found else [])])

    def write(self, path: str | Path) -> Path:
        """Write the file atomically."""
        with atomic_write(path_of(path)) as unfinished:
            unfinished.write_text(self.to_toml(), encoding="utf-8")
        return path_of(path)


def _content(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ParameterError(f"There is no file {path}: `transcf tune --out {path}` writes one.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise ParameterError(f"{path} is not a TOML file: {problem}.") from problem


def _table(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"[{name}]", *(f"{key} = {_written(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    """Format a value for TOML; except for None, as in JSON."""
    return '"none"' if value is None else json.dumps(value)
