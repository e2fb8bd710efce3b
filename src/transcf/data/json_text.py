"""JSON of whatever tables and models hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(value: Any, *, compact: bool = False) -> str:
    """Write a value as JSON, in ASCII; numbers that JSON does not have become null.

    Args:
        value: Mappings, sequences, texts and numbers.
        compact: Whether it is written in one line, for machines alone.

    Example:
        >>> print(to_json([1.5, float("nan")]))
        [
          1.5,
          null
        ]
    """
    if compact:
        return json.dumps(_jsonable(value), separators=(",", ":"))
    return json.dumps(_jsonable(value), indent=2)


def _jsonable(value: Any) -> Any:
    """Turn mappings, sequences and numpy scalars into what `json` knows."""
    if isinstance(value, Mapping):
        return {str(key): _jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(entry) for entry in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)
