"""Rows of Parquet files, some at a time: what of a log one process holds while it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PanicException, PolarsError

from transcf.data.files import (
    check_kinds,
    check_names,
    file_source,
    parquet_schema,
    unreadable,
)
from transcf.data.paths import PARQUET, files_of
from transcf.data.tables import by_role
from transcf.data.validate import ROLES, Column, Place, Role, Roles, find_columns
from transcf.errors import DataError

#: Rows that are read at once.
PIECE_ROWS = 1 << 21


@dataclass(frozen=True)
class Chunk:
    """Neighbouring rows of a file.

    Attributes:
        number: Of the piece, from 0.
        path: The file.
        first: The first row in it.
        rows: How many.
        before: Rows of the whole log before the first one.
    """

    number: int
    path: Path
    first: int
    rows: int
    before: int

    def read(self, roles: Roles) -> pl.DataFrame:
        """Read the columns of some roles, and name them so."""
        columns = list(roles.values())
        try:
            lazy = (
                pl.scan_parquet(self.path, glob=False).select(columns).slice(self.first, self.rows)
            )
            return by_role(lazy.collect(), roles)
        except (PolarsError, PanicException, OSError) as problem:
            raise unreadable(self.path, "Parquet", problem) from problem

    def place(self, column: str) -> Place:
        """Say where a column stands, for messages."""
        return Place(str(self.path), column, lambda row: f"{self.path}: row {self._at(row):,}")

    def _at(self, row: int) -> int:
        return self.first + row + 1


def find_chunks(
    source: Any, given: Mapping[Role, Column], piece_rows: int = PIECE_ROWS
) -> tuple[Roles, list[Chunk]]:
    """Find columns and rows of Parquet files; no event is read yet.

    Args:
        source: A folder, a file, a pattern, or a list of them.
        given: Columns as callers name them.
        piece_rows: Most rows of a piece.

    Returns:
        The column of each role, and the pieces in the order of the log.

    Raises:
        DataError: There are other files than Parquet, or their columns do not fit together.
    """
    specs = [source] if isinstance(source, str | PathLike) else list(source)
    paths = [path for spec in specs for path in files_of(spec)]
    other = next((path for path in paths if path.suffix.lower() not in PARQUET), None)
    if other is not None and other.exists():
        raise DataError(
            f"{other} is no Parquet file: only Parquet is prepared in parts; write the log as "
            f"Parquet, or prepare it without partitions."
        )
    sources = [file_source(path) for path in paths]
    roles = find_columns(sources[0].columns, given, sources[0].label, ROLES)
    check_names(sources, roles)
    schemas = [parquet_schema(path) for path in paths]
    for column in roles.values():
        check_kinds(column, [schema[column] for schema in schemas], sources)
    sizes = [pl.scan_parquet(path, glob=False).select(pl.len()).collect().item() for path in paths]
    if not sum(sizes):
        raise DataError(f"{sources[0].label} is empty: it has columns but no rows.")
    befores = accumulate(sizes, initial=0)
    spans = [
        (path, first, min(piece_rows, size - first), before + first)
        for path, size, before in zip(paths, sizes, befores, strict=False)
        for first in range(0, size, piece_rows)
    ]
    return roles, [Chunk(number, *span) for number, span in enumerate(spans)]
