"""FISM: an epoch of stochastic gradient descent, O(dim) per sample for histories of any length.

A sample moves the vectors p of all items in a user's history by the same step. The kernel therefore
keeps the sum X of these vectors and the sum D of the steps of a visit: the current vector of item k
is p_k + D, and D is added to the rows when the visit ends. A positive item is left out of the
history that predicts it. Meanwhile C is the sum of the others, and the steps that the item missed
are subtracted from its row afterwards. `working` holds [X | D | C | B], each of length dim, where B
is D when the item was left out.
"""

from typing import Any, NamedTuple

import numpy as np

from . import Array
from .decorators import compiled, inlined, inner
from .lanes import LANES, fill, load, store
from .rows import add_scaled, clear, dot, first_from, prefetch_row
from .sampling import TRAINING, advance, below, mix, stream


class FISMVectors(NamedTuple):
    """Learned arrays: p and q (flat, padded), and the item biases."""

    history: Array
    items: Array
    bias: Array


class FISMRates(NamedTuple):
    """Settings of a step, numbers in the type of the vectors."""

    learning_rate: Any
    shrink: Any  # the learning rate times the L2 weight of vectors
    bias_shrink: Any  # the same of biases
    offset: Any  # subtracted from the targets 1 and 0 of the point-wise loss
    negatives: int
    pairwise: bool


class Visits(NamedTuple):
    """Users in the order of an epoch, and their samples."""

    users: Array
    positives: Array  # how many of each
    starts: Array  # where they start, in [0, 1)
    weights: Array  # those of all events, or empty if all are equal


@inlined
def draw_unseen(rows: Array, active: Array, state: np.uint64) -> tuple[np.uint64, int]:
    """Draw an active item that is not among ascending rows."""
    while True:
        state = advance(state)
        item = active[below(mix(state), len(active))]
        place = first_from(rows, 0, len(rows), item)
        if place == len(rows) or rows[place] != item:
            return state, item


@compiled
def choose_positives(weights: Array, count: int, start: float, places: Array) -> None:
    """Choose positives among a user's `count` items in turn, or evenly on a line of the weights."""
    if len(weights) == 0:
        for n in range(len(places)):
            places[n] = (int(start * count) + n) % count
        return
    length = np.float64(0)
    for weight in weights:
        length += weight
    step, point = length / len(places), start * length
    place, end = 0, np.float64(weights[0])
    for n in range(len(places)):
        while point >= end and place < count - 1:
            place += 1
            end += weights[place]
        places[n] = place
        point += step
        if point >= length:
            point -= length
            place, end = 0, np.float64(weights[0])


@inlined
def _leave_out(working: Array, history: Array, i: int, dim: int) -> None:
    """Set C to X without item i, and B to D."""
    for k in range(0, dim, LANES):
        steps = load(working, dim + k)
        store(working, 2 * dim + k, load(working, k) - load(history, i + k) - steps)
        store(working, 3 * dim + k, steps)


@inlined
def _put_back(working: Array, history: Array, i: int, dim: int, keep: Any) -> None:
    """Set X to C plus item i, which missed the steps since B and shrinks by `keep`."""
    by = fill(keep)
    for k in range(0, dim, LANES):
        vector = by * (load(history, i + k) + load(working, 3 * dim + k))
        store(history, i + k, vector - load(working, dim + k))
        store(working, k, load(working, 2 * dim + k) + vector)


@inlined
def _step_point(
    working: Array, c: int, items: Array, i: int, dim: int, gain: Any, many: Any, keep: Any
) -> None:
    """Step on one score: q_i and the `many` items of the sum that begins at `c` move by `gain`."""
    by, times, kept = fill(gain), fill(gain * many), fill(keep)
    for k in range(0, dim, LANES):
        q, x = load(items, i + k), load(working, c + k)
        store(items, i + k, kept * q + by * x)
        store(working, c + k, x + times * q)
        store(working, dim + k, load(working, dim + k) + by * q)


@inlined
def _step_pair(
    working: Array, items: Array, i: int, j: int, dim: int, gain: Any, many: Any, keep: Any
) -> None:
    """Step on a difference of scores: q_i, q_j and the `many` items of C move by `gain`."""
    by, times, kept = fill(gain), fill(gain * many), fill(keep)
    for k in range(0, dim, LANES):
        a, b, x = load(items, i + k), load(items, j + k), load(working, 2 * dim + k)
        step = by * x
        store(items, i + k, kept * a + step)
        store(items, j + k, kept * b - step)
        store(working, 2 * dim + k, x + times * (a - b))
        store(working, dim + k, load(working, dim + k) + by * (a - b))


@inner
def _visit(
    rates: FISMRates, vectors: FISMVectors, dim: int, rows: Array, places: Array, active: Array,
    scales: Array, working: Array, state: np.uint64,
) -> float:  # fmt: skip
    """Learn from the positives of one user; returns the sum of the losses."""
    history, items, bias = vectors
    number, count, rate, loss = scales.dtype.type, len(rows), rates.learning_rate, 0.0
    one, keep, whole, rest = number(1), number(1) - rates.shrink, number(count), number(count - 1)
    keep_history = one - rates.shrink * number(rates.negatives if rates.pairwise else 1)
    scale, scale_rest = scales[count], scales[count - 1]
    state, j_next = draw_unseen(rows, active, state)
    for place in places:
        i = rows[place]
        _leave_out(working, history, dim * i, dim)
        if not rates.pairwise:
            score = bias[i] + scale_rest * dot(working, 2 * dim, items, dim * i, dim)
            error = one - rates.offset - score
            loss += error * error
            gain = rate * scale_rest * error
            _step_point(working, 2 * dim, items, dim * i, dim, gain, rest, keep)
            bias[i] += rate * error - rates.bias_shrink * bias[i]
            _put_back(working, history, dim * i, dim, keep_history)
        for _ in range(rates.negatives):
            j = j_next
            state, j_next = draw_unseen(rows, active, state)
            prefetch_row(items, dim * j_next, dim)
            if rates.pairwise:
                apart = dot(working, 2 * dim, items, dim * i, dim)
                apart -= dot(working, 2 * dim, items, dim * j, dim)
                error = one - (bias[i] - bias[j] + scale_rest * apart)
                gain = rate * scale_rest * error
                _step_pair(working, items, dim * i, dim * j, dim, gain, rest, keep)
                bias[i] += rate * error - rates.bias_shrink * bias[i]
                bias[j] -= rate * error + rates.bias_shrink * bias[j]
            else:
                score = bias[j] + scale * dot(working, 0, items, dim * j, dim)
                error = -rates.offset - score
                gain = rate * scale * error
                _step_point(working, 0, items, dim * j, dim, gain, whole, keep)
                bias[j] += rate * error - rates.bias_shrink * bias[j]
            loss += error * error
        if rates.pairwise:
            _put_back(working, history, dim * i, dim, keep_history)
    return loss / 2


@compiled
def run_epoch(
    rates: FISMRates, vectors: FISMVectors, dim: int, indptr: Array, indices: Array, active: Array,
    visits: Visits, places: Array, scales: Array, seed: int, epoch: int,
) -> float:  # fmt: skip
    """Let every user of an epoch learn in turn; returns the sum of the losses.

    Items by user are ascending (int64 `indptr`, int32 `indices`). Every user lacks one of the
    `active` items (int32). `places` is memory for the positives of any user (int32), and `scales`
    has the scale of a history by its length, (longest + 1,), in the type of the vectors.
    """
    loss, one = 0.0, scales.dtype.type(1)
    working = np.zeros(4 * dim, scales.dtype)
    for v in range(len(visits.users)):
        user = visits.users[v]
        begin, end = indptr[user], indptr[user + 1]
        rows, chosen = indices[begin:end], places[: visits.positives[v]]
        own = visits.weights[begin:end] if len(visits.weights) > 0 else visits.weights
        choose_positives(own, end - begin, visits.starts[v], chosen)
        clear(working, 0, 2 * dim)
        for item in rows:
            add_scaled(working, 0, vectors.history, dim * item, dim, one)
        state = stream(seed, epoch, TRAINING, user)
        loss += _visit(rates, vectors, dim, rows, chosen, active, scales, working, state)
        for item in rows:
            add_scaled(vectors.history, dim * item, working, dim, dim, one)
    return loss
