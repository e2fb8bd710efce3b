"""BPR, AoBPR and CML: triples drawn from a block, and a step on each.

Vectors live in flat arrays, one padded row each. Step sizes contain the learning rate.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from . import Array
from .decorators import inlined, shared
from .lanes import LANES, fill, load, store, sum_lanes, zeros
from .rounds import PackedRows, by_rates, cost_for, hardest, visit_for
from .rows import bring_into_ball, prefetch_row
from .sampling import Draws, Visit, advance, draw_own, draw_pair, mix, uniform

#: A product of probabilities is turned into a sum of logarithms before it gets smaller.
_SMALLEST = 1e-200
_FAR = -40
_MAGNITUDE, _SLOT = 0x7FFFFFFF, 0xFFFFFFFF


class LogisticRates(NamedTuple):
    """BPR: `keep` is what L2 leaves of a number in one step."""

    learning_rate: np.floating[Any]
    keep: np.floating[Any]
    bias_rate: np.floating[Any]
    bias_keep: np.floating[Any]


class RankedRates(LogisticRates):
    """AoBPR: the rates of BPR."""


class Rankings(NamedTuple):
    """The slots of every block by each factor, smallest first, and the chances of ranks."""

    slots: Array  # (n_factors, n_items) int32, blocks one after the other
    importance: Array  # spread of each factor over the items, (n_factors,)
    share: float  # probabilities of ranks fall off by e with every such share of the items
    reach: float  # 1 - exp(-1 / share), the probability of a rank within the ranking


class HingeRates(NamedTuple):
    """CML: squared distances; the nearest of several negatives counts."""

    learning_rate: np.floating[Any]
    keep: np.floating[Any]  # what L2 leaves of a number in one step
    margin: np.floating[Any]
    negatives: int
    bounds_steps: bool  # whether the rows of a step go back into the unit ball at once


# -- BPR and AoBPR ---------------------------------------------------------------------------


@inlined
def _preference(users: Array, u: int, items: Array, i: int, j: int, dim: int) -> Any:
    """x_u . (y_i - y_j)."""
    total = zeros(load(users, u))
    for k in range(0, dim, LANES):
        total = total + load(users, u + k) * (load(items, i + k) - load(items, j + k))
    return sum_lanes(total)


@inlined
def _logistic_step(
    users: Array, u: int, items: Array, i: int, j: int, dim: int, keep: Any, push: Any
) -> None:
    """One step on -ln sigma(x_u . (y_i - y_j)) with L2."""
    kept, by = fill(keep), fill(push)
    for k in range(0, dim, LANES):
        x, y_i, y_j = load(users, u + k), load(items, i + k), load(items, j + k)
        store(users, u + k, kept * x + by * (y_i - y_j))
        store(items, i + k, kept * y_i + by * x)
        store(items, j + k, kept * y_j - by * x)


def draw(
    rates: Any, rows: PackedRows[Any], dim: int, draws: Draws, visit: Visit, state: np.uint64
) -> Any:
    """Return the state, one of the visit's items and a negative (two slots)."""


draw_for = by_rates(draw)


@draw_for(LogisticRates)
def _draw_evenly(
    rates: LogisticRates, rows: PackedRows[Any], dim: int, draws: Draws, visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, int, int]:  # fmt: skip
    return draw_pair(draws, visit, state)


@draw_for(RankedRates)
def _draw_by_rank(
    rates: RankedRates, rows: PackedRows[Rankings], dim: int, draws: Draws, visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, int, int]:  # fmt: skip
    state = advance(state)
    positive = draw_own(mix(state), draws, visit)
    state, negative = draw_ranked(rows, dim, draws, visit, state)
    return state, positive, negative


@inlined
def draw_ranked(
    rows: PackedRows[Rankings], dim: int, draws: Draws, visit: Visit, state: np.uint64
) -> tuple[np.uint64, int]:
    """A negative that the user's vector ranks high: by one factor, drawn by its importance.

    The rank r within the block has p(r) ~ exp(-r / (share * size)); where the user has that
    item, the next one in the ranking is taken.
    """
    users, marks, size = rows.users, draws.marks, visit.size
    rankings, weights, share, reach = rows.extra
    u, total = dim * visit.user, weights.dtype.type(0)
    for f in range(len(weights)):
        total += abs(users[u + f]) * weights[f]
    state = advance(state)
    rest = weights.dtype.type(uniform(mix(state))) * total
    factor = 0
    while factor < len(weights) - 1:
        rest -= abs(users[u + factor]) * weights[factor]
        if rest < 0:
            break
        factor += 1
    state = advance(state)
    drawn = -share * size * math.log1p(-uniform(mix(state)) * reach)
    rank = min(int(drawn), size - 1)
    is_liked = users[u + factor] > 0
    slot = rankings[factor, visit.start + (size - 1 - rank if is_liked else rank)]
    while marks[slot] == visit.stamp:
        rank = rank + 1 if rank < size - 1 else 0
        slot = rankings[factor, visit.start + (size - 1 - rank if is_liked else rank)]
    return state, slot


@visit_for(LogisticRates)
def _logistic_visit(
    rates: LogisticRates, rows: PackedRows[Any], dim: int, draws: Draws, visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, float]:  # fmt: skip
    users, items, bias, _ = rows
    u, start, one = dim * visit.user, visit.start, users.dtype.type(1)
    loss, likelihood = 0.0, 1.0
    state, i_next, j_next = draw(rates, rows, dim, draws, visit, state)
    for _ in range(visit.samples):
        i, j = start + i_next, start + j_next
        # One sample ahead: the rows can travel.
        state, i_next, j_next = draw(rates, rows, dim, draws, visit, state)
        prefetch_row(items, dim * (start + i_next), dim)
        prefetch_row(items, dim * (start + j_next), dim)
        x = _preference(users, u, items, dim * i, dim * j, dim) + bias[i] - bias[j]
        doubt = one / (one + math.exp(x))
        # -ln sigma(x), but one logarithm serves many triples. Far below zero it is -x.
        if x < _FAR:
            loss -= x
        else:
            likelihood *= 1.0 / (1.0 + math.exp(-x))
        if likelihood < _SMALLEST:
            loss -= math.log(likelihood)
            likelihood = 1.0
        push = rates.learning_rate * doubt
        _logistic_step(users, u, items, dim * i, dim * j, dim, rates.keep, push)
        bias[i] = rates.bias_keep * bias[i] + rates.bias_rate * doubt
        bias[j] = rates.bias_keep * bias[j] - rates.bias_rate * doubt
    return state, loss - math.log(likelihood)


@shared(lambda items, dim, starts, rankings: len(rankings))
def rank_by_factors(
    items: Array, dim: int, starts: Array, rankings: Array, first: int, end: int
) -> None:
    """Order the slots of every block by each factor, smallest first: (n_factors, n_items) int32.

    `items` are rows in block order, flat; blocks begin at `starts`, (n_blocks + 1,) int64.
    """
    for f in range(first, end):
        for b in range(len(starts) - 1):
            begin, size = starts[b], starts[b + 1] - starts[b]
            keys = np.empty(size, np.int64)
            for slot in range(size):
                # The bits of a float, as an integer of the same order, before the slot: sorting
                # whole numbers is several times faster than sorting by reference.
                bits = np.int64(np.float32(items[dim * (begin + slot) + f]).view(np.int32))
                keys[slot] = ((bits ^ ((bits >> 31) & _MAGNITUDE)) << 32) | slot
            keys.sort()
            for rank in range(size):
                rankings[f, begin + rank] = keys[rank] & _SLOT


# -- CML -------------------------------------------------------------------------------------


@inlined
def _distance(users: Array, u: int, items: Array, i: int, dim: int) -> Any:
    """|x_u - y_i|^2."""
    total = zeros(load(users, u))
    for k in range(0, dim, LANES):
        e = load(users, u + k) - load(items, i + k)
        total = total + e * e
    return sum_lanes(total)


@cost_for(HingeRates)
def _cost(rates: HingeRates, rows: PackedRows[Array], dim: int, user: int, place: int) -> Any:
    return _distance(rows.users, dim * user, rows.items, dim * place, dim)


@inlined
def _hinge_step(
    users: Array, u: int, items: Array, i: int, j: int, dim: int, keep: Any, step: Any
) -> None:
    """One step on |x_u - y_i|^2 - |x_u - y_j|^2 with L2."""
    kept, by = fill(keep), fill(step + step)
    for k in range(0, dim, LANES):
        x, y_i, y_j = load(users, u + k), load(items, i + k), load(items, j + k)
        store(users, u + k, kept * x + by * (y_i - y_j))
        store(items, i + k, kept * y_i + by * (x - y_i))
        store(items, j + k, kept * y_j - by * (x - y_j))


@visit_for(HingeRates)
def _hinge_visit(
    rates: HingeRates, rows: PackedRows[Array], dim: int, draws: Draws, visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, float]:  # fmt: skip
    users, items = rows.users, rows.items
    u, start, loss = dim * visit.user, visit.start, 0.0
    state, i_next, j_next = draw_pair(draws, visit, state)
    for _ in range(visit.samples):
        i, j = start + i_next, start + j_next
        state, i_next, j_next = draw_pair(draws, visit, state)
        prefetch_row(items, dim * (start + i_next), dim)
        prefetch_row(items, dim * (start + j_next), dim)
        reach = rates.margin + _distance(users, u, items, dim * i, dim)
        far = _distance(users, u, items, dim * j, dim)
        state, j, far, violations = hardest(rates, rows, dim, draws, visit, reach, j, far, state)
        weight = rows.extra[violations]  # zero without any
        loss += weight * (reach - far)
        if violations > 0 or rates.keep < 1:
            step = rates.learning_rate * weight
            _hinge_step(users, u, items, dim * i, dim * j, dim, rates.keep, step)
            if rates.bounds_steps:
                bring_into_ball(users, u, dim, 1)
                bring_into_ball(items, dim * i, dim, 1)
                bring_into_ball(items, dim * j, dim, 1)
    return state, loss
