"""Shards of a batch of the mixture without user vectors; notation is that of `mixture`.

The position of a target, in place of a user vector, is the mean of its context.

With the mean A_t of the vectors b of the events around target t, weighted by 1 / distance, the
exponentials of a target and a negative are E_kj = exp(2 tau p_k . b_j - tau |p_k|^2) for the events
k and H_tj = exp(2 beta A_t . b_j - beta |A_t|^2 + h_j) for its position, and the partition of
target t is N_t + sum_j H_tj S_tj with S_tj = sum_k w_tk E_kj. Events farther than `REACH` places
from a target are not part of its context: w is a band, and costs little next to the products.

The rows of a shard are those of its events, then the positions of its targets, so that both are
multiplied at once.
"""

import math
from typing import Any

import numpy as np

from . import Array
from .decorators import apart, inlined, inner
from .lanes import LANES, exp_lanes, fill, load, store, sum_lanes, zeros
from .mixture import TINY, MixtureParams, Negatives, ScoreConfig, Workspace, hide_own
from .mixture_batches import Batch
from .rows import AdamStep, add_scaled, clear, copy, dot

#: Places before and after a target that are its context.
REACH = 32
#: Numbers of a band of pairs: whole lanes.
BAND = 2 * REACH + LANES


@apart
def run_context_shard(
    config: ScoreConfig, batch: Batch, params: MixtureParams, negatives: Negatives, work: Workspace,
    shard: int, step: AdamStep,
) -> float:  # fmt: skip
    """Compute loss and gradients of a shard; returns the loss. No step: there are no users."""
    begin, stop = batch.shards[shard], batch.shards[shard + 1]
    start, last = batch.starts[begin], batch.starts[stop]
    if start == last:
        work.negative_slopes[shard] = 0
        work.negative_offset_slopes[shard] = 0
        return 0.0
    n_negatives = len(negatives.vectors)
    rows, loss = last - start, 0.0
    _gather(config, batch, params, work, begin, stop)
    cells = work.tile[3 * start * n_negatives : 3 * last * n_negatives]
    both = cells[: 2 * rows * n_negatives].reshape(2 * rows, n_negatives)
    moved, scaled = work.moved[2 * start : 2 * last], work.scaled[2 * start : 2 * last]
    np.dot(moved, negatives.vectors.T, both)
    hide_own(batch, both[rows:], begin, stop)
    for n in range(begin, stop):
        loss += _user(config, batch, work, cells, negatives.item_offsets, n, start, rows)
    np.dot(both, negatives.vectors, scaled)
    _finish(config, batch, work, begin, stop)
    np.dot(both.T, moved, work.negative_slopes[shard])
    np.dot(both[rows:].T, work.sum_slopes[start:last], work.negative_offset_slopes[shard])
    return loss


@inner
def _gather(
    config: ScoreConfig, batch: Batch, params: MixtureParams, work: Workspace, begin: int, stop: int
) -> None:
    """Copy the vectors of some users' events into the workspace: v, e, b, h and positions."""
    width = params.items.values.shape[1]
    items, history = params.items.values.reshape(-1), params.history.values.reshape(-1)
    moved, targets, bias = work.moved.reshape(-1), work.targets.reshape(-1), params.bias.values
    tau, beta = np.float32(config.tau), np.float32(config.beta)
    near, own = fill(np.float32(2) * tau), fill(np.float32(2) * beta)
    start, last = batch.starts[begin], batch.starts[stop]
    for r in range(start, last):
        at, i, event = r * width, batch.items[r] * width, (start + r) * width
        for k in range(0, width, LANES):
            store(moved, event + k, near * load(history, i + k))
        copy(targets, at, items, i, width)
        work.offsets[r] = -tau * dot(history, i, history, i, width)
        square = dot(items, i, items, i, width)
        work.item_offsets[r] = bias[batch.items[r]] - (tau + beta) * square
    for n in range(begin, stop):
        first, end = batch.starts[n], batch.starts[n + 1]
        for r in range(first, end):
            position, total = (last + r) * width, _context_total(config, first, r, end)
            clear(moved, position, width)
            for k in range(max(first, r - REACH), min(end, r + REACH + 1)):
                if k != r:
                    weight = _context_weight(config, r, k) / total
                    add_scaled(moved, position, targets, k * width, width, weight)
            work.others[r] = -beta * dot(moved, position, moved, position, width)
            for k in range(position, position + width, LANES):
                store(moved, k, own * load(moved, k))


@inner
def _context_weight(config: ScoreConfig, target: int, event: int) -> np.float32:
    """Return the weight of an event in the position of a target, before division by the sum."""
    if event < target:
        return np.float32(1) / np.float32(target - event)
    return config.future[1] / np.float32(event - target)


@inner
def _context_total(config: ScoreConfig, first: int, target: int, end: int) -> np.float32:
    """Return the sum of the weights of the events first..end-1 in the position of a target."""
    total = np.float32(0)
    for k in range(max(first, target - REACH), min(end, target + REACH + 1)):
        if k != target:
            total += _context_weight(config, target, k)
    return max(total, TINY)


@inlined
def _band_sum(
    before: Array, after: Array, cells: Array, at: int, length: int, place: int, size: int
) -> Any:
    """Sum sixteen columns from `at` on over the rows of a user around a place, by weights."""
    total = zeros(load(cells, at))
    for k in range(max(0, place - REACH), place):
        total = total + fill(before[place - k]) * load(cells, at + k * size)
    for k in range(place + 1, min(length, place + REACH + 1)):
        total = total + fill(after[k - place]) * load(cells, at + k * size)
    return total


@inner
def _user(
    config: ScoreConfig, batch: Batch, work: Workspace, cells: Array, item_offsets: Array, n: int,
    start: int, rows: int,
) -> float:  # fmt: skip
    """The targets of a user: loss, and what products with negatives need.

    The cells of a shard are those of E, H and S. The first two become gradients by exponents.
    """
    first, length, size = batch.starts[n], batch.starts[n + 1] - batch.starts[n], len(item_offsets)
    near, far = (first - start) * size, (rows + first - start) * size
    mixed = (2 * rows + first - start) * size
    for r in range(length):
        offset, position_offset = fill(work.offsets[first + r]), fill(work.others[first + r])
        for j in range(r * size, (r + 1) * size, LANES):
            store(cells, near + j, exp_lanes(load(cells, near + j) + offset))
            high = load(item_offsets, j - r * size)
            store(cells, far + j, exp_lanes(load(cells, far + j) + position_offset + high))
    for t in range(length):
        total = zeros(load(cells, near))
        for j in range(0, size, LANES):
            value = _band_sum(config.past, config.future, cells, near + j, length, t, size)
            store(cells, mixed + t * size + j, value)
            total = total + value * load(cells, far + t * size + j)
        work.rest[first + t] = sum_lanes(total)
    loss = _targets(config, batch, work, n, start, start + rows)
    for t in range(length):
        by = fill(work.rest[first + t])
        for j in range(far + t * size, far + (t + 1) * size, LANES):
            store(cells, j, by * load(cells, j))
    for k in range(length):
        total = zeros(load(cells, near))
        for j in range(0, size, LANES):
            value = _band_sum(config.future, config.past, cells, far + j, length, k, size)
            value = value * load(cells, near + k * size + j)
            store(cells, near + k * size + j, value)
            total = total + value
        work.sums[first + k] += sum_lanes(total)
    for j in range(0, length * size, LANES):
        store(cells, far + j, load(cells, far + j) * load(cells, mixed + j))
    return loss


@inner
def _targets(
    config: ScoreConfig, batch: Batch, work: Workspace, n: int, start: int, last: int
) -> float:
    """Each event of a user as a target of the others: loss, and gradients but for the negatives'.

    `work.rest` has partitions without N, then gradients by them.
    """
    first, end, width = batch.starts[n], batch.starts[n + 1], work.targets.shape[1]
    moved, targets, pairs = work.moved.reshape(-1), work.targets.reshape(-1), work.pairs
    moved_slopes, target_slopes = work.moved_slopes.reshape(-1), work.target_slopes.reshape(-1)
    loss = 0.0
    for r in range(first, end):
        work.sums[r] = 0
        clear(moved_slopes, r * width, width)
    for t in range(first, end):
        at, position = t * width, (last + t) * width
        low, high = max(first, t - REACH), min(end, t + REACH + 1)
        clear(target_slopes, at, width)
        rest, total = work.rest[t], np.float32(0)
        work.sum_slopes[t] = 1
        if rest == 0:  # no other item in the history: no gradient
            work.target_offset_slopes[t] = work.others[t] = 0
            continue
        offset = work.item_offsets[t] + work.others[t] + dot(moved, position, targets, at, width)
        band = t * BAND
        for k in range(low, high):
            value = dot(moved, (start + k) * width, targets, at, width)
            pairs[band + k - low] = value + work.offsets[k] + offset
        for k in range(0, high - low, LANES):
            store(pairs, band + k, exp_lanes(load(pairs, band + k)))
        for k in range(low, t):
            pairs[band + k - low] *= config.past[t - k]
        pairs[band + t - low] = 0
        for k in range(t + 1, high):
            pairs[band + k - low] *= config.future[k - t]
        for k in range(high - low):  # no stores: else alignment would decide the order of the sum
            total += pairs[band + k]
        weight, likelihood = batch.weights[t], max(total, TINY)
        partition = likelihood + rest
        loss += weight * (math.log(partition) - math.log(likelihood))
        share = weight / partition
        slope = share - weight / likelihood
        work.rest[t], work.target_offset_slopes[t] = share, slope * total
        work.others[t] = share * rest + slope * total
        add_scaled(target_slopes, at, moved, position, width, slope * total)
        for k in range(low, high):
            by = slope * pairs[band + k - low]
            add_scaled(target_slopes, at, moved, (start + k) * width, width, by)
            add_scaled(moved_slopes, k * width, targets, at, width, by)
            work.sums[k] += by
    return loss


@inner
def _finish(config: ScoreConfig, batch: Batch, work: Workspace, begin: int, stop: int) -> None:
    """Add the gradients by negatives to events, and those of positions to the items of contexts."""
    start, last, width = batch.starts[begin], batch.starts[stop], work.targets.shape[1]
    moved, scaled = work.moved.reshape(-1), work.scaled.reshape(-1)
    targets, target_slopes = work.targets.reshape(-1), work.target_slopes.reshape(-1)
    moved_slopes, own = work.moved_slopes.reshape(-1), fill(np.float32(2 * config.beta))
    for n in range(begin, stop):
        first, end = batch.starts[n], batch.starts[n + 1]
        for r in range(first, end):
            position = (last + r) * width
            add_scaled(moved_slopes, r * width, scaled, (start + r) * width, width, np.float32(1))
            slope = work.target_offset_slopes[r]
            add_scaled(scaled, position, targets, r * width, width, slope)
            total = fill(work.others[r])
            by = fill(np.float32(1) / _context_total(config, first, r, end))
            for k in range(position, position + width, LANES):
                store(scaled, k, by * (own * load(scaled, k) - total * load(moved, k)))
            for k in range(max(first, r - REACH), min(end, r + REACH + 1)):
                if k != r:
                    weight = _context_weight(config, r, k)
                    add_scaled(target_slopes, k * width, scaled, position, width, weight)
