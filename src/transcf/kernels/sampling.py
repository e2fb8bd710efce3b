"""Strata of interactions, drawn again in every epoch.

Users form fixed groups (neighbouring rows); the items are assigned to blocks at random. The
interactions of a group with a block are a stratum, and strata that share neither a group nor a
block can run side by side. Inside a stratum the interactions are sorted by user: a *visit* is one
user together with their items in the block. Negatives come from the block, too.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from transcf.parallel import parallel_for

from . import Array
from .decorators import compiled, inlined
from .rng import advance, below, below_low, mix, permutation, stream, upper_half

DEALING, TRAINING = 1, 2


class Strata(NamedTuple):
    """The interactions of one epoch, sorted by (group, block, user).

    Stratum s = group * n_blocks + block owns the visits `visits[s]:visits[s + 1]`; visit v is the
    user `visitor[v]` with the interactions `first[v]:first[v + 1]`, whose places in the block are
    `slots`. `shares` are the weights of the interactions, summed up within each visit, or empty
    where all weigh the same.
    """

    groups: Array
    starts: Array
    visits: Array
    visitor: Array
    first: Array
    slots: Array
    shares: Array


class Draws(NamedTuple):
    """The arrays that a stratum draws from.

    `slots` and `shares` are those of the strata; `marks`, (size of the block,), hold the stamp of
    the latest visit of a user who has the item.
    """

    slots: Array
    shares: Array
    marks: Array


class Visit(NamedTuple):
    """One user together with their items in a block, and how many triples to draw.

    The block's items are at the places `start` to `start + size` in block order; the user's
    interactions are `begin` to `begin + own` of the strata. While the visit lasts, the user's own
    items carry its stamp.
    """

    group: int
    user: int
    start: int
    size: int
    begin: int
    own: int
    stamp: int
    samples: int


@compiled
def deal_items(active: Array, seed: int, epoch: int) -> Array:
    """The active items (rows, int32) in this epoch's random order."""
    return active[permutation(len(active), stream(seed, epoch, DEALING, 0))]


@compiled
def locate(order: Array, starts: Array, block: Array, slot: Array) -> None:
    """Find the block of every item and the item's place in it, both (n_items,), out."""
    for b in range(len(starts) - 1):
        for place in range(starts[b], starts[b + 1]):
            block[order[place]] = b
            slot[order[place]] = place - starts[b]


def count_strata(
    indptr: Array, indices: Array, groups: Array, block: Array, visits: Array, entries: Array
) -> None:
    """Count the visits and the interactions of every stratum.

    Both, (n_groups, n_blocks), are zero before.
    """
    work = partial(_count_groups, indptr, indices, groups, block, visits, entries)
    parallel_for(len(groups) - 1, work)


@compiled
def _count_groups(
    indptr: Array, indices: Array, groups: Array, block: Array, visits: Array, entries: Array,
    first: int, end: int,
) -> None:  # fmt: skip
    """The groups first..end-1 of `count_strata`."""
    for g in range(first, end):
        latest = np.zeros(visits.shape[1], np.int64)  # one more than the user, so none is 0
        for user in range(groups[g], groups[g + 1]):
            for position in range(indptr[user], indptr[user + 1]):
                b = block[indices[position]]
                entries[g, b] += 1
                if latest[b] != user + 1:
                    latest[b] = user + 1
                    visits[g, b] += 1


def fill_strata(
    indptr: Array,
    indices: Array,
    weights: Array,
    block: Array,
    slot: Array,
    entries: Array,
    strata: Strata,
) -> None:
    """Sort the interactions into strata.

    Args:
        indptr: items by user, CSR, (n_users + 1,) int64.
        indices: items by user, CSR, (nnz,) int32.
        weights: weight of every interaction, (nnz,), or empty where all weigh the same.
        block: block of every item, (n_items,) int32.
        slot: place of every item in its block, (n_items,) int32.
        entries: where each stratum's interactions begin, (n_groups * n_blocks,) int64.
        strata: `groups`, `starts` and `visits` are read, the rest is written.
    """
    work = partial(_fill_groups, indptr, indices, weights, block, slot, entries, strata)
    parallel_for(len(strata.groups) - 1, work)


@compiled
def _fill_groups(
    indptr: Array, indices: Array, weights: Array, block: Array, slot: Array, entries: Array,
    strata: Strata, first_group: int, end_group: int,
) -> None:  # fmt: skip
    """The groups first_group..end_group-1 of `fill_strata`."""
    groups, _, visits, visitor, first, slots, shares = strata
    n_blocks = len(strata.starts) - 1
    for g in range(first_group, end_group):
        next_visit, next_entry = np.zeros(n_blocks, np.int64), np.zeros(n_blocks, np.int64)
        latest = np.zeros(n_blocks, np.int64)  # one more than the user, so none is 0
        for b in range(n_blocks):
            next_visit[b], next_entry[b] = visits[g * n_blocks + b], entries[g * n_blocks + b]
        for user in range(groups[g], groups[g + 1]):
            for position in range(indptr[user], indptr[user + 1]):
                item = indices[position]
                b = block[item]
                entry = next_entry[b]
                if len(weights) > 0:
                    is_next = latest[b] == user + 1
                    before = shares[entry - 1] if is_next else weights.dtype.type(0)
                    shares[entry] = before + weights[position]
                if latest[b] != user + 1:
                    latest[b] = user + 1
                    visitor[next_visit[b]] = user
                    first[next_visit[b]] = entry
                    next_visit[b] += 1
                slots[entry] = slot[item]
                next_entry[b] = entry + 1


@inlined
def draw_own(word: np.uint64, draws: Draws, visit: Visit) -> int:
    """One of a visit's items by its weight (a slot), from the upper half of a random word."""
    begin, count, shares = visit.begin, visit.own, draws.shares
    if len(shares) == 0:
        return draws.slots[begin + below(word, count)]
    wanted = upper_half(word) * shares[begin + count - 1]
    place: Any = begin
    # All of them, for where to stop cannot be foretold: a wrong guess costs more than some sums.
    for entry in range(begin, begin + count - 1):
        place += np.int64(shares[entry] <= wanted)
    return draws.slots[place]


@inlined
def draw_pair(draws: Draws, visit: Visit, state: np.uint64) -> tuple[np.uint64, int, int]:
    """One of the visit's items, and one of the block's that the user does not have (two slots).

    The user's own items carry the visit's stamp; at least one item must not.
    """
    state = advance(state)
    word = mix(state)
    positive = draw_own(word, draws, visit)
    negative = below_low(word, visit.size)
    while draws.marks[negative] == visit.stamp:
        state = advance(state)
        negative = below(mix(state), visit.size)
    return state, positive, negative


@inlined
def draw_negative(draws: Draws, visit: Visit, state: np.uint64) -> tuple[np.uint64, int]:
    """One more of the block's items that the user does not have (a slot)."""
    state = advance(state)
    negative = below(mix(state), visit.size)
    while draws.marks[negative] == visit.stamp:
        state = advance(state)
        negative = below(mix(state), visit.size)
    return state, negative
