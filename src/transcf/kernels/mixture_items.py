"""What a batch of the mixture does to items: gradients added up by item, in a fixed order."""

from typing import Any

import numpy as np

from . import Array, inlined, inner
from .adam import Step, flat, move_number, move_row, prefetch_moving
from .lanes import LANES, fill, load, store
from .mixture import MASKED, Negatives, Points, ScoreConfig, Workspace
from .mixture_batches import NO_SLOT, SHARDS, Batch
from .rows import add_scaled, clear, copy, dot

#: Rows that are asked for before they are needed.
_AHEAD = 3


@inner
def show_negatives(
    kernel: ScoreConfig, batch: Batch, points: Points, stand_for: Array, negatives: Negatives,
    first: int, end: int,
) -> None:  # fmt: skip
    """Put the negatives first..end-1 where shards look for them.

    Args:
        kernel: The numbers of the score.
        batch: Which items they are.
        points: What is learned.
        stand_for: Logarithms of how many items each item stands for, (n_items,).
        negatives: Out.
        first: Place among all places for negatives.
        end: Place among all places for negatives.
    """
    width, gamma = points.items.values.shape[1], np.float32(kernel.tau + kernel.beta)
    items, into = points.items.values.reshape(-1), negatives.vectors.reshape(-1)
    for place in range(first, end):
        row = batch.touched[place]
        if row == NO_SLOT:
            negatives.heights[place] = MASKED
            continue
        copy(into, place * width, items, row * width, width)
        square = dot(items, row * width, items, row * width, width)
        negatives.heights[place] = points.bias.values[row] - gamma * square + stand_for[row]


@inner
def move_items(
    kernel: ScoreConfig, batch: Batch, points: Points, work: Workspace, tied: bool, has_bias: bool,
    step: Step, first: int, end: int,
) -> None:  # fmt: skip
    """Move the items at places first..end-1 by what shards and events say.

    Args:
        kernel: The numbers of the score.
        batch: Which items they are, and their events.
        points: Moved in place.
        work: Gradients by b and h of negatives and events, and by v and e of events.
        tied: Whether b and p are the same vectors.
        has_bias: Whether c is learned.
        step: How far.
        first: Place among those of the batch.
        end: Place among those of the batch.
    """
    width = points.items.values.shape[1]
    items, history = flat(points.items), flat(points.history)
    gamma, tau = np.float32(2 * (kernel.tau + kernel.beta)), np.float32(2 * kernel.tau)
    target_slopes, moved_slopes = work.target_slopes.reshape(-1), work.moved_slopes.reshape(-1)
    shard_slopes = work.negative_slopes.reshape(-1)
    by_item, by_moved = np.empty(width, np.float32), np.empty(width, np.float32)
    one = np.float32(1)
    for place in range(first, end):
        row, ahead = batch.touched[place], min(place + _AHEAD, end - 1)
        if batch.touched[ahead] != NO_SLOT:
            prefetch_moving(items, batch.touched[ahead] * width, width)
            if batch.firsts[ahead] < batch.firsts[ahead + 1]:
                prefetch_moving(history, batch.touched[ahead] * width, width)
        if row == NO_SLOT:
            continue
        start, by_height = row * width, _sum_shards(work, shard_slopes, place, by_item)
        begin, stop = batch.firsts[place], batch.firsts[place + 1]
        if begin < stop:
            by_offset = np.float32(0)
            clear(by_moved, 0, width)
            for n in range(begin, stop):
                r = batch.order[n]
                add_scaled(by_item, 0, target_slopes, r * width, width, one)
                add_scaled(by_moved, 0, moved_slopes, r * width, width, one)
                by_height += work.known[r]
                by_offset += work.sums[r]
            add_scaled(by_moved, 0, history.values, start, width, -by_offset)
            for k in range(0, width, LANES):
                store(by_moved, k, fill(tau) * load(by_moved, k))
        add_scaled(by_item, 0, items.values, start, width, -gamma * by_height)
        if begin < stop and tied:
            add_scaled(by_item, 0, by_moved, 0, width, one)
        elif begin < stop:
            move_row(history, start, width, by_moved, 0, step)
        move_row(items, start, width, by_item, 0, step)
        if has_bias:
            move_number(points.bias, row, by_height, step)


@inlined
def _sum_shards(work: Workspace, slopes: Array, place: int, by_item: Array) -> Any:
    """Add up what shards give an item as a negative: by b, and returned by h."""
    _, n_negatives, width = work.negative_slopes.shape
    if place >= n_negatives:
        clear(by_item, 0, width)
        return np.float32(0)
    by_height = np.float32(0)
    for k in range(0, width, LANES):
        at = place * width + k
        total = load(slopes, at)
        for shard in range(1, SHARDS):
            total = total + load(slopes, shard * n_negatives * width + at)
        store(by_item, k, total)
    for shard in range(SHARDS):
        by_height += work.negative_heights[shard, place]
    return by_height
