"""FISM: an epoch of stochastic gradient descent, O(dim) per sample for histories of any length.

A sample moves the vectors p of all items in a user's history by the same step. The kernel therefore
keeps the sum X of these vectors and the sum D of the steps of a visit: the current vector of item k
is p_k + D, and D is added to the rows when the visit ends. A positive item is left out of the
history that predicts it: meanwhile X is without it, and its row has its current vector. `working`
holds [X | D], each of length dim.
"""

from typing import Any, NamedTuple

import numpy as np

from . import Array
from .decorators import compiled, inlined, inner
from .lanes import LANES, fill, load, store
from .rows import add_scaled, clear, dot, first_from
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
def choose_positives(weights: Array, start: float, places: Array) -> None:
    """Choose places evenly on a line of a user's weights, which are 1 on average."""
    step, place, end = len(weights) / len(places), 0, np.float64(weights[0])
    for n in range(len(places)):
        while (start + n) * step >= end and place < len(weights) - 1:
            place += 1
            end += weights[place]
        places[n] = place


@inlined
def _step(
    working: Array, items: Array, bias: Array, i: int, dim: int, gain: Any, many: Any,
    move: Any, rates: FISMRates,
) -> None:  # fmt: skip
    """Step on a score: q_i and the `many` items of X move by `gain`, the bias by `move`."""
    by, times, keep = fill(gain), fill(gain * many), fill(working.dtype.type(1) - rates.shrink)
    for k in range(0, dim, LANES):
        q, x = load(items, dim * i + k), load(working, k)
        store(items, dim * i + k, keep * q + by * x)
        store(working, k, x + times * q)
        store(working, dim + k, load(working, dim + k) + by * q)
    bias[i] += move - rates.bias_shrink * bias[i]


@inlined
def _put_back(working: Array, history: Array, i: int, dim: int, shrink: Any) -> None:
    """Shrink the vector of item i, and make it part of the history again."""
    one = working.dtype.type(1)
    add_scaled(history, dim * i, history, dim * i, dim, -shrink)
    add_scaled(working, 0, history, dim * i, dim, one)
    add_scaled(history, dim * i, working, dim, dim, -one)


@inner
def _visit(
    rates: FISMRates, vectors: FISMVectors, dim: int, rows: Array, places: Array, active: Array,
    scales: Array, working: Array, state: np.uint64,
) -> float:  # fmt: skip
    """Learn from the positives of one user; returns the sum of the losses."""
    history, items, bias = vectors
    number, rate, loss = scales.dtype.type, rates.learning_rate, 0.0
    one, whole, rest = number(1), number(len(rows)), number(len(rows) - 1)
    scale, scale_rest = scales[len(rows)], scales[len(rows) - 1]
    for place in places:
        i = rows[place]
        add_scaled(history, dim * i, working, dim, dim, one)
        add_scaled(working, 0, history, dim * i, dim, -one)
        if not rates.pairwise:
            score = bias[i] + scale_rest * dot(working, 0, items, dim * i, dim)
            error = one - rates.offset - score
            loss += error * error
            move = rate * error
            _step(working, items, bias, i, dim, scale_rest * move, rest, move, rates)
            _put_back(working, history, i, dim, rates.shrink)
        for _ in range(rates.negatives):
            state, j = draw_unseen(rows, active, state)
            score = dot(working, 0, items, dim * j, dim)
            if rates.pairwise:
                apart = dot(working, 0, items, dim * i, dim) - score
                error = one - (bias[i] - bias[j] + scale_rest * apart)
                move = rate * error
                _step(working, items, bias, i, dim, scale_rest * move, rest, move, rates)
                _step(working, items, bias, j, dim, -scale_rest * move, rest, -move, rates)
            else:
                error = -rates.offset - bias[j] - scale * score
                move = rate * error
                _step(working, items, bias, j, dim, scale * move, whole, move, rates)
            loss += error * error
        if rates.pairwise:
            _put_back(working, history, i, dim, rates.shrink * number(rates.negatives))
    return loss / 2


@compiled
def run_epoch(
    rates: FISMRates, vectors: FISMVectors, dim: int, indptr: Array, indices: Array,
    weights: Array, active: Array, users: Array, positives: Array, starts: Array, scales: Array,
    seed: int, epoch: int,
) -> float:  # fmt: skip
    """Let users learn in turn, each with its number of positives; returns the sum of the losses.

    Items by user are ascending (int64 `indptr`, int32 `indices`), with the weights of the events.
    Every user lacks one of the `active` items (int32). `starts` are in [0, 1), and `scales` has
    the scale of a history by its length, (longest + 1,), in the type of the vectors.
    """
    loss, one = 0.0, scales.dtype.type(1)
    working, places = np.zeros(2 * dim, scales.dtype), np.empty(positives.max(), np.int32)
    for n in range(len(users)):
        begin, end = indptr[users[n]], indptr[users[n] + 1]
        rows, chosen = indices[begin:end], places[: positives[n]]
        choose_positives(weights[begin:end], starts[n], chosen)
        clear(working, 0, 2 * dim)
        for item in rows:
            add_scaled(working, 0, vectors.history, dim * item, dim, one)
        state = stream(seed, epoch, TRAINING, users[n])
        loss += _visit(rates, vectors, dim, rows, chosen, active, scales, working, state)
        for item in rows:
            add_scaled(vectors.history, dim * item, working, dim, dim, one)
    return loss
