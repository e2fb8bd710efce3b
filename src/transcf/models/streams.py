"""Recommendations for everybody, written as they are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from transcf.data.writing import check_file, write_pieces
from transcf.models.fitted import FittedScorer
from transcf.models.item_filters import Filters, check_length
from transcf.models.progress import is_watched, progress_console
from transcf.models.resolve_users import UserGroup, people_recommendations

#: Rows of the table that are held at once.
PIECE_ROWS = 2**20


def write_recommendations(
    learned: FittedScorer, path: Path, users: Any, k: int, filters: Filters
) -> int:
    """Write the table of `recommend` piece by piece to a file of any form; returns its rows."""
    check_file(path)
    return write_pieces(recommendation_pieces(learned, users, k, filters), path)


def write_neighbours(
    learned: FittedScorer, paths: Sequence[Path], first: int, size: int, k: int, filters: Filters
) -> None:
    """Write the lists of neighbouring users, which are made at once, to several files.

    Files that are there stay as they are.

    Args:
        learned: What recommends.
        paths: The files.
        first: Number of the first user among those with training interactions.
        size: Users of a file.
        k: Items of a list.
        filters: What to leave out.
    """
    length = check_length(k, len(learned.known.items))
    everybody = UserGroup.of(learned, None, filters)
    people = everybody.part(first, first + size * len(paths))
    table = people_recommendations(learned, people, length, filters)
    # Users come in the order of their ids; some may have no list.
    starts = learned.known.users.ids(people.rows[size::size])
    cuts = [0, *table["user_id"].search_sorted(starts), len(table)]
    for path, (start, end) in zip(paths, pairwise(cuts), strict=True):
        if not path.exists():
            write_pieces([table[start:end]], path)


def recommendation_pieces(
    learned: FittedScorer, users: Any, k: int, filters: Filters
) -> Iterator[pl.DataFrame]:
    """Yield the table of `recommend` in pieces, at least one, with a progress bar for many."""
    length = check_length(k, len(learned.known.items))
    people = UserGroup.of(learned, users, filters)
    step = max(1, PIECE_ROWS // max(1, length))
    for first in _shown(range(0, max(1, len(people)), step), learned.name):
        yield people_recommendations(learned, people.part(first, first + step), length, filters)


def _shown(starts: range, name: str) -> Iterable[int]:
    """The same numbers, with a progress bar if it is watched and there is more than one piece."""
    if len(starts) == 1 or not is_watched():
        return starts
    from rich.progress import track

    return track(starts, f"{name} recommends", console=progress_console())
