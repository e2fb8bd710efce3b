"""Recommendations for everybody, written as they are made."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from transcf.answers.filters import Filters, check_length, check_policy
from transcf.answers.tables import row_recommendations, user_rows
from transcf.data.atomic import whole_file
from transcf.errors import DataError
from transcf.learning.learned import Learned

#: Rows of the table that are held at once.
PIECE_ROWS = 2**20


def write_recommendations(
    learned: Learned, path: Path, users: Any, k: int, filters: Filters
) -> Path:
    """Write the table of `recommend` piece by piece; the file takes its name when it is whole."""
    check_policy(filters.on_unknown)
    length = check_length(k, len(learned.known.items))
    if path.is_dir() or not path.parent.is_dir():
        raise DataError(f"{path} cannot be written: name a file in a folder that exists.")
    rows = user_rows(learned, users, filters.on_unknown)
    step = max(1, PIECE_ROWS // max(1, length))
    with (
        whole_file(path) as unfinished,
        tempfile.TemporaryDirectory(dir=unfinished.parent) as scratch,
    ):
        pieces = []
        for first in _shown(range(0, max(1, len(rows)), step), learned.name):
            pieces.append(Path(scratch) / f"{first}.parquet")
            table = row_recommendations(learned, rows[first : first + step], length, filters)
            table.write_parquet(pieces[-1])
        if len(pieces) == 1:
            pieces[0].rename(unfinished)
        else:
            pl.scan_parquet(pieces).sink_parquet(unfinished)
    return path


def _shown(starts: range, name: str) -> Iterable[int]:
    """The same numbers, with a progress bar where there is a terminal and more than one piece."""
    if len(starts) == 1 or not sys.stderr.isatty():
        return starts
    from rich.console import Console
    from rich.progress import track

    return track(starts, f"{name} recommends", console=Console(stderr=True))
