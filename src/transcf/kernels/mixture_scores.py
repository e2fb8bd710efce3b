"""Scores of the mixture of translations: a logarithm of a sum of exponentials over a history.

The score of an item is c_i - beta |a - b_i|^2 + log sum_k w_k (exp(-tau |p_k - b_i|^2) + m_ki) with
a sparse matrix m. Most items of a user have none of its entries: their scores are computed without
it, and those of the others are corrected by log(exp(score) + exp(own_i) sum_k w_k m_ki).
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from transcf.parallel import one_blas_thread, parallel_for

from . import Array
from .decorators import compiled, inlined, inner, shared
from .lanes import LANES, exp_lanes, fill, load, log_lanes, max_lanes, store, zeros
from .rows import first_from

#: Items that are scored together, and rows of histories: what fits into a cache.
_ITEMS, _ROWS = 496, 128
#: Columns of a strip of a table, a multiple of the two groups of lanes that are summed together.
STRIP = 64
#: Past items whose terms are computed together in a table.
_TABLE_ROWS = 256
#: Fewer pairs than this are not worth a thread.
_PAIRS_OF_A_THREAD = 64


class UserQueries(NamedTuple):
    """Translated positions of users."""

    starts: Array  # first point of each user, (n + 1,) int64
    points: Array  # v, (n_points, width) float32, see `kernels.mixture`
    offsets: Array  # e with the logarithm of the weight, (n_points,) float32


def score_users(queries: UserQueries, items: Array, item_offsets: Array) -> Array:
    """Return log sum_k exp(v_k . b_i + e_k) + h_i, (n, n_items) float32; NaN without any k."""
    n_items, queries = len(items), UserQueries(*map(read_only, queries))
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


def _groups(starts: Array) -> Array:
    """Boundaries of groups of users that are scored together."""
    places = starts.tolist()
    groups = [0]
    for n, end in enumerate(places[1:]):
        if n > groups[-1] and end - places[groups[-1]] > _ROWS:
            groups.append(n)
    if len(places) > 1:
        groups.append(len(places) - 1)
    return np.array(groups, np.int64)


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


class SparseTerms(NamedTuple):
    """The matrix m by past items; arrays are read-only."""

    starts: Array  # where the entries of each past item start, (n_items + 1,) int64
    items: Array  # scored items, ascending for each past item, (n_entries,) int32
    values: Array  # m_ki, above 0, (n_entries,) float32


@inlined
def place_of(terms: SparseTerms, past: int, item: int) -> int:
    """Return the place of the first entry of a past item that is not before an item."""
    return first_from(terms.items, terms.starts[past], terms.starts[past + 1], item)


@inlined
def log_with_term(near: float, terms: SparseTerms, past: int, item: int) -> float:
    """Return log(exp(near) + m_ki)."""
    place = place_of(terms, past, item)
    if place == terms.starts[past + 1] or terms.items[place] != item:
        return near
    return log_sum_of_two(near, math.log(np.float64(terms.values[place])))


@inlined
def log_sum_of_two(one: float, two: float) -> float:
    """Return log(exp(one) + exp(two)); `two` is finite or -inf, `one` is finite."""
    high = max(one, two)
    return high + math.log(math.exp(one - high) + math.exp(two - high))


class ScoreParams(NamedTuple):
    """What the scores of pairs are made of; all arrays are `read_only`."""

    starts: Array  # where each user's events start, (n_users + 1,) int64
    past: Array  # item rows of the events, (n_events,) int32
    logs: Array  # logarithms of how much they count, (n_events,) float64
    users: Array  # a, (n_users, dim) float32
    items: Array  # b, (n_items, dim) float32
    history: Array  # p, (n_items, dim) float32
    bias: Array  # c, (n_items,) float32
    tau: float  # how much past items count
    beta: float  # how much the users' own points count
    terms: SparseTerms  # added to exp(-tau |p_k - b_i|^2), see `SparseTerms`


def score_pairs(params: ScoreParams, users: Array, items: Array) -> Array:
    """Score pairs of rows in float64 by the direct formula, independently of other pairs.

    Returns:
        (n,) float32; NaN for users without a history.
    """
    scores = np.empty(len(users), np.float32)
    parallel_for(
        len(users), partial(_score_pairs, params, users, items, scores), _PAIRS_OF_A_THREAD
    )
    return scores


@compiled
def _score_pairs(
    params: ScoreParams, users: Array, items: Array, scores: Array, first: int, end: int
) -> None:
    longest = 1
    for n in range(first, end):
        longest = max(longest, params.starts[users[n] + 1] - params.starts[users[n]])
    near = np.empty(longest, np.float64)
    for n in range(first, end):
        user, item = users[n], items[n]
        start, count = params.starts[user], params.starts[user + 1] - params.starts[user]
        if count == 0:
            scores[n] = np.nan
            continue
        highest = -np.inf
        for k in range(count):
            past = params.past[start + k]
            away = _squared_distance(params.history, past, params.items, item)
            near[k] = params.logs[start + k]
            near[k] += log_with_term(-params.tau * away, params.terms, past, item)
            highest = max(highest, near[k])
        total = 0.0
        for k in range(count):
            total += np.exp(near[k] - highest)
        own = _squared_distance(params.users, user, params.items, item)
        scores[n] = params.bias[item] - params.beta * own + highest + np.log(total)


@inner
def _squared_distance(left: Array, i: int, right: Array, j: int) -> float:
    """|left_i - right_j|^2 in float64."""
    total = 0.0
    for d in range(left.shape[1]):
        apart = np.float64(left[i, d]) - np.float64(right[j, d])
        total += apart * apart
    return total


def add_terms(params: ScoreParams, users: Array, columns: Array, tile: Array) -> None:
    """Add the sparse terms to scores of users and items (`columns`, ascending), in place."""
    if not len(params.terms.items) or not len(columns):
        return
    column_of = np.full(len(params.items), -1, np.int32)
    column_of[columns] = np.arange(len(columns), dtype=np.int32)
    parallel_for(len(users), partial(add_terms_of_users, params, users, columns, column_of, tile))


@compiled
def add_terms_of_users(
    params: ScoreParams, users: Array, columns: Array, column_of: Array, tile: Array, first: int,
    end: int,
) -> None:  # fmt: skip
    """Do it for the users first..end-1; `column_of` is -1 for items without a column."""
    terms, dim, n_columns = params.terms, params.items.shape[1], len(columns)
    if n_columns == 0:
        return
    sums, touched = np.zeros(n_columns, np.float64), np.empty(n_columns, np.int32)
    lowest, highest = columns[0], columns[n_columns - 1]
    for n in range(first, end):
        user, count = users[n], 0
        for event in range(params.starts[user], params.starts[user + 1]):
            past, weight = params.past[event], math.exp(params.logs[event])
            for place in range(place_of(terms, past, lowest), terms.starts[past + 1]):
                item = terms.items[place]
                if item > highest:
                    break
                column, term = column_of[item], weight * np.float64(terms.values[place])
                if column < 0 or term == 0:
                    continue
                if sums[column] == 0:
                    touched[count] = column
                    count += 1
                sums[column] += term
        for t in range(count):
            column = touched[t]
            item, own, total = columns[column], 0.0, sums[column]
            sums[column] = 0.0
            for d in range(dim):
                apart = np.float64(params.users[user, d]) - np.float64(params.items[item, d])
                own += apart * apart
            added = np.float64(params.bias[item]) - params.beta * own + math.log(total)
            tile[n, column] = np.float32(log_sum_of_two(np.float64(tile[n, column]), added))


# -- many users: a table of terms by past item and scored item -------------------------------------

# The position of a user is a common factor of all terms of a score, so the terms depend on two
# items only: exp(-tau |p_k - b_i|^2). For many users it is cheaper to compute each term once. The
# table is computed in strips of columns: each strip is computed, summed for all users, and
# overwritten by the next one. Within a strip, sixteen columns of all past items are contiguous (one
# cache line each), so that the columns stay in a cache while all users read them.


class PastItems(NamedTuple):
    """Past items as terms need them."""

    points: Array  # 2 tau p, (n_past, width) float32
    #: -tau |p|^2, (n_past,) float32; no exponent may be below -80, where terms vanish.
    offsets: Array


class UserHistories(NamedTuple):
    """Histories of users, and the common offset of the scores of each user."""

    starts: Array  # first event of each user, (n + 1,) int64; every user has at least one
    places: Array  # past items, (n_events,) int32
    weights: Array  # how much they count, (n_events,) float32
    offsets: Array  # added to all scores of the user, (n,) float32


class ScoredItems(NamedTuple):
    """Items to score, a multiple of `STRIP`; the last may be none."""

    points: Array  # b, (n, width) float32
    offsets: Array  # -tau |b|^2, (n,) float32
    item_offsets: Array  # added to all scores of the item, (n,) float32


@shared(lambda histories, past, items, tile: -(-tile.shape[1] // STRIP))
def add_log_sums(
    histories: UserHistories, past: PastItems, items: ScoredItems, tile: Array, first: int, end: int
) -> None:
    """Add log-sums of weighted terms, and the offsets of users and items, to a tile in place.

    Products should be of one BLAS thread, since strips are shared among threads.
    """
    table = np.empty(len(past.points) * STRIP, np.float32)
    product = np.empty(_TABLE_ROWS * STRIP, np.float32)
    for strip in range(first, end):
        _make_strip(past, items, strip * STRIP, product, table)
        _sum_strip(histories, len(past.points), table, items.item_offsets, strip * STRIP, tile)


@inner
def _make_strip(
    past: PastItems, items: ScoredItems, left: int, product: Array, table: Array
) -> None:
    """Compute the terms of a strip of columns, sixteen of which are contiguous."""
    n_past = len(past.points)
    columns = items.points[left : left + STRIP].T
    for start in range(0, n_past, _TABLE_ROWS):
        rows = min(_TABLE_ROWS, n_past - start)
        flat = product[: rows * STRIP]
        np.dot(past.points[start : start + rows], columns, flat.reshape(rows, STRIP))
        for i in range(0, STRIP, LANES):
            other, at = load(items.offsets, left + i), (i // LANES * n_past + start) * LANES
            for r in range(rows):
                exponents = load(flat, r * STRIP + i) + other + fill(past.offsets[start + r])
                store(table, at + r * LANES, exp_lanes(exponents))


@inner
def _sum_strip(
    histories: UserHistories, n_past: int, table: Array, item_offsets: Array, left: int, tile: Array
) -> None:
    """Sum the terms of all users, twice sixteen columns at a time."""
    flat, width, both = tile.reshape(-1), tile.shape[1], 2 * LANES
    edge = np.zeros(both, np.float32)
    for i in range(left, min(left + STRIP, width), both):
        first = (i - left) * n_past
        second, missing = first + n_past * LANES, max(0, i + both - width)
        high, higher = load(item_offsets, i), load(item_offsets, i + LANES)
        for n in range(len(histories.starts) - 1):
            one, two = zeros(high), zeros(high)
            for k in range(histories.starts[n], histories.starts[n + 1]):
                by, at = fill(histories.weights[k]), histories.places[k] * LANES
                one = one + by * load(table, first + at)
                two = two + by * load(table, second + at)
            own, at = fill(histories.offsets[n]), n * width + i
            one, two = log_lanes(one) + high + own, log_lanes(two) + higher + own
            if missing == 0:
                store(flat, at, load(flat, at) + one)
                store(flat, at + LANES, load(flat, at + LANES) + two)
                continue
            store(edge, 0, one)
            store(edge, LANES, two)
            for c in range(both - missing):
                flat[at + c] += edge[c]
