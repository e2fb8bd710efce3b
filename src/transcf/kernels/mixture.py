"""Shards of a batch of the mixture: losses and gradients by matrix products.

With v_k = 2 tau p_k + 2 beta a_u and
e_k = -tau |p_k|^2 - beta |a_u|^2 for event k of user u, and h_j = c_j - (tau + beta) |b_j|^2,

    s(u, j) = log sum_k w_k exp(v_k . b_j + e_k + h_j).

E_kj = exp(v_k . b_j + e_k + h_j) for shared negatives j are computed once. Their sums over
negatives F_k are all that targets need of them: the loss of target i is

    log(N_i + sum_k w_ik F_k) - log N_i,    N_i = sum_k w_ik exp(v_k . b_i + e_k + h_i)

where w_ik says how much event k counts for target i, and w_ii = 0 leaves a target out of its own
history. Gradients go back the same way: E is multiplied once by the negatives and once by the
events, scaled by row.

Each shard of a batch writes to memory of its own, and updates its own users at the end, so that
results do not depend on the thread that runs it. In names, a slope is a gradient of the loss,
`moved` is v, an offset is e, and an item offset is h.
"""

import math
from typing import NamedTuple

import numpy as np

from . import Array
from .decorators import apart, inlined, inner
from .lanes import LANES, exp_lanes, fill, load, store, sum_lanes, zeros
from .mixture_batches import Batch
from .rows import AdamState, AdamStep, add_scaled, clear, dot, flat, move_row, prefetch_row

#: Targets of a long history that are looked at together.
CHUNK = 512
#: Histories up to this length are multiplied without BLAS.
_SHORT = 24
#: Rows that are asked for before they are needed.
_AHEAD = 4
#: Exponents of masked entries.
MASKED = np.float32(-1e30)
#: Lower bound of a likelihood, so that quotients by it stay finite.
TINY = np.float32(1e-30)


class ScoreConfig(NamedTuple):
    """Constants of the score."""

    tau: float  # weight of the squared distance from the items of the history
    beta: float  # weight of the squared distance from the user's position a
    #: Weights of events by how many places they are before the target, (longest,) float32.
    past: Array
    future: Array  # the same for events after the target


class Negatives(NamedTuple):
    """Items that all targets of a batch are compared with."""

    vectors: Array  # b, (n, width) float32; n is a multiple of 16, rows of zeros fill up
    item_offsets: Array  # h plus the logarithm of the number of represented items, (n,) float32


class Workspace(NamedTuple):
    """Memory of a batch: rows for its events, and the gradients by negatives of each shard.

    Several arrays hold values first and gradients later. Those with a slash are larger, or have
    another meaning, without user vectors (`mixture_context`).
    """

    moved: Array  # v, (n_events, width) / 2 tau p and 2 beta A, (2 n_events, width)
    offsets: Array  # e, (n_events,)
    targets: Array  # b of the events' items, (n_events, width)
    item_offsets: Array  # h of them, then gradients by N, (n_events,)
    tile: Array  # E / E, H and S, flat, (n_events * n_negatives,) / three times as many
    pairs: Array  # the same for targets, flat, (n_events * CHUNK,) / (n_events * BAND,)
    sums: Array  # F, then gradients by e, (n_events,)
    sum_slopes: Array  # gradients by F / ones, (n_events,)
    target_offset_slopes: Array  # N of targets, then gradients by their h, (n_events,)
    rest: Array  # partitions of targets without N, then gradients by them, (n_events,)
    #: Gradients by e but for those through F / offsets of positions, then gradients by them,
    #: (n_events,).
    others: Array
    moved_slopes: Array  # gradients by v, (n_events, width)
    target_slopes: Array  # gradients by b of the events' items, (n_events, width)
    scaled: Array  # scratch, of the shape of `moved`
    negative_slopes: Array  # gradients by b of the negatives, (SHARDS, n_negatives, width)
    negative_offset_slopes: Array  # the same by h, (SHARDS, n_negatives)


class MixtureParams(NamedTuple):
    """Trained arrays, rows padded to whole lanes."""

    users: AdamState  # a, (n_users, width)
    items: AdamState  # b, (n_items, width)
    history: AdamState  # p, (n_items, width); the same arrays as `items` where they are tied
    bias: AdamState  # c, (n_items,)


@apart
def run_shard(
    config: ScoreConfig, batch: Batch, params: MixtureParams, negatives: Negatives, work: Workspace,
    shard: int, step: AdamStep,
) -> float:  # fmt: skip
    """Compute loss and gradients of a shard, and update its users; returns the loss."""
    begin, stop = batch.shards[shard], batch.shards[shard + 1]
    start, last = batch.starts[begin], batch.starts[stop]
    if start == last:
        work.negative_slopes[shard] = 0
        work.negative_offset_slopes[shard] = 0
        return 0.0
    _gather(config, batch, params, work, begin, stop)
    n_negatives, width = negatives.vectors.shape
    rows, loss = last - start, 0.0
    cells = work.tile[start * n_negatives : last * n_negatives]
    tile, moved = cells.reshape(rows, n_negatives), work.moved[start:last]
    np.dot(moved, negatives.vectors.T, tile)
    hide_own(batch, tile, begin, stop)
    _exponentials(cells, work.offsets, negatives.item_offsets, work.sums, start, last)
    for n in range(begin, stop):
        loss += _own_targets(config, batch, work, n)
    scaled, sum_slopes = work.scaled[start:last], work.sum_slopes[start:last]
    flat_scaled, flat_moved = scaled.reshape(-1), moved.reshape(-1)
    slopes = work.moved_slopes[start:last].reshape(-1)
    np.dot(tile, negatives.vectors, scaled)
    for r in range(rows):
        add_scaled(slopes, r * width, flat_scaled, r * width, width, sum_slopes[r])
        by = fill(sum_slopes[r])
        for k in range(r * width, (r + 1) * width, LANES):
            store(flat_scaled, k, by * load(flat_moved, k))
        work.sums[start + r] = sum_slopes[r] * work.sums[start + r] + work.others[start + r]
    np.dot(tile.T, scaled, work.negative_slopes[shard])
    np.dot(tile.T, sum_slopes, work.negative_offset_slopes[shard])
    _move_users(config, batch, params, work, begin, stop, step)
    return loss


@inner
def _gather(
    config: ScoreConfig, batch: Batch, params: MixtureParams, work: Workspace, begin: int, stop: int
) -> None:
    """Copy the vectors of some users' events into the workspace: v, e, b and h."""
    width = params.items.values.shape[1]
    users, items = params.users.values.reshape(-1), params.items.values.reshape(-1)
    history, bias = params.history.values.reshape(-1), params.bias.values
    moved, targets = work.moved.reshape(-1), work.targets.reshape(-1)
    tau, beta = np.float32(config.tau), np.float32(config.beta)
    near, own = fill(np.float32(2) * tau), fill(np.float32(2) * beta)
    last = batch.starts[stop] - 1
    for n in range(begin, stop):
        u = batch.users[n] * width
        length = dot(users, u, users, u, width)
        for r in range(batch.starts[n], batch.starts[n + 1]):
            at, i = r * width, batch.items[r] * width
            ahead = batch.items[min(r + _AHEAD, last)] * width
            prefetch_row(items, ahead, width)
            prefetch_row(history, ahead, width)
            for k in range(0, width, LANES):
                v = near * load(history, i + k) + own * load(users, u + k)
                store(moved, at + k, v)
                store(targets, at + k, load(items, i + k))
            work.offsets[r] = -tau * dot(history, i, history, i, width) - beta * length
            square = dot(items, i, items, i, width)
            work.item_offsets[r] = bias[batch.items[r]] - (tau + beta) * square


@inner
def hide_own(batch: Batch, tile: Array, begin: int, stop: int) -> None:
    """Mask the items of a user among the negatives of the user's events."""
    start, n_negatives = batch.starts[begin], tile.shape[1]
    for n in range(begin, stop):
        own = range(batch.starts[n], batch.starts[n + 1])
        for r in own:
            place = batch.places[r]
            if place < n_negatives:
                for k in own:
                    tile[k - start, place] = MASKED


@inner
def _exponentials(
    tile: Array, offsets: Array, item_offsets: Array, sums: Array, start: int, last: int
) -> None:
    """Turn products into exponentials, in place, and add up each row."""
    size = len(item_offsets)
    for r in range(start, last):
        offset, total = fill(offsets[r]), zeros(load(item_offsets, 0))
        at = (r - start) * size
        for j in range(0, size, LANES):
            value = exp_lanes(load(tile, at + j) + offset + load(item_offsets, j))
            store(tile, at + j, value)
            total = total + value
        sums[r] = sum_lanes(total)


@inner
def _own_targets(config: ScoreConfig, batch: Batch, work: Workspace, n: int) -> float:
    """Each event of a user as a target of the others: loss, and gradients but for the negatives'.

    Targets are looked at a chunk at a time.
    """
    begin, stop = batch.starts[n], batch.starts[n + 1]
    rows, loss = stop - begin, 0.0
    for r in range(begin, stop):
        work.sum_slopes[r] = work.others[r] = 0
    for start in range(begin, stop, CHUNK):
        last = min(start + CHUNK, stop)
        size = last - start
        cells = work.pairs[begin * CHUNK : begin * CHUNK + -(-rows * size // LANES) * LANES]
        pairs = cells[: rows * size].reshape(rows, size)
        if rows <= _SHORT:
            _multiply_few(work.moved, work.targets, pairs, begin)
        else:
            np.dot(work.moved[begin:stop], work.targets[start:last].T, pairs)
        for r in range(rows):
            for i in range(size):
                pairs[r, i] += work.offsets[begin + r] + work.item_offsets[start + i]
        for at in range(0, len(cells), LANES):
            store(cells, at, exp_lanes(load(cells, at)))
        likelihoods, rest = work.target_offset_slopes[start:last], work.rest[start:last]
        _count(config, work.sums[begin:stop], pairs, likelihoods, rest, start - begin)
        for i in range(size):
            if rest[i] == 0:  # no other item in the history: no gradient
                likelihoods[i] = work.item_offsets[start + i] = 0
                continue
            weight, likelihood = batch.weights[start + i], max(likelihoods[i], TINY)
            partition = likelihood + rest[i]
            loss += weight * (math.log(partition) - math.log(likelihood))
            rest[i] = weight / partition
            slope = rest[i] - weight / likelihood
            work.item_offsets[start + i] = slope
            likelihoods[i] = slope * likelihoods[i]  # the gradient by h from here on
        _give_back(config, work, pairs, begin, start)
        if rows <= _SHORT:
            _multiply_back(work, pairs, begin)
            continue
        np.dot(pairs.T, work.moved[begin:stop], work.target_slopes[start:last])
        _add_moved(work, pairs, begin, start)
    return loss


@inner
def _multiply_few(moved: Array, targets: Array, pairs: Array, begin: int) -> None:
    """Products of a short history with itself, for which BLAS takes longer to start."""
    width, size = moved.shape[1], len(pairs)
    left, right = moved.reshape(-1), targets.reshape(-1)
    for r in range(size):
        for i in range(size):
            pairs[r, i] = dot(left, (begin + r) * width, right, (begin + i) * width, width)


@inner
def _multiply_back(work: Workspace, pairs: Array, begin: int) -> None:
    """Gradients by v and b of a short history from those by its pairs."""
    width, size = work.moved.shape[1], len(pairs)
    moved, targets = work.moved.reshape(-1), work.targets.reshape(-1)
    moved_slopes, target_slopes = work.moved_slopes.reshape(-1), work.target_slopes.reshape(-1)
    for r in range(size):
        for k in range(begin * width, (begin + 1) * width, LANES):
            total = zeros(load(targets, k))
            other = total
            for i in range(size):
                total = total + fill(pairs[r, i]) * load(targets, k + i * width)
                other = other + fill(pairs[i, r]) * load(moved, k + i * width)
            store(moved_slopes, k + r * width, total)
            store(target_slopes, k + r * width, other)


@inner
def _add_moved(work: Workspace, pairs: Array, begin: int, start: int) -> None:
    """Add to the gradients by v of a long history what a chunk of targets gives."""
    (rows, size), width = pairs.shape, work.moved.shape[1]
    slopes, targets = work.moved_slopes[begin : begin + rows], work.targets[start : start + size]
    if start == begin:
        np.dot(pairs, targets, slopes)
        return
    more = work.scaled[begin : begin + rows]
    np.dot(pairs, targets, more)
    flat_slopes, flat_more = slopes.reshape(-1), more.reshape(-1)
    for r in range(rows):
        add_scaled(flat_slopes, r * width, flat_more, r * width, width, np.float32(1))


@inlined
def _count(
    config: ScoreConfig, sums: Array, pairs: Array, likelihoods: Array, rest: Array, first: int
) -> None:
    """Multiply pairs by the weights w of their places, and sum them for each target: N and w F.

    `first` is the place of the first target in the history. Pairs of an event with itself become 0.
    """
    rows, size = pairs.shape
    for i in range(size):
        likelihoods[i] = rest[i] = 0
    for k in range(rows):
        here = k - first
        for i in range(min(max(here, 0), size)):
            weight = config.future[here - i]
            pairs[k, i] *= weight
            likelihoods[i] += pairs[k, i]
            rest[i] += weight * sums[k]
        if 0 <= here < size:
            pairs[k, here] = 0
        for i in range(max(here + 1, 0), size):
            weight = config.past[i - here]
            pairs[k, i] *= weight
            likelihoods[i] += pairs[k, i]
            rest[i] += weight * sums[k]


@inlined
def _give_back(config: ScoreConfig, work: Workspace, pairs: Array, begin: int, start: int) -> None:
    """Turn pairs into gradients, and sum those by F (`sum_slopes`) and by e (`others`)."""
    rows, size = pairs.shape
    for k in range(rows):
        here, share, offset = begin + k - start, np.float32(0), np.float32(0)
        for i in range(min(max(here, 0), size)):
            share += config.future[here - i] * work.rest[start + i]
        for i in range(max(here + 1, 0), size):
            share += config.past[i - here] * work.rest[start + i]
        for i in range(size):
            pairs[k, i] *= work.item_offsets[start + i]
        # A loop without stores: else the alignment of memory would decide the order of the sum.
        for i in range(size):
            offset += pairs[k, i]
        work.sum_slopes[begin + k] += share
        work.others[begin + k] += offset


@inner
def _move_users(
    config: ScoreConfig, batch: Batch, params: MixtureParams, work: Workspace, begin: int, stop:
    int, step: AdamStep,
) -> None:  # fmt: skip
    """Apply the gradients of some users of a batch."""
    width, scale = work.moved.shape[1], fill(np.float32(2 * config.beta))
    users, moved = flat(params.users), work.moved_slopes.reshape(-1)
    slopes = work.scaled.reshape(-1)
    for n in range(begin, stop):
        start, total = batch.starts[n], np.float32(0)
        at = start * width  # the scaled rows are no longer needed
        clear(slopes, at, width)
        for r in range(start, batch.starts[n + 1]):
            add_scaled(slopes, at, moved, r * width, width, np.float32(1))
            total += work.sums[r]
        add_scaled(slopes, at, users.values, batch.users[n] * width, width, -total)
        for k in range(at, at + width, LANES):
            store(slopes, k, scale * load(slopes, k))
        move_row(users, batch.users[n] * width, width, slopes, at, step)
