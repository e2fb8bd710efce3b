"""Writing, parsing and validation of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

#: More levels than any file of this library has.
_DEEPEST = 50
#: Integers up to here fit into 64 bits.
_LARGEST = 2**63 - 1


def to_json(value: Any, *, compact: bool = False) -> str:
    """Return mappings, sequences, texts and numbers as ASCII JSON; NaN and infinity become null."""
    layout: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 2}
    return json.dumps(_jsonable(value), **layout)


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
        kind: `str`, `int` (of 64 bits), `float` (finite), `bool`, `None`, `Any`, a literal or a
            union of them, a list or dict of them, or an object by its keys: a `TypedDict`, which
            allows no other keys, or a plain dict of types, which does.
        name: Name of the value itself.

    Example:
        >>> kind = {"epoch": int, "figures": dict[str, float]}
        >>> misfit({"epoch": 3, "figures": {"loss": 0.5}}, kind)
        >>> misfit({"epoch": 3, "figures": {"loss": "none"}}, kind)
        'figures.loss'
    """
    origin, parts = get_origin(kind) or kind, get_args(kind)
    kinds: dict[Any, Any]
    if origin is NotRequired:
        return misfit(value, parts[0], name)
    if origin in (Union, UnionType):
        found = [misfit(value, part, name) for part in parts]
        return None if None in found else found[0]
    if isinstance(kind, dict) or is_typeddict(kind):
        if not isinstance(value, dict):
            return name
        kinds = kind if isinstance(kind, dict) else get_type_hints(kind)
        optional = {key for key, part in kinds.items() if get_origin(part) is NotRequired}
        missing = kinds.keys() - optional - getattr(kind, "__optional_keys__", set()) - value.keys()
        others = value.keys() - kinds.keys() if is_typeddict(kind) else set()
        if missing or others:
            return _joined(name, min(missing or others))
        kinds = {key: part for key, part in kinds.items() if key in value}
    elif origin is dict and isinstance(value, dict):
        kinds = dict.fromkeys(value, parts[1])
    elif origin is list and isinstance(value, list):
        kinds = dict.fromkeys(range(len(value)), parts[0])
    else:
        return None if _is_of(value, origin, parts) else name
    wrong = (misfit(value[key], part, _joined(name, key)) for key, part in kinds.items())
    return next((part for part in wrong if part is not None), None)


def _is_of(value: Any, kind: Any, literals: tuple[Any, ...]) -> bool:
    """Whether a value is of a type that has no parts."""
    if kind is Literal:
        return isinstance(value, str) and value in literals
    if kind is float and type(value) is float:
        return math.isfinite(value)
    if kind in (int, float):
        return type(value) is int and abs(value) <= _LARGEST
    return kind is Any or type(value) is (NoneType if kind is None else kind)


def _joined(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)
