"""Counter-based random numbers, and strata of interactions, drawn again in every epoch.

The n-th draw of a stream is a function of its name and n. A stream is named by integers (seed,
epoch, purpose, index), so what a stratum draws depends neither on the thread that runs it nor on
what ran before. A state is a counter that `advance` moves on; `mix` turns it into the draw. The
mixing function is the finaliser of SplitMix64, a bijection of 64-bit words.

Users form fixed groups (neighbouring rows); the items are assigned to blocks at random. The
interactions of a group with a block are a stratum, and strata that share neither a group nor a
block can run side by side. Inside a stratum the interactions are sorted by user: a *visit* is one
user together with their items in the block. Negatives come from the block, too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from . import Array
from .decorators import compiled, inlined, shared

Words: TypeAlias = npt.NDArray[np.uint64]

STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)
_UNIT = 2.0**-53


@inlined
def mix(word: np.uint64) -> np.uint64:
    """Scramble a 64-bit word; different words give different results."""
    word = (word ^ (word >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))


@inlined
def advance(state: np.uint64) -> np.uint64:
    """The state of the next draw."""
    return state + STEP


@inlined
def below(word: np.uint64, bound: int) -> Any:
    """An integer in [0, bound) from the upper half of a random word, bound < 2**31."""
    return np.int64(((word >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@inlined
def below_low(word: np.uint64, bound: int) -> Any:
    """The same from the lower half, so that one word serves two draws."""
    return np.int64(((word & _LOW) * np.uint64(bound)) >> np.uint64(32))


@inlined
def upper_half(word: np.uint64) -> float:
    """Turn the upper half of a random word into a float in [0, 1)."""
    return float(word >> np.uint64(32)) * 2.0**-32


@inlined
def uniform(word: np.uint64) -> float:
    """A float in [0, 1) from a random word."""
    return float(word >> np.uint64(11)) * _UNIT


@inlined
def stream(seed: int, epoch: int, purpose: int, index: int) -> np.uint64:
    """The first state of the stream with this name."""
    state = mix(np.uint64(seed) + STEP)
    state = mix(state ^ (np.uint64(epoch) + STEP))
    state = mix(state ^ (np.uint64(purpose) + STEP))
    return mix(state ^ (np.uint64(index) + STEP))


#: `mix` of arrays of words, outside of kernels.
mix_words = cast(Callable[[Words], Words], cast(Any, mix).py_func)


def streams(seed: int, epoch: int, purpose: int, indices: Words) -> Words:
    """The first states of the streams with these names, outside of kernels: (n,)."""
    state = mix_words(np.array([seed], np.uint64) + STEP)
    for name in (np.uint64(epoch), np.uint64(purpose), indices):
        state = mix_words(state ^ (np.atleast_1d(name) + STEP))
    return state


# -- strata --------------------------------------------------------------------------------------

DEALING, TRAINING = 1, 2


class Strata(NamedTuple):
    """The interactions of an epoch; stratum s = group * n_blocks + block."""

    groups: Array  # boundaries of the groups of users
    starts: Array  # boundaries of the blocks of items
    visits: Array  # stratum s has the visits `visits[s]:visits[s + 1]`
    visitor: Array  # the user of each visit
    first: Array  # visit v has the interactions `first[v]:first[v + 1]`
    slots: Array  # places of their items in the block
    shares: Array  # their weights, summed up within each visit, or empty where all weigh the same


class Draws(NamedTuple):
    """The arrays that a stratum draws from."""

    slots: Array  # those of the strata
    shares: Array  # those of the strata
    marks: Array  # (size of the block,) stamp of the latest visit of a user who has the item


class Visit(NamedTuple):
    """One user together with their items in a block."""

    group: int
    user: int
    start: int  # the block's items are at the places `start` to `start + size` in block order
    size: int
    begin: int  # the user's interactions are `begin` to `begin + own` of the strata
    own: int
    stamp: int  # mark of the user's own items while the visit lasts
    samples: int  # how many triples to draw


def deal_items(active: Array, seed: int, epoch: int) -> Array:
    """The active items (rows, int32) in this epoch's random order."""
    order = active.copy()
    _shuffle(order, seed, epoch)
    return order


@compiled
def _shuffle(order: Array, seed: int, epoch: int) -> None:
    """Put rows into a uniformly random order, in place."""
    state = stream(seed, epoch, DEALING, 0)
    for last in range(len(order) - 1, 0, -1):
        state = advance(state)
        other = below(mix(state), last + 1)
        order[last], order[other] = order[other], order[last]


def locate(order: Array, starts: Array, n_items: int) -> tuple[Array, Array]:
    """Return the block of every item and the item's place in it, both (n_items,) int32."""
    block, slot = np.zeros((2, n_items), np.int32)
    sizes = np.diff(starts)
    block[order] = np.repeat(np.arange(len(sizes)), sizes)
    slot[order] = np.arange(len(order)) - np.repeat(starts[:-1], sizes)
    return block, slot


@shared(lambda indptr, indices, groups, *_: len(groups) - 1)
def count_strata(
    indptr: Array, indices: Array, groups: Array, block: Array, latest: Array, visits: Array,
    entries: Array, first: int, end: int,
) -> None:  # fmt: skip
    """Count the visits and the interactions of every stratum, (n_groups, n_blocks) each.

    `latest` has the latest user of each, counted from 1, or 0.
    """
    for g in range(first, end):
        for user in range(groups[g], groups[g + 1]):
            for position in range(indptr[user], indptr[user + 1]):
                b = block[indices[position]]
                entries[g, b] += 1
                if latest[g, b] != user + 1:
                    latest[g, b] = user + 1
                    visits[g, b] += 1


@shared(lambda *arguments: len(arguments[-1].groups) - 1)
def fill_strata(
    indptr: Array, indices: Array, weights: Array, block: Array, slot: Array, latest: Array,
    next_visit: Array, next_entry: Array, strata: Strata, first_group: int, end_group: int,
) -> None:  # fmt: skip
    """Sort the interactions into strata, of which all but `groups`, `starts` and `visits` is set.

    `weights` of interactions are (nnz,), or empty where all weigh the same; `block` and `slot` are
    those of `locate`, `latest` that of `count_strata`. `next_visit` and `next_entry` have the first
    visit and interaction of each stratum, (n_groups, n_blocks), and are changed.
    """
    groups, _, _, visitor, first, slots, shares = strata
    for g in range(first_group, end_group):
        for user in range(groups[g], groups[g + 1]):
            for position in range(indptr[user], indptr[user + 1]):
                item = indices[position]
                b = block[item]
                entry = next_entry[g, b]
                if len(weights) > 0:
                    is_next = latest[g, b] == user + 1
                    before = shares[entry - 1] if is_next else weights.dtype.type(0)
                    shares[entry] = before + weights[position]
                if latest[g, b] != user + 1:
                    latest[g, b] = user + 1
                    visitor[next_visit[g, b]] = user
                    first[next_visit[g, b]] = entry
                    next_visit[g, b] += 1
                slots[entry] = slot[item]
                next_entry[g, b] = entry + 1


@inlined
def draw_own(word: np.uint64, draws: Draws, visit: Visit) -> int:
    """One of a visit's items by its weight (a slot), from the upper half of a random word."""
    begin, count, shares = visit.begin, visit.own, draws.shares
    if len(shares) == 0:
        return draws.slots[begin + below(word, count)]
    wanted = upper_half(word) * shares[begin + count - 1]
    place: Any = begin
    # All of them: a mispredicted branch costs more than some sums.
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
