"""Epochs of the mixture: batches one after the other, each shared among threads in four phases.

A batch is dealt, its negatives are shown, shards of its users are worked out (and their users
moved), and at last the items are moved. Each phase waits for the one before. What belongs to a
part of a phase is fixed: only who does it depends on threads.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from . import Array, compiled, inlined
from .adam import Step
from .mixture import Negatives, Points, ScoreConfig, Workspace, run_shard
from .mixture_batches import SHARDS, Batch, EpochPlan, EventArrays, deal
from .mixture_items import move_items, show_negatives
from .tickets import NONE, add_to, look_at, share_tickets

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


class Epoch(NamedTuple):
    """What the batches of an epoch have in common.

    Attributes:
        kernel: The numbers of the score.
        rules: What steps keep to.
        log: What is learned from.
        dealt: The batches of this epoch.
        rates: Step sizes for each, see `adam.step_sizes`, (n_batches,) float64.
        points: What is learned, changed in place.
    """

    kernel: ScoreConfig
    rules: Rules
    log: EventArrays
    dealt: EpochPlan
    rates: Array
    points: Points


def run_batches(
    epoch: Epoch, batch: Batch, negatives: Negatives, work: Workspace, losses: Array, first: int,
    end: int,
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
    epoch: Epoch, batch: Batch, negatives: Negatives, work: Workspace, losses: Array, number: int
) -> None:
    """The first half of a step: work a batch out, and move its users; see `run_batches`."""
    first = number * _TICKETS
    _run(epoch, batch, negatives, work, losses, first, first + _MOVE)


def move_batch(
    epoch: Epoch, batch: Batch, negatives: Negatives, work: Workspace, losses: Array, number: int
) -> None:
    """The second half: move the items of a batch that has been worked out."""
    first = number * _TICKETS
    _run(epoch, batch, negatives, work, losses, first + _MOVE, first + _TICKETS)


def _run(
    epoch: Epoch, batch: Batch, negatives: Negatives, work: Workspace, losses: Array, first: int,
    end: int,
) -> None:  # fmt: skip
    """Do the tickets first..end-1 of an epoch."""
    is_large = len(batch.items) * len(negatives.heights) >= _WORTH_SHARING
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
    kernel: ScoreConfig, rules: Rules, log: EventArrays, dealt: EpochPlan, rates: Array,
    points: Points, batch: Batch, negatives: Negatives, work: Workspace, losses: Array, end: int,
    counters: Array, ticket: int,
) -> int:  # fmt: skip
    """Take parts of phases and do them; see `share_tickets`.

    `counters` hold the next ticket, and how many are done.
    """
    n_places = len(negatives.heights)
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
            deal(log, dealt, number, batch, rules.n_drawn, n_places)
        elif place < _RUN:
            part = place - _SHOW
            begin, stop = n_places * part // _SHOWING, n_places * (part + 1) // _SHOWING
            show_negatives(kernel, batch, points, log.stand_for, negatives, begin, stop)
        elif place < _MOVE:
            shard, step = place - _RUN, Step(rules.user_rate * rates[number], rules.power)
            losses[number, shard] = run_shard(kernel, batch, points, negatives, work, shard, step)
        else:
            part, size, step = place - _MOVE, batch.size[0], Step(rates[number], rules.power)
            begin, stop = size * part // _MOVING, size * (part + 1) // _MOVING
            move_items(kernel, batch, points, work, rules.tied, rules.has_bias, step, begin, stop)
        add_to(counters, 1, 1)
        ticket = add_to(counters, 0, 1)
    return NONE
