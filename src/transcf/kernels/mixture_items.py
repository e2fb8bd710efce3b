"""What a batch of the mixture does to items: gradients added up by item, in a fixed order."""

import math
from typing import NamedTuple

import numpy as np

from . import Array, compiled
from .lanes import LANES, fill, load, store
from .mixture import NOTHING, Batch, Kernel, Negatives, Work
from .rows import add_scaled, clear, copy, dot


class Touched(NamedTuple):
    """Items of a batch, negatives first, then the others in the order in which they come.

    Attributes:
        rows: Their rows, -1 for none, (n,) int32; long enough for any batch.
        by_item: Gradients by b, (n, width).
        by_height: Gradients by h, (n,).
        by_moved: Gradients by v, (n, width).
        by_offset: Gradients by e, (n,).
        has_events: Whether the item is of one of the batch's events, (n,) bool.
    """

    rows: Array
    by_item: Array
    by_height: Array
    by_moved: Array
    by_offset: Array
    has_events: Array


@compiled
def show_negatives(
    kernel: Kernel, rows: Array, items: Array, bias: Array, stand_for: float,
    negatives: Negatives, touched: Touched, first: int, end: int,
) -> None:  # fmt: skip
    """Put the negatives first..end-1 where the other kernels look for them; the last are none.

    Args:
        kernel: The numbers of the score.
        rows: Item rows, each once, (n,).
        items: b, (n_items, width).
        bias: c, (n_items,).
        stand_for: How many items each of them stands for.
        negatives: Out.
        touched: Out: their rows.
        first: Place among all places for negatives.
        end: Place among all places for negatives.
    """
    width, gamma = items.shape[1], np.float32(kernel.tau + kernel.beta)
    flat, into, more = items.reshape(-1), negatives.vectors.reshape(-1), math.log(stand_for)
    for j in range(first, end):
        if j >= len(rows):
            touched.rows[j], negatives.heights[j] = -1, NOTHING
            continue
        row = rows[j]
        touched.rows[j], negatives.slots[row] = row, j
        copy(into, j * width, flat, row * width, width)
        square = dot(flat, row * width, flat, row * width, width)
        negatives.heights[j] = bias[row] - gamma * square + np.float32(more)


@compiled
def sum_negatives(work: Work, touched: Touched, first: int, end: int) -> None:
    """Add up what shards give the negatives first..end-1."""
    n_shards, n_negatives, width = work.negative_slopes.shape
    into, slopes = touched.by_item.reshape(-1), work.negative_slopes.reshape(-1)
    moved = touched.by_moved.reshape(-1)
    for j in range(first, end):
        touched.by_height[j] = work.negative_heights[0, j]
        touched.by_offset[j] = 0
        touched.has_events[j] = False
        clear(moved, j * width, width)
        for k in range(j * width, (j + 1) * width, LANES):
            total = load(slopes, k)
            for shard in range(1, n_shards):
                total = total + load(slopes, shard * n_negatives * width + k)
            store(into, k, total)
        for shard in range(1, n_shards):
            touched.by_height[j] += work.negative_heights[shard, j]


@compiled
def add_events(batch: Batch, negatives: Negatives, work: Work, touched: Touched) -> int:
    """Add what the batch's events give their items; returns how many items are touched."""
    n_touched, width = negatives.vectors.shape
    into, moved = touched.by_item.reshape(-1), touched.by_moved.reshape(-1)
    slopes, moved_slopes = work.target_slopes.reshape(-1), work.moved_slopes.reshape(-1)
    one = np.float32(1)
    for r in range(len(batch.items)):
        item = batch.items[r]
        slot = negatives.slots[item]
        if slot < 0:
            slot = n_touched
            n_touched += 1
            negatives.slots[item], touched.rows[slot] = slot, item
            clear(into, slot * width, width)
            clear(moved, slot * width, width)
            touched.by_height[slot] = touched.by_offset[slot] = 0
        touched.has_events[slot] = True
        add_scaled(into, slot * width, slopes, r * width, width, one)
        add_scaled(moved, slot * width, moved_slopes, r * width, width, one)
        touched.by_height[slot] += work.known[r]
        touched.by_offset[slot] += work.sums[r]
    return n_touched


@compiled
def item_slopes(
    kernel: Kernel, touched: Touched, items: Array, history: Array, tied: bool, first: int, end: int
) -> None:
    """Turn gradients by h, v and e of the items first..end-1 into those by b and p, in place."""
    width = items.shape[1]
    flat_items, flat_history = items.reshape(-1), history.reshape(-1)
    by_item, by_moved = touched.by_item.reshape(-1), touched.by_moved.reshape(-1)
    gamma, tau = np.float32(2 * (kernel.tau + kernel.beta)), np.float32(2 * kernel.tau)
    for n in range(first, end):
        row, at = touched.rows[n], n * width
        if row < 0:
            continue
        add_scaled(by_item, at, flat_items, row * width, width, -gamma * touched.by_height[n])
        if touched.has_events[n]:
            add_scaled(by_moved, at, flat_history, row * width, width, -touched.by_offset[n])
            for k in range(at, at + width, LANES):
                store(by_moved, k, fill(tau) * load(by_moved, k))
            if tied:
                add_scaled(by_item, at, by_moved, at, width, np.float32(1))
