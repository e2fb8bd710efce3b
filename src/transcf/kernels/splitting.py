"""Filters and splits of logs: counts of entries, held-out events, and candidates for ranking."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .decorators import compiled
from .rng import advance, below, mix, stream

#: Names of the random streams, so that a split and its candidates never share draws.
HELD_OUT, CANDIDATES = 101, 102


@compiled
def last_two(
    indptr: npt.NDArray[np.int64], keys: npt.NDArray[np.int64], minimum: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Find the events with the largest and second largest key of each user.

    Of equal keys the later event counts as larger. Users with fewer than `minimum` events are
    left out.

    Returns:
        last, second: events, ascending, one for each user taken.
    """
    n_users = len(indptr) - 1
    last = np.empty(n_users, dtype=np.int64)
    second = np.empty(n_users, dtype=np.int64)
    n_taken = 0
    for user in range(n_users):
        start, stop = indptr[user], indptr[user + 1]
        if stop - start < minimum:
            continue
        first, other = start + 1, start
        if keys[start] > keys[start + 1]:
            first, other = start, start + 1
        for event in range(start + 2, stop):
            if keys[event] >= keys[first]:
                first, other = event, first
            elif keys[event] >= keys[other]:
                other = event
        last[n_taken], second[n_taken] = first, other
        n_taken += 1
    return last[:n_taken], second[:n_taken]


@compiled
def event_keys(
    indptr: npt.NDArray[np.int64], items: npt.NDArray[np.int32], seed: int, first_user: int
) -> npt.NDArray[np.int64]:
    """One random key of 63 bits for each (user, item), whatever else is in the log.

    Users are counted from `first_user` on.
    """
    keys = np.empty(len(items), dtype=np.int64)
    for user in range(len(indptr) - 1):
        state = stream(seed, 0, HELD_OUT, first_user + user)
        for event in range(indptr[user], indptr[user + 1]):
            word = mix(state ^ mix(np.uint64(items[event]) + np.uint64(1)))
            keys[event] = np.int64(word >> np.uint64(1))
    return keys


@compiled
def draw_unseen(
    users: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int64],
    items: npt.NDArray[np.int32],
    pool: npt.NDArray[np.int32],
    n_items: int,
    size: int,
    seed: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Draw `size` different items of `pool` for each user, none of them the user's own.

    Args:
        users: Users to draw for, ascending.
        indptr: (n_users + 1,) offsets of the users in `items`.
        items: All items that each user ever touched.
        pool: Items to draw from, ascending.
        n_items: Number of items.
        size: How many to draw; where fewer are left, all of them are taken.
        seed: With the user, names the stream of draws.

    Returns:
        lengths: (n_users of `indptr`,) how many were drawn for each user.
        drawn: The items, user after user, in drawing order.
    """
    lengths = np.zeros(len(indptr) - 1, dtype=np.int64)
    drawn = np.empty(len(users) * min(size, len(pool)), dtype=np.int32)
    barred = np.full(n_items, -1, dtype=np.int32)
    in_pool = np.zeros(n_items, dtype=np.bool_)
    in_pool[pool] = True
    n_drawn = 0
    for user in users:
        left = len(pool)
        for event in range(indptr[user], indptr[user + 1]):
            barred[items[event]] = user
            left -= in_pool[items[event]]
        wanted = min(size, left)
        lengths[user] = wanted
        state = stream(seed, 0, CANDIDATES, user)
        while wanted > 0:
            state = advance(state)
            item = pool[below(mix(state), len(pool))]
            if barred[item] != user:
                barred[item] = user
                drawn[n_drawn] = item
                n_drawn += 1
                wanted -= 1
    return lengths, drawn[:n_drawn]


@compiled
def count_by_row(
    indptr: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int32],
    kept_columns: npt.NDArray[np.bool_],
) -> npt.NDArray[np.int64]:
    """(n_rows,) entries of each row in kept columns."""
    counts = np.zeros(len(indptr) - 1, dtype=np.int64)
    for row in range(len(counts)):
        for place in range(indptr[row], indptr[row + 1]):
            counts[row] += kept_columns[columns[place]]
    return counts


@compiled
def count_by_column(
    indptr: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int32],
    kept_rows: npt.NDArray[np.bool_],
    n_columns: int,
) -> npt.NDArray[np.int64]:
    """(n_columns,) entries of each column in kept rows."""
    counts = np.zeros(n_columns, dtype=np.int64)
    for row in range(len(indptr) - 1):
        if kept_rows[row]:
            for place in range(indptr[row], indptr[row + 1]):
                counts[columns[place]] += 1
    return counts


@compiled
def entry_mask(
    indptr: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int32],
    kept_rows: npt.NDArray[np.bool_],
    kept_columns: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """(n_entries,) which entries lie in kept rows and kept columns."""
    mask = np.zeros(len(columns), dtype=np.bool_)
    for row in range(len(indptr) - 1):
        if kept_rows[row]:
            for place in range(indptr[row], indptr[row + 1]):
                mask[place] = kept_columns[columns[place]]
    return mask
