"""Writing, parsing and validation of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import UnionType
from typing import Any, get_args, get_origin

#: More levels than any file of this library has.
_DEEPEST = 50
#: Integers up to here fit into 64 bits.
_LARGEST = 2**63 - 1


def to_json(value: Any) -> str:
    """Return mappings, sequences, texts and numbers as ASCII JSON; NaN and infinity become null."""
    return json.dumps(_jsonable(value), indent=2)


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(entry) for entry in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


def from_json(text: str | bytes) -> Any:
    """Parse a JSON file of this library.

    Raises a `ValueError` if it is not JSON, has NaN, infinity or lone surrogates in it, or is
    nested too deeply to be used.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    level: list[Any] = [[value]]
    for _ in range(_DEEPEST + 1):
        objects = [entry.values() if isinstance(entry, dict) else entry for entry in level]
        level = [part for entry in objects for part in entry if isinstance(part, dict | list)]
    if level:
        raise ValueError("it is nested too deeply")
    json.dumps(value, ensure_ascii=False).encode()  # raises for text that is not Unicode
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def misfit(value: Any, kind: Any, name: str = "") -> str | None:
    """Return the name of the first part of a JSON value that is not of a type; None if all are.

    Args:
        value: What `from_json` returned.
        kind: `str`, `int` (of 64 bits), `float` (finite), `bool`, `dict`, a list of one of them, a
            union, or an object as a dict of types by key. Keys that end in "?" are optional, and
            others than these are allowed.
        name: Name of the value itself.

    Example:
        >>> kind = {"epoch": int, "figures": {"loss": float, "seconds?": float}}
        >>> misfit({"epoch": 3, "figures": {"loss": 0.5}}, kind)
        >>> misfit({"epoch": 3, "figures": {"loss": "none"}}, kind)
        'figures.loss'
    """
    if not isinstance(kind, dict):
        return None if _is_of(value, kind) else name
    if not isinstance(value, dict):
        return name
    for key, part in kind.items():
        required = key.removesuffix("?")
        inner = f"{name}.{required}" if name else required
        if required in value:
            wrong = misfit(value[required], part, inner)
        else:
            wrong = inner if key == required else None
        if wrong is not None:
            return wrong
    return None


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a type that is no object with known keys."""
    if isinstance(kind, UnionType):
        return any(_is_of(value, part) for part in get_args(kind))
    if get_origin(kind) is list:
        return type(value) is list and all(_is_of(part, get_args(kind)[0]) for part in value)
    if kind is float and type(value) is float:
        return math.isfinite(value)
    if kind in (int, float):
        return type(value) is int and abs(value) <= _LARGEST
    return type(value) is kind
