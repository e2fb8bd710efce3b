"""Recommendations for everybody, written as they are made."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from transcf.answers.filters import Filters, check_length
from transcf.answers.people import People, people_recommendations
from transcf.data.writing import check_file, write_pieces
from transcf.learning.learned import Learned

#: Rows of the table that are held at once.
PIECE_ROWS = 2**20


def write_recommendations(
    learned: Learned, path: Path, users: Any, k: int, filters: Filters
) -> int:
    """Write the table of `recommend` piece by piece to a file of any form; returns its rows."""
    check_file(path)
    return write_pieces(recommendation_pieces(learned, users, k, filters), path)


def recommendation_pieces(
    learned: Learned, users: Any, k: int, filters: Filters
) -> Iterator[pl.DataFrame]:
    """Yield the table of `recommend` in pieces, at least one, with a progress bar for many."""
    length = check_length(k, len(learned.known.items))
    people = People.of(learned, users, filters)
    step = max(1, PIECE_ROWS // max(1, length))
    for first in _shown(range(0, max(1, len(people)), step), learned.name):
        yield people_recommendations(learned, people.part(first, first + step), length, filters)


def _shown(starts: range, name: str) -> Iterable[int]:
    """The same numbers, with a progress bar where there is a terminal and more than one piece."""
    if len(starts) == 1 or not sys.stderr.isatty():
        return starts
    from rich.console import Console
    from rich.progress import track

    return track(starts, f"{name} recommends", console=Console(stderr=True))
