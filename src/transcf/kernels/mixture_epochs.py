"""Epochs of the mixture: batches one after the other, each shared among threads in four phases.

1. `fill_batch` (in `mixture_batches`) fills in users and events and draws the negatives.
2. `copy_negatives` copies the vectors of the negatives to contiguous memory.
3. `run_shard` (in `mixture`) computes loss and gradients of a shard and updates its users;
   without user vectors, `run_context_shard` (in `mixture_context`) computes them.
4. `move_items` updates the items.

Each phase waits for the one before. The parts of a phase are fixed, and gradients of an item are
summed in a fixed order, so that results do not depend on threads.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from . import Array
from .ahead import Job, address_of, call_at, compile_ahead
from .decorators import apart, compiled, inlined, inner
from .lanes import LANES, fill, load, store
from .mixture import MASKED, MixtureParams, Negatives, ScoreConfig, Workspace, run_shard
from .mixture_batches import NO_SLOT, SHARDS, Batch, EpochPlan, EventArrays, fill_batch
from .mixture_context import run_context_shard
from .rounds import NONE, add_to, look_at, share_tickets
from .rows import AdamStep, add_scaled, clear, copy, dot, flat, move_bias, move_row, prefetch_state

#: Rows that are asked for before they are needed.
_AHEAD = 3


@inner
def copy_negatives(
    config: ScoreConfig, batch: Batch, params: MixtureParams, log_counts: Array,
    negatives: Negatives, first: int, end: int,
) -> None:  # fmt: skip
    """Copy the negatives at places first..end-1 to `negatives`, from which shards read them."""
    width, gamma = params.items.values.shape[1], np.float32(config.tau + config.beta)
    items, into = params.items.values.reshape(-1), negatives.vectors.reshape(-1)
    for place in range(first, end):
        row = batch.touched[place]
        if row == NO_SLOT:
            negatives.item_offsets[place] = MASKED
            continue
        copy(into, place * width, items, row * width, width)
        square = dot(items, row * width, items, row * width, width)
        negatives.item_offsets[place] = params.bias.values[row] - gamma * square + log_counts[row]


@inner
def move_items(
    config: ScoreConfig, batch: Batch, params: MixtureParams, work: Workspace, tied: bool,
    step: AdamStep, first: int, end: int,
) -> None:  # fmt: skip
    """Update the items at places first..end-1 by the gradients of shards and events."""
    width = params.items.values.shape[1]
    items, history = flat(params.items), flat(params.history)
    gamma, tau = np.float32(2 * (config.tau + config.beta)), np.float32(2 * config.tau)
    target_slopes, moved_slopes = work.target_slopes.reshape(-1), work.moved_slopes.reshape(-1)
    shard_slopes = work.negative_slopes.reshape(-1)
    by_item, by_moved = np.empty(width, np.float32), np.empty(width, np.float32)
    one = np.float32(1)
    for place in range(first, end):
        row, ahead = batch.touched[place], min(place + _AHEAD, end - 1)
        if batch.touched[ahead] != NO_SLOT:
            prefetch_state(items, batch.touched[ahead] * width, width)
            if batch.firsts[ahead] < batch.firsts[ahead + 1]:
                prefetch_state(history, batch.touched[ahead] * width, width)
        if row == NO_SLOT:
            continue
        start, by_item_offset = row * width, _sum_shards(work, shard_slopes, place, by_item)
        begin, stop = batch.firsts[place], batch.firsts[place + 1]
        if begin < stop:
            by_event_offset = np.float32(0)
            clear(by_moved, 0, width)
            for n in range(begin, stop):
                r = batch.order[n]
                add_scaled(by_item, 0, target_slopes, r * width, width, one)
                add_scaled(by_moved, 0, moved_slopes, r * width, width, one)
                by_item_offset += work.target_offset_slopes[r]
                by_event_offset += work.sums[r]
            add_scaled(by_moved, 0, history.values, start, width, -by_event_offset)
            for k in range(0, width, LANES):
                store(by_moved, k, fill(tau) * load(by_moved, k))
        add_scaled(by_item, 0, items.values, start, width, -gamma * by_item_offset)
        if begin < stop and tied:
            add_scaled(by_item, 0, by_moved, 0, width, one)
        elif begin < stop:
            move_row(history, start, width, by_moved, 0, step)
        move_row(items, start, width, by_item, 0, step)
        move_bias(params.bias, row, by_item_offset, step)


@inlined
def _sum_shards(work: Workspace, slopes: Array, place: int, by_item: Array) -> Any:
    """Sum the gradients of a negative over shards: by b into `by_item`; returns that by h."""
    _, n_negatives, width = work.negative_slopes.shape
    if place >= n_negatives:
        clear(by_item, 0, width)
        return np.float32(0)
    by_item_offset = np.float32(0)
    for k in range(0, width, LANES):
        at = place * width + k
        total = load(slopes, at)
        for shard in range(1, SHARDS):
            total = total + load(slopes, shard * n_negatives * width + at)
        store(by_item, k, total)
    for shard in range(SHARDS):
        by_item_offset += work.negative_offset_slopes[shard, place]
    return by_item_offset


#: Parts of the phases in which negatives are copied and items are updated.
_COPY_PARTS, _MOVE_PARTS = 4, 8
#: Tickets of a batch: one to fill it, then those of the other phases, which start here.
_COPY, _RUN = 1, 1 + _COPY_PARTS
_MOVE = _RUN + SHARDS
_TICKETS = _MOVE + _MOVE_PARTS
#: Reads of a counter before a thread yields, which takes about as long.
_SPIN_LIMIT = 40_000
#: Exponentials of a batch that are worth a second thread.
_WORTH_SHARING = 1 << 16


class StepConfig(NamedTuple):
    """Constants of the training steps."""

    n_drawn: int  # negatives of a batch
    tied: bool  # whether b and p are the same vectors
    power: int  # how rows are projected into the unit ball, see `bring_into_ball`
    user_rate: float  # step size of users, as a multiple of that of items
    has_users: bool = True  # whether users have vectors; else positions are means of contexts


class MixtureEpoch(NamedTuple):
    """What the batches of an epoch have in common."""

    config: ScoreConfig  # constants of the score
    step_config: StepConfig  # constants of the steps
    log: EventArrays  # the training events
    plan: EpochPlan  # the batches of this epoch
    rates: Array  # step size of each batch, see `step_sizes`, (n_batches,) float64
    params: MixtureParams  # the trained arrays, changed in place


def run_batches(
    epoch: MixtureEpoch, batch: Batch, negatives: Negatives, work: Workspace, losses: Array,
    first: int, end: int, *, half: int | None = None,
) -> None:  # fmt: skip
    """Take a step on each of the batches first..end-1 of an epoch.

    `batch`, `negatives` and `work` are memory for the largest batch; losses are written to
    `losses`, (n_batches, SHARDS) float64. Of a single batch, `half` 0 runs phases 1 to 3 and 1 runs
    phase 4; between the halves, processes exchange gradients of items.
    """
    start, stop = first * _TICKETS, end * _TICKETS
    start, stop = (start + (half == 1) * _MOVE, start + _MOVE if half == 0 else stop)
    is_large = len(batch.items) * len(negatives.item_offsets) >= _WORTH_SHARING
    counters = np.full(2, start)
    shard = run_shard if epoch.step_config.has_users else run_context_shard
    given = (*epoch, batch, negatives, work)
    step = AdamStep(0.0, 0)
    shard_job = Job.of(shard, epoch.config, batch, epoch.params, negatives, work, 0, step)
    # Another process compiles the largest kernel, if it is not compiled yet, and this one the rest.
    compile_ahead([shard_job])
    run_other_at = address_of(Job.of(_run_other, *given, 0))
    arguments: Any = (*given, losses, stop, counters)
    address_of(Job.of(_take_part, 0, 0, *arguments, NONE))
    run_shard_at = address_of(shard_job)
    share_tickets(
        partial(_take_part, run_shard_at, run_other_at, *arguments), most=SHARDS if is_large else 1
    )


@inlined
def _start_of(place: int) -> int:
    """The first ticket of the phase of a ticket, both counted within the batch."""
    if place < _COPY:
        return 0
    if place < _RUN:
        return _COPY
    return _RUN if place < _MOVE else _MOVE


@inlined
def _is_ready(counters: Array, ticket: int) -> bool:
    """Wait for the phases before that of a ticket; returns False if that takes too long."""
    place = ticket % _TICKETS
    looks, before = 0, ticket - place + _start_of(place)
    while look_at(counters, 1) < before:
        looks += 1
        if looks > _SPIN_LIMIT:
            return False
    return True


@apart
def _run_other(
    config: ScoreConfig, step_config: StepConfig, log: EventArrays, plan: EpochPlan, rates: Array,
    params: MixtureParams, batch: Batch, negatives: Negatives, work: Workspace, ticket: int,
) -> float:  # fmt: skip
    """Do a part of phase 1, 2 or 4."""
    number, place, n_places = ticket // _TICKETS, ticket % _TICKETS, len(negatives.item_offsets)
    if place < _COPY:
        fill_batch(log, plan, number, batch, step_config.n_drawn, n_places)
    elif place < _RUN:
        part = place - _COPY
        begin, stop = n_places * part // _COPY_PARTS, n_places * (part + 1) // _COPY_PARTS
        copy_negatives(config, batch, params, log.log_counts, negatives, begin, stop)
    else:
        part, size, step = place - _MOVE, batch.size[0], AdamStep(rates[number], step_config.power)
        begin, stop = size * part // _MOVE_PARTS, size * (part + 1) // _MOVE_PARTS
        move_items(config, batch, params, work, step_config.tied, step, begin, stop)
    return 0.0


@compiled
def _take_part(
    run_shard_at: int, run_other_at: int, config: ScoreConfig, step_config: StepConfig,
    log: EventArrays, plan: EpochPlan, rates: Array, params: MixtureParams, batch: Batch,
    negatives: Negatives, work: Workspace, losses: Array, end: int, counters: Array, ticket: int,
) -> int:  # fmt: skip
    """Take parts of phases and do them; see `share_tickets`.

    `counters` hold the next ticket, and how many are done.
    """
    if ticket == NONE:
        ticket = add_to(counters, 0, 1)
    while ticket < end:
        if not _is_ready(counters, ticket):
            return ticket
        number, shard = ticket // _TICKETS, ticket % _TICKETS - _RUN
        if 0 <= shard < SHARDS:
            step = AdamStep(step_config.user_rate * rates[number], step_config.power)
            losses[number, shard] = call_at(
                run_shard_at, config, batch, params, negatives, work, shard, step
            )
        else:
            call_at(
                run_other_at, config, step_config, log, plan, rates, params, batch, negatives,
                work, ticket,
            )  # fmt: skip
        add_to(counters, 1, 1)
        ticket = add_to(counters, 0, 1)
    return NONE
