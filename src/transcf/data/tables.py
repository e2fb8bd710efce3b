"""Tables in memory, whoever made them, as one kind of source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.sparse as sp
from polars.exceptions import PanicException, PolarsError

from transcf.data.columns import Roles
from transcf.errors import DataError

#: Seconds that lie beyond all years and still fit as microseconds.
_FAR_SECONDS = 2**42


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
        has_header: Whether the columns have names of their own, not just numbers.
        locate: Names the place of a row, counted from 0, as in "events.csv: line 7"; None names
            the label and the row.
    """

    label: str
    columns: tuple[str, ...]
    read: Callable[[Roles], pl.DataFrame]
    is_text: bool = False
    keep_blanks: bool = False
    has_header: bool = True
    locate: Callable[[int], str] | None = None

    def where(self, row: int) -> str:
        """Name the place of a row, counted from 0."""
        return self.locate(row) if self.locate else f"{self.label}: row {row + 1:,}"


def table_source(table: Any) -> Source:
    """Wrap a table of polars, pandas, scipy, or anything that speaks the Arrow interface."""
    if sp.issparse(table):
        return frame_source(_sparse_frame(table), "the sparse matrix")
    if isinstance(table, pl.DataFrame):
        return frame_source(table, "the table")
    if type(table).__module__.split(".")[0] == "pandas" and hasattr(table, "columns"):
        return _pandas_source(table)
    if isinstance(table, pl.LazyFrame) or hasattr(table, "__arrow_c_stream__"):
        return frame_source(_frame_of(table), "the table")
    raise _no_log(table)


def _frame_of(table: Any) -> pl.DataFrame:
    """Fetch what is behind a query or the Arrow interface."""
    if isinstance(table, pl.Series):
        raise _no_log(table, "a single column")
    try:
        return table.collect() if isinstance(table, pl.LazyFrame) else pl.DataFrame(table)
    except (PolarsError, PanicException, OSError, TypeError, ValueError) as problem:
        raise _no_log(table, str(problem).strip().split("\n", 1)[0].rstrip(".")) from problem


def _no_log(table: Any, reason: str | None = None) -> DataError:
    shown = type(table).__name__ + (f" ({reason})" if reason else "")
    return DataError(
        f"Data of type {shown} is no event log: give a path, a table of polars, pandas or pyarrow, "
        f"an object with the Arrow interface, a scipy sparse matrix or a list of (user, item) "
        f"pairs; `read_interactions` says more."
    )


def pairs_source(pairs: Sequence[Any]) -> Source:
    """Wrap a list of (user, item) tuples."""
    wrong = next((n for n, pair in enumerate(pairs) if not _is_pair(pair)), None)
    if wrong is not None:
        shown = repr(pairs[wrong])
        shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
        raise DataError(
            f"Pair {wrong + 1:,} is {shown}, not (user id, item id); `read_interactions` says "
            f"what else can be read."
        )
    columns = {
        "user": column_of_objects([pair[0] for pair in pairs], "user", "the list of pairs"),
        "item": column_of_objects([pair[1] for pair in pairs], "item", "the list of pairs"),
    }
    return replace(frame_source(pl.DataFrame(columns), "the list of pairs"), has_header=False)


def column_of_objects(values: Sequence[Any], column: str, label: str) -> pl.Series:
    """Make a column of Python objects, which must be of one kind: integers, text, or times."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    kinds = {type(value) for value in plain if value is not None}
    if kinds and all(issubclass(kind, datetime) for kind in kinds):
        plain = _in_utc(plain, column, label)
    elif len(kinds) > 1 and not kinds <= {int, float}:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        first = next(value for value in plain if value is not None)
        odd = next(n for n, v in enumerate(plain) if v is not None and type(v) is not type(first))
        raise DataError(
            f"{label}: column {column!r} mixes {names} (row {odd + 1:,} is {plain[odd]!r}); make "
            f"its values all of one kind, such as integers or text."
        )
    try:
        return pl.Series(column, plain, strict=False)
    except (PolarsError, PanicException, TypeError, ValueError, OverflowError) as problem:
        kind = next(iter(kinds)).__name__
        raise DataError(
            f"{label}: column {column!r} holds {kind} values that cannot be read: make them "
            f"numbers, text or dates."
        ) from problem


def _in_utc(values: Sequence[Any], column: str, label: str) -> list[datetime | None]:
    """Bring times of different zones to one; those without a zone have no place among them."""
    naive = [value is not None and value.tzinfo is None for value in values]
    if any(naive) and not all(n or v is None for n, v in zip(naive, values, strict=True)):
        row = naive.index(True)
        raise DataError(
            f"{label}: row {row + 1:,} of column {column!r} has no time zone while others have "
            f"one; give all of them a zone, or none."
        )
    if any(naive):
        return list(values)
    return [None if v is None else v.astimezone(UTC).replace(tzinfo=None) for v in values]


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def by_role(frame: pl.DataFrame, roles: Roles) -> pl.DataFrame:
    """Choose the columns of some roles, and name them so."""
    # Not by expressions, which a forked child cannot do: pairs to score come this way, too.
    return pl.DataFrame([frame[column].alias(role) for role, column in roles.items()])


def frame_source(frame: pl.DataFrame, label: str, *, is_text: bool = False) -> Source:
    """Wrap a polars table."""

    def read(roles: Roles) -> pl.DataFrame:
        return by_role(frame, roles)

    return Source(label, tuple(frame.columns), read, is_text)


def _sparse_frame(matrix: Any) -> pl.DataFrame:
    """Stored cells as events; values are ratings unless all of them are one."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise DataError(
            f"The sparse matrix has {matrix.ndim} dimensions and values of type {matrix.dtype}: "
            f"it needs users as rows, items as columns, and real numbers as values."
        )
    cells = matrix.tocoo()
    columns = {
        "user_id": np.asarray(cells.row, dtype=np.int64),
        "item_id": np.asarray(cells.col, dtype=np.int64),
    }
    if not np.all(cells.data == 1):
        columns["rating"] = np.asarray(cells.data, dtype=np.float32)
    return pl.DataFrame(columns)


def _pandas_source(table: Any) -> Source:
    names = tuple(map(str, table.columns))

    def read(roles: Roles) -> pl.DataFrame:
        columns = {}
        for role, name in roles.items():
            if names.count(name) > 1:
                raise DataError(f"The table names column {name!r} twice; rename one of them.")
            columns[role] = _pandas_column(table.iloc[:, names.index(name)], name)
        return pl.DataFrame(columns)

    return Source("the table", names, read)


def _pandas_column(column: Any, name: str) -> pl.Series:
    """Convert one column without pyarrow, which pandas can do without."""
    kind = getattr(column.dtype, "kind", "O")
    if kind == "M":
        if getattr(column.dtype, "tz", None) is not None:
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        return _pandas_dates(column.to_numpy())
    if kind in "biuf" and not column.isna().any():
        return pl.Series(column.to_numpy(dtype=getattr(column.dtype, "numpy_dtype", None)))
    if kind == "f":
        return pl.Series(column.to_numpy(dtype=np.float64, na_value=np.nan))
    missing = column.isna().to_numpy()
    values = column.to_numpy(dtype=object, copy=True)
    values[missing] = None
    return column_of_objects(values.tolist(), name, "the table")


def _pandas_dates(dates: npt.NDArray[np.datetime64]) -> pl.Series:
    """Convert dates of any unit; those too far away for microseconds stay too far away."""
    if np.datetime_data(dates.dtype)[0] != "s":
        return pl.Series(dates)
    seconds = dates.view(np.int64).clip(-_FAR_SECONDS, _FAR_SECONDS)
    near = (seconds * 1_000_000).view("datetime64[us]")
    near[np.isnat(dates)] = np.datetime64("NaT")
    return pl.Series(near)
