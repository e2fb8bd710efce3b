"""Sorting events by user and item and merging repeated pairs.

Large logs are sorted by compiled kernels in two threads, others by numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import offsets
from transcf.data.ids import MANY_EVENTS, Rows

#: Ranges that are processed in parallel.
_RANGES = 2
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
    """Order events by user and item, and keep one of each pair; see `Interactions.from_rows`."""
    order = _order_many if len(users) >= MANY_EVENTS else _order_few
    return order(users, items, n_users, n_items, ratings, timestamps)


def _order_few(
    users: Rows,
    items: Rows,
    n_users: int,
    n_items: int,
    ratings: npt.NDArray[np.float32] | None,
    timestamps: npt.NDArray[np.int64] | None,
) -> Ordered:
    """Order events by a stable sort; the winner of each pair is its last event."""
    pairs = users.astype(np.int64) * n_items + items
    events = np.argsort(pairs, kind="stable")
    repeated = pairs[events[1:]] == pairs[events[:-1]]
    if repeated.any():
        keys = [pairs]  # the last key of `lexsort` is the first to sort by
        if timestamps is not None:
            keys.insert(0, timestamps)
        if ratings is not None:  # any rating is above NaN
            is_known = ~np.isnan(ratings)
            keys = [np.where(is_known, ratings, 0), is_known, *keys]
        events = np.lexsort(keys)
        events = events[~np.append(repeated, False)]
    return Ordered(
        offsets(np.bincount(users[events], minlength=n_users)),
        items[events],
        events,
        None if ratings is None else ratings[events],
        None if timestamps is None else timestamps[events],
    )


def _order_many(
    users: Rows,
    items: Rows,
    n_users: int,
    n_items: int,
    ratings: npt.NDArray[np.float32] | None,
    timestamps: npt.NDArray[np.int64] | None,
) -> Ordered:
    """Order events by kernels; the result does not depend on the number of ranges."""
    from transcf.kernels import sorting

    times = np.empty(0, np.int64) if timestamps is None else timestamps
    scores = np.empty(0, np.float32) if ratings is None else ratings
    with ThreadPoolExecutor(_RANGES) as pool:
        indptr, packed, scratch = _sort(users, items, n_users, n_items, pool)

        def merge(first: int, end: int) -> _Offsets:
            return sorting.merge_repeats(indptr[first : end + 1], packed, times, scores)

        firsts, ends = _bounds(indptr)
        counts = np.concatenate(list(pool.map(merge, firsts, ends)))
        starts = offsets(counts)
        size = int(starts[-1])
        # Fresh pages cost more than the copying: the memory of the sort holds the positions.
        ordered = Ordered(
            starts,
            np.empty(size, dtype=np.int32),
            scratch.view(np.int64)[:size],
            None if ratings is None else np.empty(size, dtype=np.float32),
            None if timestamps is None else np.empty(size, dtype=np.int64),
        )

        def fill(first: int, end: int) -> None:
            part = slice(starts[first], starts[end])
            kept = ordered.positions[part]
            sorting.unpack(packed, indptr[first], ordered.items[part], kept)
            for source, target in ((ratings, ordered.ratings), (timestamps, ordered.timestamps)):
                if source is not None and target is not None:
                    source.take(kept, out=target[part], mode="clip")

        list(pool.map(fill, firsts, ends))
    return ordered


def _sort(
    users: Rows, items: Rows, n_users: int, n_items: int, pool: ThreadPoolExecutor
) -> tuple[_Offsets, npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Sort by user, item and place, in two counting sorts.

    Returns:
        Offsets of the users, item and event packed in one word, and memory of the same size.
    """
    from transcf.kernels import sorting

    by_item, packed = (np.empty(len(users), dtype=np.uint64) for _ in range(2))

    def count_items(first: int, end: int) -> _Offsets:
        return sorting.count_keys(items[first:end], n_items)

    def place_items(first: int, end: int, to: _Offsets) -> None:
        sorting.place_by_item(users, items, first, end, to, by_item)

    cuts = [len(users) * part // _RANGES for part in range(_RANGES + 1)]
    firsts, ends = cuts[:-1], cuts[1:]
    starts, places = _places(list(pool.map(count_items, firsts, ends)))
    list(pool.map(place_items, firsts, ends, places))

    def count_users(first: int, end: int) -> _Offsets:
        return sorting.count_owners(by_item[starts[first] : starts[end]], n_users)

    def place_users(first: int, end: int, to: _Offsets) -> None:
        sorting.place_by_user(by_item, starts, first, end, to, packed)

    firsts, ends = _bounds(starts)
    indptr, places = _places(list(pool.map(count_users, firsts, ends)))
    list(pool.map(place_users, firsts, ends, places))
    return indptr, packed, by_item


def _places(counts: Sequence[_Offsets]) -> tuple[_Offsets, list[_Offsets]]:
    """Return offsets of the keys, and for each range where its share of each key goes."""
    starts = offsets(sum(counts))
    places = [starts[:-1].copy()]
    for count in counts[:-1]:
        places.append(places[-1] + count)
    return starts, places


def _bounds(starts: _Offsets) -> tuple[list[int], list[int]]:
    """Cut keys into ranges with about as many entries each; return first and end keys."""
    shares = np.arange(1, _RANGES) * starts[-1] // _RANGES
    cuts = [0, *np.searchsorted(starts, shares).tolist(), len(starts) - 1]
    return cuts[:-1], cuts[1:]
