"""Putting events in the order of users and items, on several cores if there are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.ids import Rows

#: Events from which on two ranges are worked on side by side.
_MANY = 1_000_000
_Offsets: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ordered:
    """Events in order, each pair once.

    Attributes:
        indptr: (n_users + 1,) offsets of the users.
        items: (n,) item rows.
        positions: (n,) the place of each event in the source.
        ratings: (n,) or None.
        timestamps: (n,) or None.
    """

    indptr: _Offsets
    items: Rows
    positions: npt.NDArray[np.int64]
    ratings: npt.NDArray[np.float32] | None
    timestamps: npt.NDArray[np.int64] | None


def order_by_user(
    users: Rows,
    items: Rows,
    n_users: int,
    n_items: int,
    ratings: npt.NDArray[np.float32] | None,
    timestamps: npt.NDArray[np.int64] | None,
) -> Ordered:
    """Order events by user and item, and keep one of each pair; see `Interactions.from_rows`.

    The result does not depend on the number of ranges that are worked on side by side.
    """
    from transcf.kernels.sorting import merge_repeats

    ranges = 2 if len(users) >= _MANY else 1
    no_times, no_ratings = np.empty(0, np.int64), np.empty(0, np.float32)
    with ThreadPoolExecutor(ranges) as pool:
        indptr, packed = _sort(users, items, n_users, n_items, pool, ranges)

        def merge(first: int, end: int) -> Ordered:
            offsets, columns, kept = merge_repeats(
                indptr[first : end + 1],
                packed,
                no_times if timestamps is None else timestamps,
                no_ratings if ratings is None else ratings,
            )
            return Ordered(
                offsets,
                columns,
                kept,
                None if ratings is None else ratings.take(kept),
                None if timestamps is None else timestamps.take(kept),
            )

        parts = list(pool.map(merge, *_bounds(indptr, ranges)))
    return parts[0] if ranges == 1 else _join(parts)


def _sort(
    users: Rows, items: Rows, n_users: int, n_items: int, pool: ThreadPoolExecutor, ranges: int
) -> tuple[_Offsets, npt.NDArray[np.uint64]]:
    """Sort by user, item and place; return offsets of users, and item and event packed."""
    from transcf.kernels import sorting

    cuts = [len(users) * part // ranges for part in range(ranges + 1)]
    firsts, ends = cuts[:-1], cuts[1:]
    counts = pool.map(
        lambda first, end: sorting.count_keys(items[first:end], n_items), firsts, ends
    )
    starts, places = _places(list(counts))
    by_item = np.empty(len(users), dtype=np.uint64)
    for _ in pool.map(
        lambda first, end, place: sorting.place_by_item(users, items, first, end, place, by_item),
        firsts,
        ends,
        places,
    ):
        pass
    firsts, ends = _bounds(starts, ranges)
    counts = pool.map(
        lambda first, end: sorting.count_owners(by_item[starts[first] : starts[end]], n_users),
        firsts,
        ends,
    )
    indptr, places = _places(list(counts))
    packed = np.empty(len(users), dtype=np.uint64)
    for _ in pool.map(
        lambda first, end, place: sorting.place_by_user(by_item, starts, first, end, place, packed),
        firsts,
        ends,
        places,
    ):
        pass
    return indptr, packed


def _places(counts: Sequence[_Offsets]) -> tuple[_Offsets, list[_Offsets]]:
    """Return offsets of the keys, and for each range where its share of each key goes."""
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sum(counts))])
    places = [starts[:-1].copy()]
    for count in counts[:-1]:
        places.append(places[-1] + count)
    return starts, places


def _bounds(starts: _Offsets, ranges: int) -> tuple[list[int], list[int]]:
    """Cut keys into ranges with about as many entries each; return first and end keys."""
    shares = np.arange(1, ranges) * starts[-1] // ranges
    cuts = [0, *np.searchsorted(starts, shares).tolist(), len(starts) - 1]
    return cuts[:-1], cuts[1:]


def _join(parts: Sequence[Ordered]) -> Ordered:
    """Put ranges of users one after the other."""

    def joined(pick: Callable[[Ordered], Any]) -> Any:
        values = [pick(part) for part in parts]
        return None if values[0] is None else np.concatenate(values)

    starts = np.cumsum([0, *(len(part.positions) for part in parts)])
    offsets = [part.indptr[1:] + start for part, start in zip(parts, starts, strict=False)]
    return Ordered(
        np.concatenate([np.zeros(1, dtype=np.int64), *offsets]),
        joined(lambda part: part.items),
        joined(lambda part: part.positions),
        joined(lambda part: part.ratings),
        joined(lambda part: part.timestamps),
    )
