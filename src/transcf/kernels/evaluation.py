"""Evaluation: held-out events, candidates for ranking, and the ranks of held-out items."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .decorators import compiled, inner
from .sampling import advance, below, mix, mix_words, stream, streams

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]

#: Names of the random streams, so that a split and its candidates never share draws.
HELD_OUT, CANDIDATES = 101, 102
#: Scores that are compared at once.
CHUNK = 256
_ZERO = np.float32(0)
_ONE = np.float32(1)


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


def event_keys(indptr: Counts, items: Rows, seed: int, first_user: int) -> Counts:
    """One random key of 63 bits for each (user, item), whatever else is in the log.

    Users are counted from `first_user` on.
    """
    users = np.arange(first_user, first_user + len(indptr) - 1, dtype=np.uint64)
    states = np.repeat(streams(seed, 0, HELD_OUT, users), np.diff(indptr))
    words = mix_words(states ^ mix_words(items.astype(np.uint64) + np.uint64(1)))
    return (words >> np.uint64(1)).astype(np.int64)


@compiled
def draw_unseen(
    users: Rows, indptr: Counts, items: Rows, pool: Rows, n_items: int, size: int, seed: int
) -> tuple[Counts, Rows]:
    """Draw `size` different items of `pool` (ascending) for each user, none of them the user's own.

    `users` are ascending; `indptr`, (n_users + 1,), and `items` list all items that users ever
    touched. Where fewer items are left, all of them are taken.

    Returns:
        How many were drawn for each user, (n_users,), and the items, user after user.
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


# -- ranks: counting the scores that beat held-out items -------------------------------------------


@inner
def _count_pair(part: Floats, low: np.float32, high: np.float32) -> tuple[int, int]:
    """How many scores are above `high`, and how many are at least `low`."""
    # Sums of ones are the form that compilers turn into vector code; exact up to 2^24 terms.
    above = at_least = _ZERO
    for n in range(len(part)):
        above += _ONE if part[n] > high else _ZERO
        at_least += _ONE if part[n] >= low else _ZERO
    return int(above), int(at_least)


@compiled
def count_better(
    tile: Floats, error: Floats, indptr: Counts, levels: Floats, above: Counts, at_least: Counts,
    doubts: Counts,
) -> None:  # fmt: skip
    """Add to each target how many scores of a tile are above it, and how many are not below it.

    Targets of row r are `indptr[r]` to `indptr[r + 1]`; `levels` are their scores without the
    user's constant. Hidden scores (-inf) never count. Scores within the tile's error of a target
    are left out, and added to `doubts`.
    """
    width = tile.shape[1]
    for row in range(len(tile)):
        line, doubt = tile[row], error[row]
        for target in range(indptr[row], indptr[row + 1]):
            low, high = np.float32(levels[target] - doubt), np.float32(levels[target] + doubt)
            for start in range(0, width, CHUNK):
                over, level = _count_pair(line[start : min(start + CHUNK, width)], low, high)
                above[target] += over
                at_least[target] += over if doubt > 0 else level
                doubts[target] += level - over if doubt > 0 else 0


@compiled
def list_doubts(
    tile: Floats, error: Floats, indptr: Counts, levels: Floats, doubts: Counts, rows: Rows,
    columns: Rows, targets: Counts,
) -> None:  # fmt: skip
    """Fill rows, columns and targets with the scores that `count_better` has left out."""
    found, width = 0, tile.shape[1]
    for row in range(len(tile)):
        for target in range(indptr[row], indptr[row + 1]):
            low = np.float32(levels[target] - error[row])
            high = np.float32(levels[target] + error[row])
            start, left = 0, doubts[target]
            while left > 0 and start < width:
                part = tile[row, start : min(start + CHUNK, width)]
                over, level = _count_pair(part, low, high)
                if over < level:  # counted by vectors, which is faster than looking at each
                    for n in range(len(part)):
                        if low <= part[n] <= high:
                            rows[found], columns[found], targets[found] = row, start + n, target
                            found += 1
                start, left = start + CHUNK, left - (level - over)


@compiled
def count_better_candidates(
    candidate_indptr: Counts, candidate_scores: Floats, target_indptr: Counts, target_scores:
    Floats, above: Counts, at_least: Counts,
) -> None:  # fmt: skip
    """Set for each target how many candidates of its row are above it, and how many not below."""
    for row in range(len(target_indptr) - 1):
        part = candidate_scores[candidate_indptr[row] : candidate_indptr[row + 1]]
        for target in range(target_indptr[row], target_indptr[row + 1]):
            score = target_scores[target]
            above[target], at_least[target] = _count_pair(part, score, score)
