"""Batches of the mixture: users and their events, negatives, and the events of each item.

Users are assigned to shards once. A batch has some users of each shard, with all their events. The
items of a batch have places, negatives first, and the events of each item are listed, so that
gradients are summed item by item, in an order that does not depend on threads or processes.
"""

from typing import NamedTuple

import numpy as np

from . import Array
from .decorators import compiled, inner
from .sampling import advance, mix, stream, uniform

#: Number of shards per batch. Gradients are summed in shard order, so results do not depend on how
#: many threads or workers process the shards.
SHARDS = 4
#: No item at this place, no place of this item.
NO_SLOT = -1
_DRAWING = 1


class EventArrays(NamedTuple):
    """The training events."""

    indptr: Array  # where the events of users start, (n_users + 1,) int64
    items: Array  # item rows of the events, oldest first, (n_events,) int32
    weights: Array  # how much events count as targets, (n_events,) float32
    active: Array  # rows of items with events, (n_active,) int32
    #: Logarithm of the number of items that each represents when it is drawn, (n_items,) float32.
    log_counts: Array


class EpochPlan(NamedTuple):
    """The batches of an epoch."""

    users: Array  # rows of users in the order in which they come, shard by shard, (n,) int32
    cuts: Array  # where the batches of each shard start among them, (SHARDS, n_batches + 1) int64
    candidates: Array  # rows of the items to draw from, in an order of the epoch's own, (n,) int32
    #: Cumulated chances of these to be drawn for a batch, up to `n_drawn`, (n,) float64.
    reach: Array
    seed: int  # of the run
    epoch: int  # its number


class Batch(NamedTuple):
    """Memory of a batch, enough for the largest."""

    users: Array  # rows of the users, (n,) int32
    starts: Array  # where the events of each start, (n + 1,) int64
    shards: Array  # where shards start, in users, (SHARDS + 1,) int64
    items: Array  # item rows of the events, oldest first, (n_events,) int32
    weights: Array  # how much events count as targets, (n_events,) float32
    places: Array  # of the events' items among those that the batch touches, (n_events,) int32
    #: Rows of these, or `NO_SLOT`, (n_places,) int32: negatives, then the others in the order in
    #: which they come.
    touched: Array
    size: Array  # how many there are, (1,) int64
    firsts: Array  # where the events of each start in `order`, (n_places + 1,) int64
    order: Array  # events by the places of their items, oldest first, (n_events,) int32
    place_of: Array  # for each item its place; `NO_SLOT` between batches, (n_items,) int32


@inner
def fill_batch(
    log: EventArrays, plan: EpochPlan, number: int, batch: Batch, n_drawn: int, n_places: int
) -> None:
    """Fill in a batch of an epoch, with `n_drawn` negatives on `n_places` places."""
    users, events = 0, 0
    for shard in range(SHARDS):
        batch.shards[shard] = users
        for n in range(plan.cuts[shard, number], plan.cuts[shard, number + 1]):
            user = plan.users[n]
            batch.users[users], batch.starts[users] = user, events
            users += 1
            for event in range(log.indptr[user], log.indptr[user + 1]):
                batch.items[events], batch.weights[events] = log.items[event], log.weights[event]
                events += 1
    batch.shards[SHARDS], batch.starts[users] = users, events
    found = _draw(plan, stream(plan.seed, plan.epoch, _DRAWING, number), batch, n_drawn)
    for place in range(found, n_places):
        batch.touched[place] = NO_SLOT
    _find_places(batch, events, n_places)


@inner
def _draw(plan: EpochPlan, state: np.uint64, batch: Batch, count: int) -> int:
    """Draw items, each once and by its chance; returns how many, one less where sums round.

    Systematic sampling: the items at u, u + 1, u + 2, ... of the cumulated chances.
    """
    wanted, found, low = uniform(mix(advance(state))), 0, 0
    for _ in range(count):
        step = 1
        while low + step < len(plan.reach) and plan.reach[low + step - 1] <= wanted:
            low, step = low + step, 2 * step
        high = min(low + step, len(plan.reach)) - 1
        while low < high:
            middle = (low + high) // 2
            if plan.reach[middle] <= wanted:
                low = middle + 1
            else:
                high = middle
        item = plan.candidates[low]
        if batch.place_of[item] == NO_SLOT:
            batch.touched[found], batch.place_of[item] = item, found
            found += 1
        wanted += 1
    return found


@inner
def _find_places(batch: Batch, events: int, n_places: int) -> None:
    """Give the other items places, too, and list the events of each."""
    size = n_places
    for place in range(n_places):
        batch.firsts[place] = 0
    for r in range(events):
        item = batch.items[r]
        place = batch.place_of[item]
        if place == NO_SLOT:
            place = size
            batch.place_of[item], batch.touched[place], batch.firsts[place] = place, item, 0
            size += 1
        batch.places[r] = place
        batch.firsts[place] += 1
    batch.size[0] = size
    total = 0
    for place in range(size):
        total += batch.firsts[place]
        batch.firsts[place] = total
        if batch.touched[place] != NO_SLOT:
            batch.place_of[batch.touched[place]] = NO_SLOT
    batch.firsts[size] = total
    for r in range(events - 1, -1, -1):  # backwards, so that ends become starts
        place = batch.places[r]
        batch.firsts[place] -= 1
        batch.order[batch.firsts[place]] = r


@compiled
def join(own: Batch, whole: Batch, events: int, n_places: int) -> None:
    """Assign places to the items of a whole batch, whose events are there already.

    `own` is the batch of this process, with some of the shards and the same negatives.
    """
    for place in range(n_places):
        item = own.touched[place]
        whole.touched[place] = item
        if item != NO_SLOT:
            whole.place_of[item] = place
    _find_places(whole, events, n_places)
