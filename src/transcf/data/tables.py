"""Tables in memory (polars, pandas, Arrow, scipy, pairs) as sources of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp
from polars.exceptions import PanicException, PolarsError

from transcf.data.validate import Place, Roles
from transcf.errors import DataError, shown


@dataclass(frozen=True)
class TableSource:
    """A table whose columns are known before it is read."""

    label: str  # what messages call it
    columns: tuple[str, ...]
    read: Callable[[Roles], pl.DataFrame]  # reads the chosen columns and names them by role
    is_text: bool = False  # whether ids are untyped (CSV): integers are told by how they look
    keep_blanks: bool = False  # whether blanks around an id are part of it rather than an error
    has_header: bool = True  # whether the columns have names of their own, not just numbers
    locate: Callable[[int], str] | None = None  # names a row, from 0, as "events.csv: line 7"

    def where(self, row: int) -> str:
        """Name a row, counted from 0, for messages."""
        return self.locate(row) if self.locate else f"{self.label}: row {row + 1:,}"

    def place(self, column: str) -> Place:
        """Return a column as messages name it."""
        return Place(self.label, column, self.where)


def by_role(frame: pl.DataFrame, roles: Roles) -> pl.DataFrame:
    """Select the columns of some roles, and name them so."""
    # Not by expressions, which a forked child cannot evaluate: pairs to score come this way, too.
    return pl.DataFrame([frame[column].alias(role) for role, column in roles.items()])


def frame_source(frame: pl.DataFrame, label: str = "the table", **options: Any) -> TableSource:
    """Wrap a polars table; `options` are attributes of `TableSource`."""
    return TableSource(label, tuple(frame.columns), lambda roles: by_role(frame, roles), **options)


def table_source(table: Any) -> TableSource:
    """Wrap a table of polars, pandas, scipy, or anything with the Arrow interface."""
    if sp.issparse(table):
        return frame_source(_sparse_frame(table), "the sparse matrix")
    if isinstance(table, pl.DataFrame):
        return frame_source(table)
    if type(table).__module__.split(".")[0] == "pandas" and hasattr(table, "columns"):
        return _pandas_source(table)
    reason = " (a single column)" if isinstance(table, pl.Series) else ""
    cause = None
    try:
        if isinstance(table, pl.LazyFrame):
            return frame_source(table.collect())
        if hasattr(table, "__arrow_c_stream__") and not reason:
            return frame_source(pl.DataFrame(table))
    except (PolarsError, PanicException, OSError, TypeError, ValueError) as problem:
        cause, reason = problem, f" ({first_line(problem)})"
    raise DataError(
        f"Data of type {type(table).__name__}{reason} is no event log: give a path, a table of "
        "polars, pandas or pyarrow, an object with the Arrow interface, a scipy sparse matrix or a "
        "list of (user, item) pairs; `read_interactions` says more."
    ) from cause


def first_line(problem: BaseException) -> str:
    """Return the first line of an error's text, without its full stop."""
    return str(problem).strip().split("\n", 1)[0].rstrip(".")


def pairs_source(pairs: Sequence[Any]) -> TableSource:
    """Wrap a list of (user, item) tuples."""
    for number, pair in enumerate(pairs, 1):
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise DataError(
                f"Pair {number:,} is {shown(pair)}, not (user id, item id); `read_interactions` "
                "says what else can be read."
            )
    label = "the list of pairs"
    users = _column_of_objects([user for user, _ in pairs], "user", label)
    items = _column_of_objects([item for _, item in pairs], "item", label)
    return frame_source(pl.DataFrame([users, items]), label, has_header=False)


def _column_of_objects(values: Sequence[Any], column: str, label: str) -> pl.Series:
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
            "its values all of one kind, such as integers or text."
        )
    try:
        return pl.Series(column, plain, strict=False)
    except (PolarsError, PanicException, TypeError, ValueError, OverflowError) as problem:
        kind = next(iter(kinds)).__name__
        raise DataError(
            f"{label}: column {column!r} holds {kind} values that cannot be read: make them "
            "numbers, text or dates."
        ) from problem


def _in_utc(values: Sequence[Any], column: str, label: str) -> list[datetime | None]:
    """Convert times of different zones to UTC; either all of them have a zone or none."""
    naive = [row for row, value in enumerate(values, 1) if value and value.tzinfo is None]
    if len(naive) == sum(value is not None for value in values):
        return list(values)
    if naive:
        raise DataError(
            f"{label}: row {naive[0]:,} of column {column!r} has no time zone while others have "
            "one; give all of them a zone, or none."
        )
    return [None if v is None else v.astimezone(UTC).replace(tzinfo=None) for v in values]


def _sparse_frame(matrix: Any) -> pl.DataFrame:
    """Return stored cells as events; values are ratings unless all of them are one."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise DataError(
            f"The sparse matrix has {matrix.ndim} dimensions and values of type {matrix.dtype}: "
            "it needs users as rows, items as columns, and real numbers as values."
        )
    cells = matrix.tocoo()
    columns = {"user_id": cells.row.astype(np.int64), "item_id": cells.col.astype(np.int64)}
    if not np.all(cells.data == 1):
        columns["rating"] = cells.data.astype(np.float32)
    return pl.DataFrame(columns)


def _pandas_source(table: Any) -> TableSource:
    names = tuple(map(str, table.columns))

    def read(roles: Roles) -> pl.DataFrame:
        if double := next((name for name in roles.values() if names.count(name) > 1), None):
            raise DataError(f"The table names column {double!r} twice; rename one of them.")
        columns = {role: table.iloc[:, names.index(name)] for role, name in roles.items()}
        return pl.DataFrame({role: _pandas_column(c, roles[role]) for role, c in columns.items()})

    return TableSource("the table", names, read)


def _pandas_column(column: Any, name: str) -> pl.Series:
    """Convert one column without pyarrow, which pandas does not require."""
    kind = getattr(column.dtype, "kind", "O")
    if kind == "M":
        if getattr(column.dtype, "tz", None) is not None:
            column = column.dt.tz_convert("UTC").dt.tz_localize(None)
        dates = column.to_numpy()
        if np.datetime_data(dates.dtype)[0] != "s":
            return pl.Series(dates)
        return pl.Series(dates.astype("datetime64[ms]"))  # polars has no seconds
    if kind in "biuf" and not column.isna().any():
        return pl.Series(column.to_numpy(dtype=getattr(column.dtype, "numpy_dtype", None)))
    if kind == "f":
        return pl.Series(column.to_numpy(dtype=np.float64, na_value=np.nan))
    values = column.to_numpy(dtype=object, copy=True)
    values[column.isna().to_numpy()] = None
    return _column_of_objects(values.tolist(), name, "the table")
