"""Epochs of the mixture: batches one after the other, each shared among threads in four phases.

A batch is drawn, its negatives are copied, its shards are computed (which moves their users), and
its items are moved. Each phase waits for the one before. The parts of a phase are fixed, and
gradients of an item are added up in a fixed order, so that results do not depend on threads.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from . import Array
from .adam import AdamStep, flat, move_number, move_row, prefetch_moving
from .decorators import compiled, inlined, inner
from .lanes import LANES, fill, load, store
from .mixture import MASKED, MixtureParams, Negatives, ScoreConfig, Workspace, run_shard
from .mixture_batches import NO_SLOT, SHARDS, Batch, EpochPlan, EventArrays, deal
from .rows import add_scaled, clear, copy, dot
from .tickets import NONE, add_to, look_at, share_tickets

#: Rows that are asked for before they are needed.
_AHEAD = 3


@inner
def show_negatives(
    kernel: ScoreConfig, batch: Batch, points: MixtureParams, log_counts: Array,
    negatives: Negatives, first: int, end: int,
) -> None:  # fmt: skip
    """Put the negatives first..end-1 where shards look for them.

    Args:
        kernel: The numbers of the score.
        batch: Which items they are.
        points: What is learned.
        log_counts: Logarithm of the number of items that each represents, (n_items,).
        negatives: Out.
        first: Place among all places for negatives.
        end: Place among all places for negatives.
    """
    width, gamma = points.items.values.shape[1], np.float32(kernel.tau + kernel.beta)
    items, into = points.items.values.reshape(-1), negatives.vectors.reshape(-1)
    for place in range(first, end):
        row = batch.touched[place]
        if row == NO_SLOT:
            negatives.item_offsets[place] = MASKED
            continue
        copy(into, place * width, items, row * width, width)
        square = dot(items, row * width, items, row * width, width)
        negatives.item_offsets[place] = points.bias.values[row] - gamma * square + log_counts[row]


@inner
def move_items(
    kernel: ScoreConfig, batch: Batch, points: MixtureParams, work: Workspace, tied: bool,
    has_bias: bool, step: AdamStep, first: int, end: int,
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
        by_height += work.negative_offset_slopes[shard, place]
    return by_height


#: Parts of the phases in which negatives are shown and items are moved.
_SHOWING, _MOVING = 4, 8
#: Tickets of a batch: where its phases start.
_SHOW, _RUN = 1, 1 + _SHOWING
_MOVE = _RUN + SHARDS
_TICKETS = _MOVE + _MOVING
#: Looks at a counter before the thread is given up: coming back takes about as long.
_PATIENCE = 40_000
#: Exponentials of a batch that are worth a second thread.
_WORTH_SHARING = 1 << 16


class Rules(NamedTuple):
    """What steps keep to.

    Attributes:
        n_drawn: Negatives of a batch.
        tied: Whether b and p are the same vectors.
        has_bias: Whether c is learned.
        power: How rows are brought into the ball, see `bring_into_ball`.
        user_rate: How far users are moved, as a multiple of how far items are.
    """

    n_drawn: int
    tied: bool
    has_bias: bool
    power: int
    user_rate: float


class MixtureEpoch(NamedTuple):
    """What the batches of an epoch have in common.

    Attributes:
        kernel: The numbers of the score.
        rules: What steps keep to.
        log: What is learned from.
        plan: The batches of this epoch.
        rates: Step sizes for each, see `adam.step_sizes`, (n_batches,) float64.
        points: What is learned, changed in place.
    """

    kernel: ScoreConfig
    rules: Rules
    log: EventArrays
    plan: EpochPlan
    rates: Array
    points: MixtureParams


def run_batches(
    epoch: MixtureEpoch, batch: Batch, negatives: Negatives, work: Workspace, losses: Array,
    first: int, end: int,
) -> None:  # fmt: skip
    """Take a step on each of the batches first..end-1 of an epoch.

    Args:
        epoch: What they have in common.
        batch: Memory for the largest batch.
        negatives: Memory for what is drawn.
        work: Memory for the largest batch.
        losses: Out, (n_batches, SHARDS) float64.
        first: Number of a batch.
        end: Number of a batch.
    """
    _run(epoch, batch, negatives, work, losses, first * _TICKETS, end * _TICKETS)


def run_shards(
    epoch: MixtureEpoch,
    batch: Batch,
    negatives: Negatives,
    work: Workspace,
    losses: Array,
    number: int,
) -> None:
    """The first half of a step: work a batch out, and move its users; see `run_batches`."""
    first = number * _TICKETS
    _run(epoch, batch, negatives, work, losses, first, first + _MOVE)


def move_batch(
    epoch: MixtureEpoch,
    batch: Batch,
    negatives: Negatives,
    work: Workspace,
    losses: Array,
    number: int,
) -> None:
    """The second half: move the items of a batch that has been worked out."""
    first = number * _TICKETS
    _run(epoch, batch, negatives, work, losses, first + _MOVE, first + _TICKETS)


def _run(
    epoch: MixtureEpoch, batch: Batch, negatives: Negatives, work: Workspace, losses: Array,
    first: int, end: int,
) -> None:  # fmt: skip
    """Do the tickets first..end-1 of an epoch."""
    is_large = len(batch.items) * len(negatives.item_offsets) >= _WORTH_SHARING
    counters = np.full(2, first)
    work_on = partial(_take_part, *epoch, batch, negatives, work, losses, end, counters)
    share_tickets(work_on, most=SHARDS if is_large else 1)


@inlined
def _start_of(place: int) -> int:
    """The first ticket of the phase of a ticket, both counted within the batch."""
    if place < _SHOW:
        return 0
    if place < _RUN:
        return _SHOW
    return _RUN if place < _MOVE else _MOVE


@compiled
def _take_part(
    kernel: ScoreConfig, rules: Rules, log: EventArrays, plan: EpochPlan, rates: Array,
    points: MixtureParams, batch: Batch, negatives: Negatives, work: Workspace, losses: Array,
    end: int, counters: Array, ticket: int,
) -> int:  # fmt: skip
    """Take parts of phases and do them; see `share_tickets`.

    `counters` hold the next ticket, and how many are done.
    """
    n_places = len(negatives.item_offsets)
    if ticket == NONE:
        ticket = add_to(counters, 0, 1)
    while ticket < end:
        number, place = ticket // _TICKETS, ticket % _TICKETS
        looks, before = 0, ticket - place + _start_of(place)
        while look_at(counters, 1) < before:
            looks += 1
            if looks > _PATIENCE:
                return ticket
        if place < _SHOW:
            deal(log, plan, number, batch, rules.n_drawn, n_places)
        elif place < _RUN:
            part = place - _SHOW
            begin, stop = n_places * part // _SHOWING, n_places * (part + 1) // _SHOWING
            show_negatives(kernel, batch, points, log.log_counts, negatives, begin, stop)
        elif place < _MOVE:
            shard, step = place - _RUN, AdamStep(rules.user_rate * rates[number], rules.power)
            losses[number, shard] = run_shard(kernel, batch, points, negatives, work, shard, step)
        else:
            part, size, step = place - _MOVE, batch.size[0], AdamStep(rates[number], rules.power)
            begin, stop = size * part // _MOVING, size * (part + 1) // _MOVING
            move_items(kernel, batch, points, work, rules.tied, rules.has_bias, step, begin, stop)
        add_to(counters, 1, 1)
        ticket = add_to(counters, 0, 1)
    return NONE
