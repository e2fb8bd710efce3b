"""Training in rounds: disjoint strata side by side, each with its own stream of random numbers."""

from typing import Any, NamedTuple

import numba
import numpy as np

from . import Array, compiled, compiled_parallel, inlined
from .neighborhood import prefetch_row
from .rng import advance, below, mix, stream, uniform
from .sampling import TRAINING, Strata, draw_negative, draw_pair
from .translation import Rates, cost_of, costs, step_item, step_pair, step_triple


class Rows(NamedTuple):
    """What training changes: packed rows (flat), biases in dealt order, one scratch per group."""

    users: Array
    items: Array
    bias: Array
    pending: Array


@inlined
def _hardest(
    rates: Rates,
    users: Array,
    u: int,
    items: Array,
    bias: Array,
    dim: int,
    start: int,
    size: int,
    marks: Array,
    stamp: int,
    reach: Any,
    j: int,
    far: Any,
    state: np.uint64,
) -> tuple[np.uint64, int, Any, Any]:
    """The nearest of several negatives, and how many of them come within `reach`."""
    violations = np.int64(far < reach)
    for _ in range(1, rates.negatives):
        state, other = draw_negative(state, size, marks, stamp)
        place = start + other
        distance = cost_of(rates, users, u, items, 3 * dim * place, dim) - bias[place]
        violations += np.int64(distance < reach)
        if distance < far:
            j, far = place, distance
    return state, j, far, violations


@inlined
def _visit(
    rates: Rates,
    weights: Array,
    users: Array,
    u: int,
    items: Array,
    bias: Array,
    pending: Array,
    dim: int,
    start: int,
    size: int,
    slots: Array,
    shares: Array,
    begin: int,
    count: int,
    marks: Array,
    stamp: int,
    samples: int,
    state: np.uint64,
) -> tuple[np.uint64, float, int]:
    """Draw the samples of one visit and take a step on each; returns the loss and the hits."""
    width, rate, loss, active = 3 * dim, rates.learning_rate, 0.0, 0
    is_weighted = len(shares) > 0
    even = pending.dtype.type(count / shares[begin + count - 1] if is_weighted else 1.0)
    for k in range(dim):
        pending[k] = 0
    state, i_next, j_next = draw_pair(state, slots, shares, begin, count, size, marks, stamp)
    for _ in range(samples):
        i, j = start + i_next, start + j_next
        # One sample ahead: the rows can travel, and the last draw receives the last pending step.
        state, i_next, j_next = draw_pair(state, slots, shares, begin, count, size, marks, stamp)
        prefetch_row(items, width * (start + i_next), width)
        prefetch_row(items, width * (start + j_next), width)
        near, far, spread = costs(rates, users, u, items, width * i, width * j, dim)
        reach = rates.margin + near - bias[i]
        state, j, far, violations = _hardest(
            rates, users, u, items, bias, dim, start, size, marks, stamp,
            reach, j, far - bias[j], state,
        )  # fmt: skip
        weight = weights[violations]
        loss += rates.reg_distance * near + rates.reg_neighborhood * spread
        pull = rate * (weight + rates.reg_distance)
        if violations > 0:
            loss += weight * (reach - far)
            active += 1
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
    return state, loss, active


@compiled
def _stratum(
    rates: Rates,
    weights: Array,
    rows: Rows,
    dim: int,
    strata: Strata,
    user_samples: Array,
    g: int,
    b: int,
    state: np.uint64,
    totals: Array,
) -> None:
    """Train one stratum; `totals` receives the summed loss, the active triples and all triples."""
    users, items, bias, pending = rows.users, rows.items, rows.bias, rows.pending[g]
    visitor, first, slots, shares = strata.visitor, strata.first, strata.slots, strata.shares
    start, size = strata.starts[b], strata.starts[b + 1] - strata.starts[b]
    marks = np.full(size, -1, np.int64)
    index = g * (len(strata.starts) - 1) + b
    loss, active, triples = 0.0, 0, 0
    for visit in range(strata.visits[index], strata.visits[index + 1]):
        user, begin = visitor[visit], first[visit]
        count = first[visit + 1] - begin
        prefetch_row(users, 2 * dim * visitor[visit + 1], 2 * dim)
        state = advance(state)
        share = shares[begin + count - 1] if len(shares) > 0 else user_samples.dtype.type(count)
        samples = int(user_samples[user] * share + uniform(mix(state)))
        if samples == 0 or count == size:
            continue
        for entry in range(begin, begin + count):
            marks[slots[entry]] = visit
        state, visit_loss, visit_active = _visit(
            rates, weights, users, 2 * dim * user, items, bias, pending, dim, start, size,
            slots, shares, begin, count, marks, visit, samples, state,
        )  # fmt: skip
        loss += visit_loss
        active += visit_active
        triples += samples
    totals[0], totals[1], totals[2] = loss, active, triples


@compiled_parallel
def run_rounds(
    rates: Rates,
    weights: Array,
    rows: Rows,
    dim: int,
    strata: Strata,
    user_samples: Array,
    seed: int,
    epoch: int,
    begin: int,
    end: int,
    totals: Array,
) -> None:
    """Run the rounds begin..end-1: in round r, group g meets block (g + r) modulo the blocks.

    Args:
        rates: step sizes; the class picks the form of the score.
        weights: weight of the hinge by number of violations, (negatives + 1,).
        rows: the packed vectors, changed in place.
        dim: length of one vector in a row, a multiple of `LANES`.
        strata: this epoch's strata, with at least as many blocks as groups.
        user_samples: samples of a user per unit of weight (1 on average), (n_users,).
        seed: the run's seed.
        epoch: number of the epoch.
        begin: first round.
        end: one after the last round, at most the number of blocks.
        totals: out, (loss, active triples, triples) per stratum, (n_groups * n_blocks, 3) float64.
    """
    n_groups, n_blocks = len(strata.groups) - 1, len(strata.starts) - 1
    for r in range(begin, end):
        for g in numba.prange(n_groups):
            b = (g + r) % n_blocks
            s = g * n_blocks + b
            state = stream(seed, epoch, TRAINING, s)
            _stratum(rates, weights, rows, dim, strata, user_samples, g, b, state, totals[s])
