"""Splits of logs: held-out events, and candidates for ranking."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .decorators import compiled
from .rng import advance, below, mix, mix_words, stream, streams

Counts = npt.NDArray[np.int64]

#: Names of the random streams, so that a split and its candidates never share draws.
HELD_OUT, CANDIDATES = 101, 102


def last_two(indptr: Counts, keys: Counts, minimum: int) -> tuple[Counts, Counts]:
    """Find the events with the largest and second largest key of each user.

    Of equal keys the later event counts as larger. Users with fewer than `minimum` (2 or more)
    events are left out.

    Returns:
        last, second: events, ascending, one for each user taken.
    """
    lengths = np.diff(indptr)
    starts, lengths = indptr[:-1][lengths > 0], lengths[lengths > 0]
    last = _largest(keys, starts, lengths, np.ones(len(keys), dtype=np.bool_))
    left = np.ones(len(keys), dtype=np.bool_)
    left[last] = False
    second = _largest(keys, starts, lengths, left)
    return last[lengths >= minimum], second[lengths >= minimum]


def _largest(keys: Counts, starts: Counts, lengths: Counts, left: npt.NDArray[np.bool_]) -> Counts:
    """The last of the events with the largest key of each user, among those that are left."""
    lowest = np.where(left, keys, np.iinfo(np.int64).min)
    top = np.maximum.reduceat(lowest, starts) if len(starts) else starts
    is_top = (keys == np.repeat(top, lengths)) & left
    places = np.where(is_top, np.arange(len(keys)), -1)
    return np.maximum.reduceat(places, starts) if len(starts) else starts


def event_keys(indptr: Counts, items: npt.NDArray[np.int32], seed: int, first_user: int) -> Counts:
    """One random key of 63 bits for each (user, item), whatever else is in the log.

    Users are counted from `first_user` on.
    """
    users = np.arange(first_user, first_user + len(indptr) - 1, dtype=np.uint64)
    states = np.repeat(streams(seed, 0, HELD_OUT, users), np.diff(indptr))
    words = mix_words(states ^ mix_words(items.astype(np.uint64) + np.uint64(1)))
    return (words >> np.uint64(1)).astype(np.int64)


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
