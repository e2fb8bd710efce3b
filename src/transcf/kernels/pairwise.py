"""BPR, AoBPR and CML: triples drawn from a block, and a step on each.

Vectors live in flat arrays, one padded row each. Step sizes contain the learning rate.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from . import Array
from .decorators import inlined
from .lanes import LANES, fill, load, store, sum_lanes, zeros
from .ranked_draws import RankedRates, draw, draws_of
from .rounds import Nearest, PackedRows, costs_of, hardest, visits_of
from .rows import bring_into_ball, prefetch_row
from .sampling import Draws, Visit, draw_pair

#: A product of probabilities is turned into a sum of logarithms before it gets smaller.
_SMALLEST = 1e-200
_FAR = -40


class LogisticRates(NamedTuple):
    """BPR: `keep` is what L2 leaves of a number in one step."""

    learning_rate: np.floating[Any]
    keep: np.floating[Any]
    bias_rate: np.floating[Any]
    bias_keep: np.floating[Any]


class HingeRates(NamedTuple):
    """CML: squared distances; the nearest of several negatives counts.

    `keep` is what L2 leaves of a number in one step; `bounds_steps` says that the rows of a step
    go back into the unit ball at once.
    """

    learning_rate: np.floating[Any]
    keep: np.floating[Any]
    margin: np.floating[Any]
    negatives: int
    bounds_steps: bool


class NoExtra(NamedTuple):
    """BPR needs nothing else."""


class HingeExtra(NamedTuple):
    """`rank_weights` is the weight of a step by the number of violations, (negatives + 1,)."""

    rank_weights: Array


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


@draws_of(LogisticRates)
def _draw_evenly(
    rates: LogisticRates, rows: PackedRows[NoExtra], dim: int, draws: Draws, visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, int, int]:  # fmt: skip
    return draw_pair(draws, visit, state)


@visits_of(LogisticRates, RankedRates)
def _logistic_visit(
    rates: LogisticRates | RankedRates, rows: PackedRows[Any], dim: int, draws: Draws, visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, float, Any]:  # fmt: skip
    users, items, bias, _ = rows
    u, start, one = dim * visit.user, visit.start, users.dtype.type(1)
    loss, likelihood, wrong = 0.0, 1.0, np.int64(0)
    state, i_next, j_next = draw(rates, rows, dim, draws, visit, state)
    for _ in range(visit.samples):
        i, j = start + i_next, start + j_next
        # One sample ahead: the rows can travel.
        state, i_next, j_next = draw(rates, rows, dim, draws, visit, state)
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
    total = zeros(load(users, u))
    for k in range(0, dim, LANES):
        e = load(users, u + k) - load(items, i + k)
        total = total + e * e
    return sum_lanes(total)


@costs_of(HingeRates)
def _cost(rates: HingeRates, rows: PackedRows[HingeExtra], dim: int, user: int, place: int) -> Any:
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


@visits_of(HingeRates)
def _hinge_visit(
    rates: HingeRates, rows: PackedRows[HingeExtra], dim: int, draws: Draws, visit: Visit,
    state: np.uint64,
) -> tuple[np.uint64, float, int]:  # fmt: skip
    users, items = rows.users, rows.items
    u, start, loss, active = dim * visit.user, visit.start, 0.0, 0
    state, i_next, j_next = draw_pair(draws, visit, state)
    for _ in range(visit.samples):
        i, j = start + i_next, start + j_next
        state, i_next, j_next = draw_pair(draws, visit, state)
        prefetch_row(items, dim * (start + i_next), dim)
        prefetch_row(items, dim * (start + j_next), dim)
        reach = rates.margin + _distance(users, u, items, dim * i, dim)
        far = _distance(users, u, items, dim * j, dim)
        state, j, far, violations = hardest(
            rates, rows, dim, draws, visit, reach, Nearest(j, far), state
        )
        weight = rows.extra.rank_weights[violations]  # zero without any
        loss += weight * (reach - far)
        active += int(violations > 0)
        if violations > 0 or rates.keep < 1:
            step = rates.learning_rate * weight
            _hinge_step(users, u, items, dim * i, dim * j, dim, rates.keep, step)
            if rates.bounds_steps:
                bring_into_ball(users, u, dim, 1)
                bring_into_ball(items, dim * i, dim, 1)
                bring_into_ball(items, dim * j, dim, 1)
    return state, loss, active
