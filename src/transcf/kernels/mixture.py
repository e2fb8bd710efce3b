"""One batch of the mixture of translations: losses and gradients by matrix products.

A batch is a run of events, whole users one after the other. With v_k = 2 tau p_k + 2 beta a_u and
e_k = -tau |p_k|^2 - beta |a_u|^2 for event k of user u, and h_j = c_j - (tau + beta) |b_j|^2,

    s(u, j) = log sum_k w_k exp(v_k . b_j + e_k + h_j).

E_kj, the exponentials for shared negatives j, are made once. Their sums F_k are all that targets
need of them: the partition of target i is N_i + sum_k w_ik F_k, where w_ik says how much event k
counts for it and w_ii = 0, so that a target is left out of its own history at no cost. Gradients go
back the same way: E is multiplied once by the negatives and once by the events, scaled by row.

A batch is cut into shards of whole users. Each writes to memory of its own, so that results do not
depend on who runs them.
"""

import math
from typing import NamedTuple

import numpy as np

from . import Array, compiled, inlined, inner
from .exponentials import exp_lanes
from .lanes import LANES, fill, load, store, sum_lanes, zeros
from .rows import add_scaled, clear, dot

#: Targets of a long history that are looked at together.
CHUNK = 512
#: Short histories are put together up to so many events for a product.
_TOGETHER = 64
#: Exponents of what is to count nothing.
NOTHING = np.float32(-1e30)
#: The least that a likelihood counts as, so that weights over it stay finite.
_TINY = np.float32(1e-30)
#: Where nothing lies beneath the scores.
_NO_LIFTS = np.zeros(0, np.float32), np.zeros((0, 0), np.float32)


class Batch(NamedTuple):
    """Whose events are looked at.

    Attributes:
        users: Rows of the users, (n,) int32.
        starts: Where the events of each start, (n + 1,) int64.
        shards: Where shards start, in users, (n_shards + 1,) int64.
        items: Item rows of the events, oldest first, (n_events,) int32.
        weights: How much events count as targets, (n_events,) float32.
        lifts: What is added to the scores of targets, (n_events,) float32; (0,) for nothing.
        lifts_of_negatives: The same by user, (n, n_negatives) float32; (0, 0) for nothing.
    """

    users: Array
    starts: Array
    shards: Array
    items: Array
    weights: Array
    lifts: Array = _NO_LIFTS[0]
    lifts_of_negatives: Array = _NO_LIFTS[1]


class Kernel(NamedTuple):
    """The numbers of the score.

    Attributes:
        tau: How sharply nearness to a moved point counts.
        beta: The same for the user's own.
        past: Weights of events by how many places they are before the target, (longest,) float32.
        future: The same after it.
    """

    tau: float
    beta: float
    past: Array
    future: Array


class Negatives(NamedTuple):
    """Items that all targets of a batch are compared with.

    Attributes:
        vectors: b, (n, width) float32; n is a multiple of 16, rows of zeros fill up.
        heights: h, with the logarithm of how many items each stands for, (n,) float32.
        slots: For each item its place among them, or -1, (n_items,) int32.
    """

    vectors: Array
    heights: Array
    slots: Array


class Work(NamedTuple):
    """Memory of a batch: rows for its events, and for each shard what it gives the negatives.

    Attributes:
        moved: v, (n_events, width).
        offsets: e, (n_events,).
        targets: b of the events' items, (n_events, width).
        heights: h of them, (n_events,).
        tile: E, flat, (n_events * n_negatives,).
        pairs: The same for events of one user, flat, (n_events * CHUNK,).
        sums: F, then gradients by e, (n_events,).
        shares: G: gradients by F, (n_events,).
        known: N of targets, then gradients by h, (n_events,).
        others: The rest of the partitions, (n_events,).
        moved_slopes: Gradients by v, (n_events, width).
        target_slopes: Gradients by b of the events' items, (n_events, width).
        scaled: (n_events, width), scratch.
        negative_slopes: Gradients by b of the negatives, (n_shards, n_negatives, width).
        negative_heights: The same by h, (n_shards, n_negatives).
        losses: (n_shards,) float64.
    """

    moved: Array
    offsets: Array
    targets: Array
    heights: Array
    tile: Array
    pairs: Array
    sums: Array
    shares: Array
    known: Array
    others: Array
    moved_slopes: Array
    target_slopes: Array
    scaled: Array
    negative_slopes: Array
    negative_heights: Array
    losses: Array


@compiled
def gather(
    kernel: Kernel, batch: Batch, users: Array, items: Array, history: Array, bias: Array,
    work: Work, first: int, end: int,
) -> None:  # fmt: skip
    """Bring the vectors of some shards' events together: v, e, b and h."""
    width = items.shape[1]
    flat_users, flat_items = users.reshape(-1), items.reshape(-1)
    flat_history = history.reshape(-1)
    moved, targets = work.moved.reshape(-1), work.targets.reshape(-1)
    tau, beta = np.float32(kernel.tau), np.float32(kernel.beta)
    two = np.float32(2)
    for n in range(batch.shards[first], batch.shards[end]):
        u = batch.users[n] * width
        length = dot(flat_users, u, flat_users, u, width)
        for r in range(batch.starts[n], batch.starts[n + 1]):
            at, i = r * width, batch.items[r] * width
            near = fill(two * tau)
            own = fill(two * beta)
            for k in range(0, width, LANES):
                v = near * load(flat_history, i + k) + own * load(flat_users, u + k)
                store(moved, at + k, v)
                store(targets, at + k, load(flat_items, i + k))
            work.offsets[r] = -tau * dot(flat_history, i, flat_history, i, width) - beta * length
            square = dot(flat_items, i, flat_items, i, width)
            work.heights[r] = bias[batch.items[r]] - (tau + beta) * square
            if len(batch.lifts):
                work.heights[r] += batch.lifts[r]


@compiled
def run_shards(
    kernel: Kernel, batch: Batch, negatives: Negatives, work: Work, first: int, end: int
) -> None:
    """Work out losses and gradients of some shards of a batch."""
    n_negatives, width = negatives.vectors.shape
    for shard in range(first, end):
        begin, stop = batch.shards[shard], batch.shards[shard + 1]
        start, last = batch.starts[begin], batch.starts[stop]
        rows = last - start
        if rows == 0:
            work.losses[shard] = 0
            work.negative_slopes[shard] = 0
            work.negative_heights[shard] = 0
            continue
        flat = work.tile[start * n_negatives : last * n_negatives]
        tile = flat.reshape(rows, n_negatives)
        moved = work.moved[start:last]
        np.dot(moved, negatives.vectors.T, tile)
        if len(batch.lifts_of_negatives):
            _lift(batch, flat, n_negatives, begin, stop)
        _hide_own(batch, negatives, tile, begin, stop)
        _exponentials(flat, work.offsets, negatives.heights, work.sums, start, last)
        work.losses[shard] = _own_targets(kernel, batch, work, begin, stop)
        scaled = work.scaled[start:last]
        shares = work.shares[start:last]
        flat_scaled, flat_moved = scaled.reshape(-1), moved.reshape(-1)
        flat_slopes = work.moved_slopes[start:last].reshape(-1)
        np.dot(tile, negatives.vectors, scaled)
        for r in range(rows):
            add_scaled(flat_slopes, r * width, flat_scaled, r * width, width, shares[r])
            by = fill(shares[r])
            for k in range(r * width, (r + 1) * width, LANES):
                store(flat_scaled, k, by * load(flat_moved, k))
            work.sums[start + r] = shares[r] * work.sums[start + r] + work.others[start + r]
        np.dot(tile.T, scaled, work.negative_slopes[shard])
        np.dot(tile.T, shares, work.negative_heights[shard])


@inner
def _lift(batch: Batch, tile: Array, size: int, begin: int, stop: int) -> None:
    """Add what lies beneath the scores of the negatives, the same for a user's whole history."""
    start, lifts = batch.starts[begin], batch.lifts_of_negatives.reshape(-1)
    for n in range(begin, stop):
        for r in range(batch.starts[n], batch.starts[n + 1]):
            at = (r - start) * size
            for j in range(0, size, LANES):
                store(tile, at + j, load(tile, at + j) + load(lifts, n * size + j))


@inner
def _hide_own(batch: Batch, negatives: Negatives, tile: Array, begin: int, stop: int) -> None:
    """Let a user's own items not count among the negatives."""
    start = batch.starts[begin]
    for n in range(begin, stop):
        own = range(batch.starts[n], batch.starts[n + 1])
        for r in own:
            slot = negatives.slots[batch.items[r]]
            if slot >= 0:
                for k in own:
                    tile[k - start, slot] = NOTHING


@inner
def _exponentials(
    tile: Array, offsets: Array, heights: Array, sums: Array, start: int, last: int
) -> None:
    """Turn products into exponentials, in place, and add up each row."""
    size = len(heights)
    for r in range(start, last):
        offset, total = fill(offsets[r]), zeros(load(heights, 0))
        at = (r - start) * size
        for j in range(0, size, LANES):
            value = exp_lanes(load(tile, at + j) + offset + load(heights, j))
            store(tile, at + j, value)
            total = total + value
        sums[r] = sum_lanes(total)


@inner
def _own_targets(kernel: Kernel, batch: Batch, work: Work, begin: int, stop: int) -> float:
    """Each event as a target of its user's others: loss, and gradients but for the negatives'.

    Short histories share a product, of which the blocks along the diagonal are used.
    """
    loss, first = 0.0, begin
    while first < stop:
        end = first + 1
        while end < stop and batch.starts[end + 1] - batch.starts[first] <= _TOGETHER:
            end += 1
        loss += _group(kernel, batch, work, first, end)
        first = end
    return loss


@inner
def _group(kernel: Kernel, batch: Batch, work: Work, first: int, end: int) -> float:
    """The targets of some users, a chunk at a time."""
    width = work.moved.shape[1]
    begin, stop = batch.starts[first], batch.starts[end]
    rows, loss = stop - begin, 0.0
    moved, slopes = work.moved[begin:stop], work.moved_slopes[begin:stop]
    flat_slopes, flat_scaled = slopes.reshape(-1), work.scaled[begin:stop].reshape(-1)
    work.shares[begin:stop] = 0
    work.others[begin:stop] = 0
    for start in range(begin, stop, CHUNK):
        last = min(start + CHUNK, stop)
        size = last - start
        flat = work.pairs[begin * CHUNK : begin * CHUNK + -(-rows * size // LANES) * LANES]
        pairs = flat[: rows * size].reshape(rows, size)
        targets = work.targets[start:last]
        np.dot(moved, targets.T, pairs)
        for r in range(rows):
            for i in range(size):
                pairs[r, i] += work.offsets[begin + r] + work.heights[start + i]
        for at in range(0, len(flat), LANES):
            store(flat, at, exp_lanes(load(flat, at)))
        known, rest = np.zeros(size, np.float32), np.zeros(size, np.float32)
        for n in range(first, end):
            _count(kernel, batch, work.sums, pairs, known, rest, n, begin, start)
        for i in range(size):
            weight, likelihood = batch.weights[start + i], max(known[i], _TINY)
            if rest[i] == 0:  # nobody else in the history: nothing to tell it by
                known[i] = 0
                work.known[start + i] = 0
                continue
            partition = likelihood + rest[i]
            loss += weight * (math.log(partition) - math.log(likelihood))
            rest[i] = weight / partition
            slope = rest[i] - weight / likelihood
            work.known[start + i] = slope * known[i]
            known[i] = slope
        for n in range(first, end):
            _give_back(kernel, batch, work, pairs, known, rest, n, begin, start)
        np.dot(pairs.T, moved, work.target_slopes[start:last])
        if start == begin:
            np.dot(pairs, targets, slopes)
        else:
            np.dot(pairs, targets, work.scaled[begin:stop])
            for r in range(rows):
                add_scaled(flat_slopes, r * width, flat_scaled, r * width, width, np.float32(1))
    return loss


@inlined
def _count(
    kernel: Kernel, batch: Batch, sums: Array, pairs: Array, known: Array, rest: Array,
    n: int, begin: int, start: int,
) -> None:  # fmt: skip
    """Weigh the pairs of one user by place, and add them up for each target.

    Pairs of different users become 0, and so do those of an event with itself.
    """
    own, stop, size = batch.starts[n], batch.starts[n + 1], len(known)
    low, high = max(own - start, 0), min(stop - start, size)
    for k in range(own, stop):
        row, here = k - begin, k - start
        middle = min(max(here, low), high)
        for i in range(low):
            pairs[row, i] = 0
        for i in range(low, middle):
            weight = kernel.future[here - i]
            pairs[row, i] *= weight
            known[i] += pairs[row, i]
            rest[i] += weight * sums[k]
        if low <= here < high:
            pairs[row, here] = 0
            middle += 1
        for i in range(middle, high):
            weight = kernel.past[i - here]
            pairs[row, i] *= weight
            known[i] += pairs[row, i]
            rest[i] += weight * sums[k]
        for i in range(max(low, high), size):
            pairs[row, i] = 0


@inlined
def _give_back(
    kernel: Kernel, batch: Batch, work: Work, pairs: Array, slopes: Array, shares: Array,
    n: int, begin: int, start: int,
) -> None:  # fmt: skip
    """Turn the pairs of one user into gradients, and add up what sums and offsets get."""
    own, stop, size = batch.starts[n], batch.starts[n + 1], len(slopes)
    low, high = max(own - start, 0), min(stop - start, size)
    for k in range(own, stop):
        row, here = k - begin, k - start
        middle = min(max(here, low), high)
        share, offset = np.float32(0), np.float32(0)
        for i in range(low, middle):
            share += kernel.future[here - i] * shares[i]
        for i in range(max(middle, here + 1), high):
            share += kernel.past[i - here] * shares[i]
        for i in range(low, high):
            pairs[row, i] *= slopes[i]
            offset += pairs[row, i]
        work.shares[k] += share
        work.others[k] += offset


@compiled
def user_slopes(
    kernel: Kernel, batch: Batch, work: Work, users: Array, slopes: Array, first: int, end: int
) -> None:
    """Gradients by a of the batch's users first..end-1: (n, width)."""
    width = users.shape[1]
    flat, moved, into = users.reshape(-1), work.moved_slopes.reshape(-1), slopes.reshape(-1)
    for n in range(first, end):
        at, total = n * width, np.float32(0)
        clear(into, at, width)
        for r in range(batch.starts[n], batch.starts[n + 1]):
            add_scaled(into, at, moved, r * width, width, np.float32(1))
            total += work.sums[r]
        add_scaled(into, at, flat, batch.users[n] * width, width, -total)
        scale = fill(np.float32(2 * kernel.beta))
        for k in range(at, at + width, LANES):
            store(into, k, scale * load(into, k))
