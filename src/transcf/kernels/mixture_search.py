"""Candidates for the best items of users by the mixture, without scoring every item.

With the M nearest items of every past item k, e_ki = exp(-tau |p_k - b_i|^2) and t_k the smallest
of these M terms, the score of an item is at most

    own_i + log(R + sum over the lists that contain i of w_k (e_ki - t_k)),    R = sum_k w_k t_k,

with own_i = c_i - beta |a - b_i|^2, which is one product of vectors. Sparse terms w_k m_ki
(`SparseTerms`) are added to both sides as they are. The items with the largest
bounds are scored first. Every other item is scored if its bound reaches the k-th best score so far.
Scores and bounds are float32: items within twice their largest error of the k-th best score are
candidates.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from . import Array
from .decorators import compiled, inlined, inner
from .lanes import (
    LANES,
    exp_lanes,
    fill,
    largest_lane,
    load,
    log_lanes,
    max_lanes,
    prefetch_for_reading,
    store,
    sum_lanes,
    zeros,
)
from .mixture_scores import ScoreParams, log_sum_of_two
from .topk import CHUNK, TOGETHER, kth_largest, lowest_bit, reaching

#: Number of candidates of a user who has too many of them.
CROWDED = -1
#: Items that are scored first, at least and for each place of a list.
_FIRST, _FIRST_OF_A_PLACE = 16, 4
#: Groups of items whose largest bounds tell which items are scored first, at least.
_GROUPS = 256
#: Users of a product of users and items, at least, and numbers of the product.
_USERS, _PRODUCT = 64, 2**22
#: Past items whose exponents are computed together.
_EVENTS = 2 * LANES
#: Items whose vectors are asked for before they are needed.
_AHEAD = 12
#: Exponent of events that are not there.
_ABSENT = np.float32(-1e30)
_HIDDEN = np.float32(-np.inf)
_ZERO = np.float32(0)
_BIT = np.uint64(1)


class NearestItems(NamedTuple):
    """The nearest items of past items, and what they add to a score; arrays are read-only."""

    items: Array  # (n_items, M) int32, nearest first
    excess: Array  # e_ki - t_k, (n_items, M) float32
    rest: Array  # t_k, above 0, (n_items,) float32


class Catalogue(NamedTuple):
    """Items to rank; arrays are read-only."""

    points: Array  # b, (n_items * width,) float32, padded to whole lanes
    item_offsets: Array  # c_i - (tau + beta) |b_i|^2, (n_items,) float32
    own_item_offsets: Array  # c_i - beta |b_i|^2, -inf for excluded items, (n_items,) float32
    neighbors: NearestItems  # of all items in histories


class _User(NamedTuple):
    """One user as scores need it, in memory that all users share."""

    points: Array  # 2 (tau p_k + beta a), (width * n_events,) float32, number by number
    offsets: Array  # log w_k - tau |p_k|^2 - beta |a|^2, (n_events,) float32
    exponents: Array  # of two items, (2 * n_events,) float32
    items: Array  # items to score, (n_items,) int32
    extra: Array  # sum of w_k (e_ki - t_k + m_ki), (n_items,) float32
    added: Array  # sum of w_k m_ki, (n_items,) float32; zeros between users
    largest: Array  # largest bounds of groups of items, float32


@compiled
def find_candidates(
    params: ScoreParams, catalogue: Catalogue, seen_starts: Array, seen_items: Array, users: Array,
    k: int, errors: Array, counts: Array, found: Array, first: int, end: int,
) -> None:  # fmt: skip
    """Find all items that may be among the best k of the users first..end-1.

    `seen_starts` and `seen_items` list the hidden items of each user row, `errors` how far float32
    scores and bounds may be from the true ones. Numbers of candidates (or `CROWDED`) are written
    to `counts`, and candidates to `found`, (n, capacity) with a capacity above k.
    """
    n_items, longest = len(catalogue.item_offsets), 1
    width = len(catalogue.points) // n_items
    vectors = catalogue.points.reshape(n_items, width)
    for n in range(first, end):
        longest = max(longest, params.starts[users[n] + 1] - params.starts[users[n]])
    events = _whole(longest, _EVENTS)
    user = _User(
        np.empty(width * events, np.float32), np.empty(events, np.float32),
        np.empty(2 * events, np.float32), np.empty(n_items, np.int32),
        np.empty(n_items, np.float32), np.zeros(n_items, np.float32),
        np.empty(_whole(n_items, TOGETHER), np.float32),
    )  # fmt: skip
    kept = np.empty(found.shape[1], np.float32)
    group = min(max(_USERS, _PRODUCT // n_items), end - first)
    positions, tile = np.zeros((group, width), np.float32), np.empty(group * n_items, np.float32)
    for begin in range(first, end, group):
        size = min(group, end - begin)
        for n in range(size):
            for d in range(params.users.shape[1]):
                a = np.float64(params.users[users[begin + n], d])
                positions[n, d] = np.float32(2 * params.beta * a)
        product = tile[: size * n_items]
        np.dot(positions[:size], vectors.T, product.reshape(size, n_items))
        for n in range(begin, begin + size):
            row, bounds = users[n], product[(n - begin) * n_items : (n - begin + 1) * n_items]
            own = _place(params, row, width, user)
            _add_bounds(params, catalogue, row, own, user, bounds)
            for place in range(seen_starts[row], seen_starts[row + 1]):
                bounds[seen_items[place]] = _HIDDEN
            cutoff = _cutoff(bounds, max(_FIRST, _FIRST_OF_A_PLACE * k), user.largest)
            high, low, count = np.float32(np.inf), cutoff, 0
            for _ in range(2):
                count = _score_between(
                    params, catalogue, row, positions[n - begin], own, k, errors[n], high, low,
                    bounds, user, kept, found[n], count,
                )  # fmt: skip
                high, low = cutoff, np.float32(_lowest(kept, count, k, errors[n]))
            counts[n] = count
            _clear_terms(params, row, user.added)


@inlined
def _whole(size: int, unit: int) -> int:
    """The size, rounded up to a multiple of a unit."""
    return (size + unit - 1) // unit * unit


@inner
def _place(params: ScoreParams, row: int, width: int, user: _User) -> float:
    """Write what scores need of a user; return beta |a|^2."""
    start, count = params.starts[row], params.starts[row + 1] - params.starts[row]
    events, dim, own = _whole(count, _EVENTS), params.users.shape[1], 0.0
    for d in range(dim):
        a = np.float64(params.users[row, d])
        own += params.beta * a * a
    for place in range(width * events):
        user.points[place] = _ZERO
    for e in range(events):
        user.offsets[e] = _ABSENT
    for e in range(count):
        past, squared = params.past[start + e], 0.0
        for d in range(dim):
            p = np.float64(params.history[past, d])
            moved = params.tau * p + params.beta * np.float64(params.users[row, d])
            user.points[d * events + e] = np.float32(2 * moved)
            squared += p * p
        user.offsets[e] = np.float32(params.logs[start + e] - params.tau * squared - own)
    return own


@inner
def _add_bounds(
    params: ScoreParams, catalogue: Catalogue, row: int, own: float, user: _User, bounds: Array
) -> None:
    """Make bounds on all scores of products with 2 beta a."""
    n_items, near, rest = len(bounds), catalogue.neighbors, 0.0
    extra, terms = user.extra, params.terms
    for i in range(n_items):
        extra[i] = _ZERO
    items, excess, length = near.items.reshape(-1), near.excess.reshape(-1), near.items.shape[1]
    for event in range(params.starts[row], params.starts[row + 1]):
        past, weight = np.uint64(params.past[event]), math.exp(params.logs[event])
        rest += weight * np.float64(near.rest[past])
        by, first = np.float32(weight), past * np.uint64(length)
        after = params.past[min(event + 1, params.starts[row + 1] - 1)] * length
        for j in range(0, length, LANES):  # rows are far apart, and short
            prefetch_for_reading(items, after + j)
            prefetch_for_reading(excess, after + j)
        for j in range(length):  # numbers without a sign need no check for negative ones
            at = first + np.uint64(j)
            extra[np.uint32(items[at])] += by * excess[at]
        for place in range(terms.starts[past], terms.starts[past + np.uint64(1)]):
            item, term = terms.items[place], by * terms.values[place]
            extra[item] += term
            user.added[item] += term
    whole, high = fill(np.float32(rest)), fill(np.float32(own))
    lanes = n_items - n_items % LANES
    for i in range(0, lanes, LANES):
        log = log_lanes(load(extra, i) + whole)
        store(bounds, i, load(bounds, i) + (load(catalogue.own_item_offsets, i) - high) + log)
    for i in range(lanes, n_items):
        log = math.log(np.float64(extra[i]) + rest)
        bounds[i] += np.float32(catalogue.own_item_offsets[i] - own + log)


@inner
def _clear_terms(params: ScoreParams, row: int, added: Array) -> None:
    """Set the sums of sparse terms of a user to zero again."""
    terms = params.terms
    for event in range(params.starts[row], params.starts[row + 1]):
        past = params.past[event]
        for place in range(terms.starts[past], terms.starts[past + 1]):
            added[terms.items[place]] = _ZERO


@inner
def _cutoff(bounds: Array, wanted: int, largest: Array) -> np.float32:
    """Return a bound that at least so many items reach; the lowest if there are fewer items."""
    n_items = len(bounds)
    span, size = -(-n_items // max(_GROUPS, 4 * wanted)) * LANES, 0
    lanes = n_items - n_items % LANES
    for start in range(0, lanes, span):
        high = load(bounds, start)
        for i in range(start + LANES, min(start + span, lanes), LANES):
            high = max_lanes(load(bounds, i), high)
        store(largest, size, high)
        size += LANES
    if size <= wanted:
        return _HIDDEN
    return kth_largest(largest, size, wanted, largest)


@inner
def _reaching(bounds: Array, high: np.float32, low: np.float32, items: Array) -> int:
    """List the items with bounds from `low` on and below `high`; return their number."""
    count = 0
    for start in range(0, len(bounds), CHUNK):
        bits = np.uint64(0)
        if start + CHUNK <= len(bounds):
            bits = reaching(bounds, start, low)
        else:
            for i in range(start, len(bounds)):
                if bounds[i] >= low:
                    bits |= _BIT << np.uint64(i - start)
        while bits:
            item = start + lowest_bit(bits)
            bits &= bits - _BIT
            if bounds[item] < high and bounds[item] != _HIDDEN:
                items[count] = item
                count += 1
    return count


@inner
def _score_between(
    params: ScoreParams, catalogue: Catalogue, row: int, position: Array, own: float, k: int,
    error: float, high: np.float32, low: np.float32, bounds: Array, user: _User, kept: Array,
    found: Array, count: int,
) -> int:  # fmt: skip
    """Score items with bounds from `low` on and below `high`; return the number of candidates.

    `position` is 2 beta a, `own` is beta |a|^2.
    """
    points, offsets, exponents, items = user.points, user.offsets, user.exponents, user.items
    events = _whole(params.starts[row + 1] - params.starts[row], _EVENTS)
    vectors, width = catalogue.points, len(catalogue.points) // len(bounds)
    size, place, last = _reaching(bounds, high, low, items), 0, 0
    while place < size:
        pair = 0  # two at a time: a point of the history is read once for both
        while place < size and pair < 2:
            if bounds[items[place]] >= low:
                items[pair] = items[place]
                pair += 1
            place += 1
        if pair == 0:
            break
        last = min(place + _AHEAD, size - 1)
        for d in range(0, width, LANES):
            prefetch_for_reading(vectors, items[last] * width + d)
        one, two = items[0], items[pair - 1]
        scores = _log_sums(
            points, offsets, exponents, events, vectors, one * width, two * width, width
        )
        for n in range(pair):
            item = one if n == 0 else two
            score = catalogue.item_offsets[item] + scores[n]
            if user.added[item] > 0:
                near = np.float64(catalogue.own_item_offsets[item]) - own
                for d in range(width):
                    near += np.float64(position[d]) * np.float64(vectors[item * width + d])
                score = log_sum_of_two(score, near + math.log(np.float64(user.added[item])))
            count = _keep(np.float32(score), item, k, error, kept, found, count)
        low = max(low, np.float32(_lowest(kept, count, k, error)))
    return count


@inlined
def _log_sums(
    points: Array, offsets: Array, exponents: Array, events: int, items: Array, at: int,
    other: int, width: int,
) -> tuple[float, float]:  # fmt: skip
    """Log sum_k exp(v_k . b + e_k) of the two items whose vectors start at `at` and `other`."""
    high, higher = fill(_ABSENT), fill(_ABSENT)
    for e in range(0, events, _EVENTS):
        a, b = load(offsets, e), load(offsets, e + LANES)
        c, d, none = a, b, zeros(a)
        a_odd, b_odd, c_odd, d_odd = none, none, none, none
        for k in range(0, width, 2):
            line = k * events + e
            left, right = load(points, line), load(points, line + LANES)
            by, by_other = fill(items[at + k]), fill(items[other + k])
            a, b = a + by * left, b + by * right
            c, d = c + by_other * left, d + by_other * right
            left, right = load(points, line + events), load(points, line + events + LANES)
            by, by_other = fill(items[at + k + 1]), fill(items[other + k + 1])
            a_odd, b_odd = a_odd + by * left, b_odd + by * right
            c_odd, d_odd = c_odd + by_other * left, d_odd + by_other * right
        a, b, c, d = a + a_odd, b + b_odd, c + c_odd, d + d_odd
        store(exponents, e, a)
        store(exponents, e + LANES, b)
        store(exponents, events + e, c)
        store(exponents, events + e + LANES, d)
        high, higher = max_lanes(max_lanes(a, b), high), max_lanes(max_lanes(c, d), higher)
    top, other_top = largest_lane(high), largest_lane(higher)
    by, by_other = fill(top), fill(other_top)
    total, other_total = zeros(high), zeros(high)
    for e in range(0, events, LANES):
        total = total + exp_lanes(load(exponents, e) - by)
        other_total = other_total + exp_lanes(load(exponents, events + e) - by_other)
    return top + math.log(sum_lanes(total)), other_top + math.log(sum_lanes(other_total))


@inner
def _lowest(scores: Array, count: int, k: int, error: float) -> float:
    """What a score or bound has to reach for its item to be a candidate."""
    if count == CROWDED:
        return np.inf
    if count < k:
        return -np.inf
    return np.float64(scores[k - 1]) - 2 * np.float64(error)


@inner
def _keep(
    score: np.float32, item: int, k: int, error: float, scores: Array, items: Array, count: int
) -> int:
    """Insert a candidate by descending score; return the number of candidates or `CROWDED`."""
    if score < _lowest(scores, count, k, error):
        return count
    if count == len(scores):
        return CROWDED
    place = count
    while place > 0 and scores[place - 1] < score:
        scores[place], items[place] = scores[place - 1], items[place - 1]
        place -= 1
    scores[place], items[place] = score, item
    count += 1
    low = _lowest(scores, count, k, error)
    while scores[count - 1] < low:
        count -= 1
    return count
