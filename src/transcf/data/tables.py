"""Tables in memory, whoever made them, as one kind of source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from transcf.data.columns import Roles
from transcf.errors import DataError


@dataclass(frozen=True)
class Source:
    """A table that is known by its columns before it is read.

    Attributes:
        label: What messages call it.
        columns: Names of its columns.
        read: Reads the chosen columns and names them by role.
        is_text: Whether ids come as text without a type (CSV), so that integers among them have
            to be told by how they are written.
        keep_blanks: Whether blanks around an id are part of it rather than an error.
    """

    label: str
    columns: tuple[str, ...]
    read: Callable[[Roles], pl.DataFrame]
    is_text: bool = False
    keep_blanks: bool = False


def table_source(table: Any) -> Source:
    """Wrap a table of polars, pandas, scipy, or anything that speaks the Arrow interface."""
    if sp.issparse(table):
        return frame_source(_sparse_frame(table), "the sparse matrix")
    if isinstance(table, pl.LazyFrame):
        table = table.collect()
    if isinstance(table, pl.DataFrame):
        return frame_source(table, "the table")
    if type(table).__module__.split(".")[0] == "pandas" and hasattr(table, "columns"):
        return _pandas_source(table)
    if hasattr(table, "__arrow_c_stream__"):
        return frame_source(pl.DataFrame(table), "the table")
    raise DataError(
        f"A {type(table).__name__} is not a table: give a path, a polars, pandas or pyarrow table, "
        f"an object with the Arrow interface, or a scipy sparse matrix."
    )


def pairs_source(pairs: Sequence[Any]) -> Source:
    """Wrap a list of (user, item) tuples."""
    wrong = next((n for n, pair in enumerate(pairs) if not _is_pair(pair)), None)
    if wrong is not None:
        raise DataError(f"Pair {wrong + 1} is {pairs[wrong]!r}, not (user id, item id).")
    columns = {
        "user": ids_from_objects([pair[0] for pair in pairs], "user", "the list of pairs"),
        "item": ids_from_objects([pair[1] for pair in pairs], "item", "the list of pairs"),
    }
    return frame_source(pl.DataFrame(columns), "the list of pairs")


def ids_from_objects(values: Sequence[Any], column: str, label: str) -> pl.Series:
    """Make a column of Python objects, which must be all integers or all text."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    kinds = {type(value) for value in plain if value is not None}
    if len(kinds) > 1 and not kinds <= {int, float}:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        odd = next(n for n, value in enumerate(plain) if type(value) not in (type(plain[0]), None))
        raise DataError(
            f"{label}: column {column!r} mixes {names} (row {odd + 1} is {plain[odd]!r}); make the "
            f"ids all integers or all text."
        )
    return pl.Series(column, plain, strict=False)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def frame_source(frame: pl.DataFrame, label: str, *, is_text: bool = False) -> Source:
    """Wrap a polars table."""

    def read(roles: Roles) -> pl.DataFrame:
        return frame.select(pl.col(column).alias(role) for role, column in roles.items())

    return Source(label, tuple(frame.columns), read, is_text)


def _sparse_frame(matrix: Any) -> pl.DataFrame:
    """Stored cells as events; values are ratings unless all of them are one."""
    cells = matrix.tocoo()
    columns = {
        "user_id": np.asarray(cells.row, dtype=np.int64),
        "item_id": np.asarray(cells.col, dtype=np.int64),
    }
    if not np.all(cells.data == 1):
        columns["rating"] = np.asarray(cells.data, dtype=np.float32)
    return pl.DataFrame(columns)


def _pandas_source(table: Any) -> Source:
    def read(roles: Roles) -> pl.DataFrame:
        return pl.DataFrame(
            {role: _pandas_column(table[column], column) for role, column in roles.items()}
        )

    return Source("the table", tuple(map(str, table.columns)), read)


def _pandas_column(column: Any, name: str) -> pl.Series:
    """Convert one column without pyarrow, which pandas can do without."""
    kind = getattr(column.dtype, "kind", "O")
    if kind == "M":
        if getattr(column.dtype, "tz", None) is not None:
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        return pl.Series(column.to_numpy().astype("datetime64[us]"))
    if kind in "biuf" and not column.isna().any():
        return pl.Series(column.to_numpy(dtype=getattr(column.dtype, "numpy_dtype", None)))
    if kind == "f":
        return pl.Series(column.to_numpy(dtype=np.float64, na_value=np.nan))
    missing = column.isna().to_numpy()
    values = column.to_numpy(dtype=object, copy=True)
    values[missing] = None
    return ids_from_objects(values.tolist(), name, "the table")
