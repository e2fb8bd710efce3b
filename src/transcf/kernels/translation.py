"""TransCF's steps, sixteen numbers at a time, for any formula of the score.

Vectors live in flat arrays of packed rows: a user's row is [a | q] (own vector, mean of the user's
items), an item's row is [b | n | m] (own vector, mean of the item's users, steps collected for
those users). `u`, `i`, `j` are offsets of rows, not row numbers. Step sizes contain the learning
rate.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from . import Array
from .decorators import inlined
from .lanes import LANES, fill, load, store, sum_lanes, zeros
from .rounds import PackedRows, cost_for, hardest, visit_for
from .rows import bring_into_ball, prefetch_row
from .sampling import Draws, Visit, advance, below, draw_pair, mix

#: How far from the origin a vector may get inside an epoch. Bounding earlier costs accuracy, and
#: without a bound steps and distances would drive each other up.
MAX_NORM = 10.0
_TOO_FAR = (2 * MAX_NORM) ** 2


class TransCFRates(NamedTuple):
    """What a step depends on.

    A class made from it has the functions `cost` and `slope` of a score, compiled for kernels.
    """

    learning_rate: np.floating[Any]
    margin: np.floating[Any]
    reg_distance: np.floating[Any]
    reg_neighborhood: np.floating[Any]
    tie: np.floating[Any]
    tie_back: np.floating[Any]
    bias_rate: np.floating[Any]
    bias_decay: np.floating[Any]
    negatives: int
    item_bias: bool
    bound: int


class TranslationExtra(NamedTuple):
    """What else steps read and write."""

    pending: Array  # steps of q that wait for an item, one row for each group, (n_groups, dim)
    rank_weights: Array  # weight of a step by the number of violations, (negatives + 1,)


def cost(rates: TransCFRates, a: Any, q: Any, b: Any, n: Any) -> Any:
    """Terms of -s(u, i), bias left out, to be summed up."""


def slope(rates: TransCFRates, g: Any, a: Any, q: Any, b: Any, n: Any) -> Any:
    """Terms of g times the gradient of -s(u, i) by a, q, b and n."""


@overload(cost)
def _choose_cost(rates: Any, a: Any, q: Any, b: Any, n: Any) -> Any:
    function = rates.instance_class.cost

    def chosen(rates: Any, a: Any, q: Any, b: Any, n: Any) -> Any:
        return function(a, q, b, n)

    return chosen


@overload(slope)
def _choose_slope(rates: Any, g: Any, a: Any, q: Any, b: Any, n: Any) -> Any:
    function = rates.instance_class.slope

    def chosen(rates: Any, g: Any, a: Any, q: Any, b: Any, n: Any) -> Any:
        return function(g, a, q, b, n)

    return chosen


@inlined
def triple_costs(
    rates: TransCFRates, users: Array, u: int, items: Array, i: int, j: int, dim: int
) -> Any:
    """-s(u, i), -s(u, j) and |a - q|^2 + |b_i - n_i|^2, bias left out."""
    near = zeros(fill(rates.margin))
    far, spread = near, near
    for k in range(0, dim, LANES):
        a, q = load(users, u + k), load(users, u + dim + k)
        b, n = load(items, i + k), load(items, i + dim + k)
        near = near + cost(rates, a, q, b, n)
        spread = spread + (a - q) * (a - q) + (b - n) * (b - n)
        far = far + cost(rates, a, q, load(items, j + k), load(items, j + dim + k))
    return sum_lanes(near), sum_lanes(far), sum_lanes(spread)


@inlined
def step_triple(
    rates: TransCFRates, users: Array, u: int, items: Array, i: int, j: int, pending: Array, dim:
    int, pull: Any, push: Any,
) -> None:  # fmt: skip
    """One step on (u, i, j): i is pulled, j pushed, and u and i tied to their neighbourhoods.

    (`tie` moves the row itself, `tie_back` the neighbours.)

    The step of q_u belongs to one random item of the user. The next sample's positive is one, so
    the step waits in `pending` and is taken by the item whose row will be written anyway.
    """
    g_i, g_j = fill(pull), fill(-push)
    tie, tie_back = fill(rates.tie), fill(rates.tie_back)
    for k in range(0, dim, LANES):
        a, q = load(users, u + k), load(users, u + dim + k)
        b, n, m = load(items, i + k), load(items, i + dim + k), load(items, i + 2 * dim + k)
        da, dq, db, dn = slope(rates, g_i, a, q, b, n)
        apart, off = a - q, b - n
        store(items, i + k, b - db - tie * off - load(pending, k))
        store(items, i + 2 * dim + k, m + dn - tie_back * off)
        b, n, m = load(items, j + k), load(items, j + dim + k), load(items, j + 2 * dim + k)
        da_j, dq_j, db, dn = slope(rates, g_j, a, q, b, n)
        store(items, j + k, b - db)
        store(items, j + 2 * dim + k, m + dn)
        store(users, u + k, a - da - da_j - tie * apart)
        store(pending, k, dq + dq_j - tie_back * apart)


@inlined
def step_pair(
    rates: TransCFRates, users: Array, u: int, items: Array, i: int, pending: Array, dim: int, pull:
    Any,
) -> None:  # fmt: skip
    """One step on (u, i) when the margin holds: only the regularizers move them."""
    g_i, tie, tie_back = fill(pull), fill(rates.tie), fill(rates.tie_back)
    for k in range(0, dim, LANES):
        a, q = load(users, u + k), load(users, u + dim + k)
        b, n, m = load(items, i + k), load(items, i + dim + k), load(items, i + 2 * dim + k)
        da, dq, db, dn = slope(rates, g_i, a, q, b, n)
        apart, off = a - q, b - n
        store(items, i + k, b - db - tie * off - load(pending, k))
        store(items, i + 2 * dim + k, m + dn - tie_back * off)
        store(users, u + k, a - da - tie * apart)
        store(pending, k, dq - tie_back * apart)


@inlined
def step_item(items: Array, i: int, pending: Array, dim: int, factor: Any) -> None:
    """Let one item take the step that waits in `pending`, times a factor; nothing waits then."""
    by = fill(factor)
    for k in range(0, dim, LANES):
        step = load(pending, k)
        store(items, i + k, load(items, i + k) - by * step)
        store(pending, k, zeros(step))


@cost_for(TransCFRates)
def _cost_at(
    rates: TransCFRates, rows: PackedRows[TranslationExtra], dim: int, user: int, place: int
) -> Any:
    users, u, items, j = rows.users, 2 * dim * user, rows.items, 3 * dim * place
    total = zeros(fill(rates.margin))
    for k in range(0, dim, LANES):
        a, q = load(users, u + k), load(users, u + dim + k)
        total = total + cost(rates, a, q, load(items, j + k), load(items, j + dim + k))
    return sum_lanes(total)


@visit_for(TransCFRates)
def _visit(
    rates: TransCFRates, rows: PackedRows[TranslationExtra], dim: int, draws: Draws, visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, float]:  # fmt: skip
    users, items, bias, extra = rows
    slots, shares, _ = draws
    u, start, begin, count = 2 * dim * visit.user, visit.start, visit.begin, visit.own
    pending = extra.pending[visit.group]
    width, rate, loss = 3 * dim, rates.learning_rate, 0.0
    is_weighted = len(shares) > 0
    even = pending.dtype.type(count / shares[begin + count - 1] if is_weighted else 1.0)
    for k in range(dim):
        pending[k] = 0
    state, i_next, j_next = draw_pair(draws, visit, state)
    for _ in range(visit.samples):
        i, j = start + i_next, start + j_next
        # One sample ahead: the rows can travel, and the last draw receives the last pending step.
        state, i_next, j_next = draw_pair(draws, visit, state)
        prefetch_row(items, width * (start + i_next), width)
        prefetch_row(items, width * (start + j_next), width)
        near, far, spread = triple_costs(rates, users, u, items, width * i, width * j, dim)
        reach = rates.margin + near - bias[i]
        state, j, far, violations = hardest(
            rates, rows, dim, draws, visit, reach, j, far - bias[j], state
        )
        # A cost that no vectors within `MAX_NORM` can have: they are projected instead of updated.
        if max(abs(near), abs(far + bias[j])) > _TOO_FAR and rates.bound > 0:
            bring_into_ball(users, u, dim, rates.bound)
            bring_into_ball(items, width * i, dim, rates.bound)
            bring_into_ball(items, width * j, dim, rates.bound)
            continue
        weight = extra.rank_weights[violations]
        loss += rates.reg_distance * near + rates.reg_neighborhood * spread
        pull = rate * (weight + rates.reg_distance)
        if violations > 0:
            loss += weight * (reach - far)
            push = rate * weight
            step_triple(rates, users, u, items, width * i, width * j, pending, dim, pull, push)
        else:
            step_pair(rates, users, u, items, width * i, pending, dim, pull)
        if rates.item_bias:
            loss += rates.bias_decay * (bias[i] * bias[i] + bias[j] * bias[j])
            decay = rates.bias_decay + rates.bias_decay
            bias[i] += rates.bias_rate * (weight - decay * bias[i])
            bias[j] -= rates.bias_rate * (weight + decay * bias[j])
        if is_weighted:
            # The next positive is no uniform draw: the mean's step needs one of its own, and
            # makes up for a block that is visited by its weight rather than by its size.
            state = advance(state)
            other = start + slots[begin + below(mix(state), count)]
            step_item(items, width * other, pending, dim, even)
    step_item(items, width * (start + i_next), pending, dim, even)
    bring_into_ball(users, u, dim, rates.bound)
    return state, loss
