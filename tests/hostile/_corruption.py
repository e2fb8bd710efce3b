"""Files of models and runs with one part changed and all checksums right again."""

from __future__ import annotations

import copy
import hashlib
import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from safetensors.numpy import save

Contents = dict[str, bytes]
Way = tuple[Any, ...]

#: Stands for a key that is left out.
GONE = "left out"
#: Is replaced by lists in lists, more than any parser takes.
NESTED = "nested 10,000 deep"
#: One value of every kind that JSON has, and some that it has not.
KINDS: dict[str, Any] = {
    "null": None, "bool": True, "int": 7, "negative": -1, "huge int": 10**400, "float": 0.5,
    "nan": float("nan"), "string": "x", "empty": "", "surrogate": "\ud800", "list": [1],
    "dict": {"a": 1}, "nested 500 deep": json.loads("[" * 500 + "]" * 500), NESTED: NESTED,
    GONE: GONE,
}  # fmt: skip


def places(value: Any, path: Way = ()) -> list[Way]:
    """All places of a JSON value, by their keys."""
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        return [path, *(p for key in keys for p in places(value[key], (*path, key)))]
    return [path]


def changed(value: Any, way: Way, new: Any) -> Any:
    """Return a copy of a JSON value with another value at one place."""
    made = copy.deepcopy(value)
    inside = made
    for key in way[:-1]:
        inside = inside[key]
    if new is GONE:
        del inside[way[-1]]
    else:
        inside[way[-1]] = new
    return made


def nested(text: bytes) -> bytes:
    """Put the lists in lists in their place."""
    return text.replace(json.dumps(NESTED).encode(), b"[" * 10_000 + b"]" * 10_000)


def signed(about: Any) -> bytes:
    """Write `model.json` with its own checksum made right, as a forger would."""
    if isinstance(about, dict):
        about = {key: value for key, value in about.items() if key != "sha256"}
        text = json.dumps(about, sort_keys=True)
        about["sha256"] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return nested(json.dumps(about).encode())


def with_file(contents: Contents, file: str, content: bytes) -> Contents:
    """Return a model folder with another file, and the checksums of it."""
    about = json.loads(contents["model.json"])
    digests = [hashlib.sha256(content).hexdigest()]
    about["files"][file] = {"bytes": len(content), "sha256": digests}
    return {**contents, file: content, "model.json": signed(about)}


def forged_tensors(arrays: dict[str, npt.NDArray[Any]]) -> Iterator[tuple[str, bytes]]:
    """Yield safetensors files with one array changed, and what was changed."""
    for name, array in arrays.items():
        others = {
            "other dtype": array.astype(np.int64 if array.dtype == np.float64 else np.float64),
            "bytes": array.astype(np.uint8, casting="unsafe"),
            "a row less": array[:-1] if array.ndim else array.reshape(1),
            "one more dimension": array[None],
            "flat": array.reshape(-1),
            "empty": array.reshape(-1)[:0],
            "negative": _filled(array, -1),
            "large": _filled(array, np.finfo(array.dtype).max if array.dtype.kind == "f"
                             else np.iinfo(array.dtype).max if array.dtype.kind in "iu" else 1),
            "nan": _filled(array, np.nan) if array.dtype.kind == "f" else array[:0],
            "inf": _filled(array, np.inf) if array.dtype.kind == "f" else array[:0],
        }  # fmt: skip
        for what, other in others.items():
            forged = {key: np.ascontiguousarray(entry) for key, entry in arrays.items()}
            yield f"{name}: {what}", save(forged | {name: np.ascontiguousarray(other)})
        yield f"{name}: gone", save({key: entry for key, entry in arrays.items() if key != name})
    yield "one more", save({**arrays, "more": np.zeros(3)})


def _filled(array: npt.NDArray[Any], value: Any) -> npt.NDArray[Any]:
    """Return an array with another value in its first place."""
    made = array.copy()
    with np.errstate(all="ignore"):
        made.reshape(-1)[:1] = np.asarray(value).astype(array.dtype, casting="unsafe")
    return made


def forged_tables(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield Parquet files with one column changed, and what was changed."""
    table = pl.read_parquet(content)
    for name in table.columns:
        column = table[name]
        odd = [pl.Float64, pl.Int8, pl.String, pl.Boolean, pl.Null, pl.Binary, pl.Date, pl.UInt64]
        others = {str(kind): _cast(column, kind) for kind in odd}
        others |= {
            "lists": pl.Series([[1]] * len(column)),
            "structs": pl.Series([{"a": 1}] * len(column)),
            "nulls": pl.Series([None, *column[1:]], dtype=column.dtype),
            "backwards": column.reverse(),
            "all the same": pl.Series([column[0]] * len(column), dtype=column.dtype),
            "categories": column.cast(pl.String).cast(pl.Categorical),
        }
        if column.dtype.is_integer():
            for value in (-1, 2**31 - 1):
                others[f"{value}"] = pl.Series([*column[:-1], value], dtype=column.dtype)
        for what, other in others.items():
            yield f"{name}: {what}", _parquet(table.with_columns(other.alias(name)))
        yield f"{name}: gone", _parquet(table.drop(name))
    yield "empty", _parquet(table[:0])
    yield "a row less", _parquet(table[:-1])
    yield "twice", _parquet(pl.concat([table, table]))
    yield "a column more", _parquet(table.with_columns(more=1))


def _cast(column: pl.Series, kind: Any) -> pl.Series:
    try:
        return column.cast(kind, strict=False)
    except pl.exceptions.PolarsError:
        return pl.Series([None] * len(column), dtype=kind)


def _parquet(table: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    table.write_parquet(file)
    return file.getvalue()
