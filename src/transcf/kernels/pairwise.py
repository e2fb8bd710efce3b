"""BPR, AoBPR and CML: triples drawn from a block, and a step on each.

Vectors live in flat arrays, one padded row each. Step sizes contain the learning rate.
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import overload

from . import INLINED, Array, compiled_parallel, inlined
from .lanes import LANES, fill, load, nothing, store, sum_lanes
from .neighborhood import prefetch_row
from .rng import advance, mix, uniform
from .rounds import costs_of, hardest, visits_of
from .sampling import Visit, draw_own, draw_pair

#: A product of probabilities is turned into a sum of logarithms before it gets smaller.
_SMALLEST = 1e-200
_FAR = -40
_MAGNITUDE, _SLOT = 0x7FFFFFFF, 0xFFFFFFFF


class Logistic(NamedTuple):
    """BPR: `keep` is what L2 leaves of a number in one step."""

    learning_rate: np.floating[Any]
    keep: np.floating[Any]
    bias_rate: np.floating[Any]
    bias_keep: np.floating[Any]
    rank_share: float
    rank_reach: float


class Ranked(Logistic):
    """AoBPR: ranks of negatives fall off by e with every `rank_share` of the items.

    `rank_reach` is 1 - exp(-1 / rank_share): what lies within a ranking of a boundless geometric.
    """


class Hinge(NamedTuple):
    """CML: squared distances; the nearest of several negatives counts.

    `keep` is what L2 leaves of a number in one step; `bounds_steps` says that the rows of a step
    go back into the unit ball at once.
    """

    learning_rate: np.floating[Any]
    keep: np.floating[Any]
    margin: np.floating[Any]
    negatives: int
    bounds_steps: bool


# -- BPR and AoBPR ---------------------------------------------------------------------------


def _draw(
    rates: Any, weights: Any, users: Any, rankings: Any, dim: Any, slots: Any, shares: Any,
    marks: Any, visit: Any, state: Any,
) -> Any:  # fmt: skip
    """One of the visit's items and a negative (two slots); only for kernels."""


@overload(_draw, jit_options=INLINED)
def _choose_draw(
    rates: Any, weights: Any, users: Any, rankings: Any, dim: Any, slots: Any, shares: Any,
    marks: Any, visit: Any, state: Any,
) -> Any:  # fmt: skip
    def evenly(
        rates: Any, weights: Any, users: Any, rankings: Any, dim: Any, slots: Any, shares: Any,
        marks: Any, visit: Any, state: Any,
    ) -> Any:  # fmt: skip
        return draw_pair(state, slots, shares, marks, visit)

    def by_rank(
        rates: Any, weights: Any, users: Any, rankings: Any, dim: Any, slots: Any, shares: Any,
        marks: Any, visit: Any, state: Any,
    ) -> Any:  # fmt: skip
        state = advance(state)
        positive = draw_own(mix(state), slots, shares, visit)
        state, negative = draw_ranked(rates, weights, users, rankings, dim, marks, visit, state)
        return state, positive, negative

    return {Logistic: evenly, Ranked: by_rank}[rates.instance_class]


@inlined
def draw_ranked(
    rates: Ranked,
    weights: Array,
    users: Array,
    rankings: Array,
    dim: int,
    marks: Array,
    visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, int]:
    """A negative that the user's vector ranks high: by one factor, drawn by its importance.

    The rank r within the block has p(r) ~ exp(-r / (rank_share * size)); where the user has that
    item, the next one in the ranking is taken.
    """
    size = visit.size
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
    drawn = -rates.rank_share * size * math.log1p(-uniform(mix(state)) * rates.rank_reach)
    rank = min(int(drawn), size - 1)
    is_liked = users[u + factor] > 0
    slot = rankings[factor, visit.start + (size - 1 - rank if is_liked else rank)]
    while marks[slot] == visit.stamp:
        rank = rank + 1 if rank < size - 1 else 0
        slot = rankings[factor, visit.start + (size - 1 - rank if is_liked else rank)]
    return state, slot


@compiled_parallel
def rank_by_factors(items: Array, dim: int, starts: Array, rankings: Array) -> None:
    """Order the slots of every block by each factor, smallest first.

    Args:
        items: item rows in dealt order, flat.
        dim: length of a row.
        starts: where the blocks begin, (n_blocks + 1,) int64.
        rankings: out, (n_factors, n_items) int32.
    """
    for f in numba.prange(len(rankings)):
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


@inlined
def _preference(users: Array, u: int, items: Array, i: int, j: int, dim: int) -> Any:
    """x_u . (y_i - y_j)."""
    total = nothing(load(users, u))
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


@visits_of(Logistic, Ranked)
@inlined
def _logistic_visit(
    rates: Logistic,
    weights: Array,
    users: Array,
    items: Array,
    bias: Array,
    extra: Array,
    dim: int,
    slots: Array,
    shares: Array,
    marks: Array,
    visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, float, Any]:
    u, start, one = dim * visit.user, visit.start, users.dtype.type(1)
    loss, likelihood, wrong = 0.0, 1.0, np.int64(0)
    state, i_next, j_next = _draw(
        rates, weights, users, extra, dim, slots, shares, marks, visit, state
    )
    for _ in range(visit.samples):
        i, j = start + i_next, start + j_next
        # One sample ahead: the rows can travel.
        state, i_next, j_next = _draw(
            rates, weights, users, extra, dim, slots, shares, marks, visit, state
        )
        prefetch_row(items, dim * (start + i_next), dim)
        prefetch_row(items, dim * (start + j_next), dim)
        x = _preference(users, u, items, dim * i, dim * j, dim) + bias[i] - bias[j]
        doubt = one / (one + math.exp(x))
        wrong += np.int64(x < 0)
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
    return state, loss - math.log(likelihood), wrong


# -- CML -------------------------------------------------------------------------------------


@inlined
def _distance(users: Array, u: int, items: Array, i: int, dim: int) -> Any:
    """|x_u - y_i|^2."""
    total = nothing(load(users, u))
    for k in range(0, dim, LANES):
        e = load(users, u + k) - load(items, i + k)
        total = total + e * e
    return sum_lanes(total)


@costs_of(Hinge)
@inlined
def _cost(rates: Hinge, users: Array, user: int, items: Array, place: int, dim: int) -> Any:
    return _distance(users, dim * user, items, dim * place, dim)


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


@inlined
def _into_ball(rows: Array, start: int, dim: int) -> None:
    """Bring a row onto the unit sphere if it lies outside."""
    total = nothing(load(rows, start))
    for k in range(0, dim, LANES):
        total = total + load(rows, start + k) * load(rows, start + k)
    squared_norm = sum_lanes(total)
    if squared_norm > 1:
        by = fill(rows.dtype.type(1) / math.sqrt(squared_norm))
        for k in range(0, dim, LANES):
            store(rows, start + k, by * load(rows, start + k))


@visits_of(Hinge)
@inlined
def _hinge_visit(
    rates: Hinge,
    weights: Array,
    users: Array,
    items: Array,
    bias: Array,
    extra: Array,
    dim: int,
    slots: Array,
    shares: Array,
    marks: Array,
    visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, float, int]:
    u, start, loss, active = dim * visit.user, visit.start, 0.0, 0
    state, i_next, j_next = draw_pair(state, slots, shares, marks, visit)
    for _ in range(visit.samples):
        i, j = start + i_next, start + j_next
        state, i_next, j_next = draw_pair(state, slots, shares, marks, visit)
        prefetch_row(items, dim * (start + i_next), dim)
        prefetch_row(items, dim * (start + j_next), dim)
        reach = rates.margin + _distance(users, u, items, dim * i, dim)
        far = _distance(users, u, items, dim * j, dim)
        state, j, far, violations = hardest(
            rates, users, items, bias, dim, marks, visit, reach, j, far, state
        )
        weight = weights[violations]  # zero without any
        loss += weight * (reach - far)
        active += int(violations > 0)
        if violations > 0 or rates.keep < 1:
            step = rates.learning_rate * weight
            _hinge_step(users, u, items, dim * i, dim * j, dim, rates.keep, step)
            if rates.bounds_steps:
                _into_ball(users, u, dim)
                _into_ball(items, dim * i, dim)
                _into_ball(items, dim * j, dim)
    return state, loss, active
