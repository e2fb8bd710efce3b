"""Scores of the mixture of translations: a logarithm of a sum of exponentials over a history."""

from functools import partial
from typing import NamedTuple

import numpy as np

from transcf.parallel import one_blas_thread, parallel_for

from . import Array
from .decorators import compiled, inner
from .lanes import LANES, exp_lanes, fill, load, log_lanes, max_lanes, store, zeros

#: Items that are scored together, and rows of histories: what fits into a cache.
_ITEMS, _ROWS = 496, 128
#: Fewer pairs than this are not worth a thread.
_PAIRS_OF_A_THREAD = 64


class UserQueries(NamedTuple):
    """Translated positions of users.

    Attributes:
        starts: First point of each user, (n + 1,) int64.
        points: v, (n_points, width) float32, see `kernels.mixture`.
        offsets: e with the logarithm of the weight, (n_points,) float32.
    """

    starts: Array
    points: Array
    offsets: Array


def score_users(queries: UserQueries, items: Array, item_offsets: Array) -> Array:
    """Score all items for users.

    Args:
        queries: Their points; scores of users without any are NaN.
        items: b, (n_items, width) float32; nothing of it is copied, but for the last few.
        item_offsets: h, (n_items,) float32.

    Returns:
        log sum_k exp(v_k . b_i + e_k) + h_i, (n, n_items) float32.
    """
    n_items = len(items)
    scores = np.empty((len(queries.starts) - 1, n_items), np.float32)
    groups, whole = _groups(queries.starts), n_items - n_items % LANES
    empty = (0, -n_items % LANES)
    last = np.pad(items[whole:], (empty, (0, 0))), np.pad(item_offsets[whole:], empty)
    with one_blas_thread():
        for at, some, high in ((0, items[:whole], item_offsets[:whole]), (whole, *last)):
            work = partial(_score, queries, read_only(some), high, groups, scores, at)
            parallel_for(len(groups) - 1 if len(some) else 0, work)
    return scores


def read_only(array: Array) -> Array:
    """Return an array as kernels get it here, whether it is one of a file or not.

    Those of files cannot be written to, and kernels would be compiled for both kinds.
    """
    view = array.view()
    view.flags.writeable = False
    return view


@compiled
def _groups(starts: Array) -> Array:
    """Boundaries of groups of users that are scored together."""
    groups, found, n = np.zeros(len(starts), np.int64), 0, 0
    while n < len(starts) - 1:
        begin = n
        n += 1
        while n < len(starts) - 1 and starts[n + 1] - starts[begin] <= _ROWS:
            n += 1
        found += 1
        groups[found] = n
    return groups[: found + 1]


@compiled
def _score(
    queries: UserQueries, items: Array, item_offsets: Array, groups: Array, scores: Array, at: int,
    first: int, end: int,
) -> None:  # fmt: skip
    """Score some items, the columns from `at` on, for the groups first..end-1."""
    longest = _ROWS
    for group in range(first, end):
        rows = queries.starts[groups[group + 1]] - queries.starts[groups[group]]
        longest = max(longest, rows)
    memory, found = np.empty(longest * _ITEMS, np.float32), np.empty(_ITEMS, np.float32)
    for group in range(first, end):
        begin, stop = groups[group], groups[group + 1]
        start, last = queries.starts[begin], queries.starts[stop]
        for left in range(0, len(items), _ITEMS):
            size = min(_ITEMS, len(items) - left)
            flat = memory[: (last - start) * size]
            if last > start:
                tile = flat.reshape(last - start, size)
                np.dot(queries.points[start:last], items[left : left + size].T, tile)
            for n in range(begin, stop):
                own, until = queries.starts[n], queries.starts[n + 1]
                if own == until:
                    scores[n, at + left : at + left + size] = np.nan
                    continue
                offsets = queries.offsets[own:until]
                rows_of_one = flat[(own - start) * size : (until - start) * size]
                _log_sums(rows_of_one, offsets, item_offsets, left, size, found)
                for i in range(min(size, scores.shape[1] - at - left)):
                    scores[n, at + left + i] = found[i]


@inner
def _log_sums(
    rows: Array, offsets: Array, item_offsets: Array, left: int, size: int, found: Array
) -> None:
    """Log-sum-exp over the columns of one user, plus the item offsets."""
    for i in range(0, size, LANES):
        highest = load(rows, i) + fill(offsets[0])
        for k in range(1, len(offsets)):
            highest = max_lanes(load(rows, k * size + i) + fill(offsets[k]), highest)
        total = zeros(highest)
        for k in range(len(offsets)):
            total = total + exp_lanes(load(rows, k * size + i) + fill(offsets[k]) - highest)
        store(found, i, highest + log_lanes(total) + load(item_offsets, left + i))


class ScoreParams(NamedTuple):
    """What the scores of pairs are made of; all arrays are `read_only`.

    Attributes:
        starts: Where each user's events start, (n_users + 1,) int64.
        past: Item rows of the events, (n_events,) int32.
        logs: Logarithms of how much they count, (n_events,) float64.
        users: a, (n_users, dim) float32.
        items: b, (n_items, dim) float32.
        history: p, (n_items, dim) float32.
        bias: c, (n_items,) float32.
        tau: How much past items count.
        beta: How much the users' own points count.
    """

    starts: Array
    past: Array
    logs: Array
    users: Array
    items: Array
    history: Array
    bias: Array
    tau: float
    beta: float


def score_pairs(taste: ScoreParams, users: Array, items: Array) -> Array:
    """Score pairs of rows in float64 by the direct formula, independently of other pairs.

    Returns:
        (n,) float32; NaN for users without a history.
    """
    scores = np.empty(len(users), np.float32)
    parallel_for(len(users), partial(_score_pairs, taste, users, items, scores), _PAIRS_OF_A_THREAD)
    return scores


@compiled
def _score_pairs(
    taste: ScoreParams, users: Array, items: Array, scores: Array, first: int, end: int
) -> None:
    """Score the pairs first..end-1."""
    longest = 1
    for n in range(first, end):
        longest = max(longest, taste.starts[users[n] + 1] - taste.starts[users[n]])
    near = np.empty(longest, np.float64)
    for n in range(first, end):
        user, item = users[n], items[n]
        start, count = taste.starts[user], taste.starts[user + 1] - taste.starts[user]
        if count == 0:
            scores[n] = np.nan
            continue
        highest = -np.inf
        for k in range(count):
            away = _squared_distance(taste.history, taste.past[start + k], taste.items, item)
            near[k] = taste.logs[start + k] - taste.tau * away
            highest = max(highest, near[k])
        total = 0.0
        for k in range(count):
            total += np.exp(near[k] - highest)
        own = _squared_distance(taste.users, user, taste.items, item)
        scores[n] = taste.bias[item] - taste.beta * own + highest + np.log(total)


@inner
def _squared_distance(left: Array, i: int, right: Array, j: int) -> float:
    """|left_i - right_j|^2 in float64."""
    total = 0.0
    for d in range(left.shape[1]):
        apart = np.float64(left[i, d]) - np.float64(right[j, d])
        total += apart * apart
    return total
