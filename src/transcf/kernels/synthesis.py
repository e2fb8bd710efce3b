"""Sampling of the events of generated users."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from . import Array
from .decorators import compiled, inner
from .sampling import STEP, Words, advance, below, mix, mix_words, streams, uniform

#: Purpose of the random streams, different from those of splits and training.
_EVENTS = 111
#: How fast interest decreases with the distance from the favourite style.
_SHARPNESS = 5.0
#: Rejected draws of one event before the next free item is taken.
_MOST_REFUSED = 200
#: Share of events that follow popularity alone, and their strength.
_CURIOSITY, _CURIOUS = 0.1, 0.1


class World(NamedTuple):
    """Generated users and items; items are in the order of their categories."""

    tastes: Array  # (n_users, t) int32, preferred categories
    shares: Array  # (n_users, t) cumulative weights of the tastes, up to 1
    favourites: Array  # (n_users, t) favourite style in each category, in [0, 1]
    arrivals: Array  # (n_users,) arrival times of users, in [0, 1]
    starts: Array  # (n_categories + 1,) int64, offsets of the categories
    popularity: Array  # (n_items + 1,) cumulative popularity, from 0
    styles: Array  # (n_items,) in [0, 1]
    releases: Array  # (n_items,) release times of items, in [0, 1]
    #: Share of events by taste that stay in the category and near the style of the event before.
    sequences: float
    drift: float  # how fast items fade after their release; with 0 all exist from the beginning


def draw_events(degrees: Array, world: World, seed: int) -> tuple[Array, Array, Array]:
    """Draw different items for each user, who has a random stream of their own.

    Returns:
        items, strengths, moments: (n,) user after user, int32 and float32; the strength of the
        taste, in [0, 1], and the time since the arrival of the user, in [0, 1], ascending if there
        are changes over time.
    """
    total, in_order = int(degrees.sum()), world.sequences > 0 or world.drift > 0
    states = streams(seed, 0, _EVENTS, np.arange(len(degrees), dtype=np.uint64))
    items, strengths = np.empty(total, np.int32), np.empty(total, np.float32)
    moments = np.empty(total, np.float32)
    if in_order:
        _draw_moments(degrees, states, moments)
    # The first item in each of equal pieces of the cumulative popularity.
    n_pieces = 2 * len(world.styles)
    shares = np.arange(n_pieces) * world.popularity[-1] / n_pieces
    guide = np.searchsorted(world.popularity[1:], shares, side="right").astype(np.int32)
    taken = np.full(len(world.styles), -1, np.int32)
    _draw_items(degrees, states, world, guide, in_order, taken, items, strengths, moments)
    return items, strengths, moments


def _draw_moments(degrees: Array, states: Words, moments: Array) -> None:
    """Draw the times of each user's events, ascending; advances the streams."""
    owners = np.repeat(np.arange(len(degrees)), degrees)
    place = np.arange(len(owners)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
    words = mix_words(states[owners] + (place.astype(np.uint64) + np.uint64(1)) * STEP)
    moments[:] = (words >> np.uint64(11)) * 2.0**-53
    moments[:] = moments[np.lexsort((moments, owners))]
    states += degrees.astype(np.uint64) * STEP


@compiled
def _draw_items(
    degrees: Array, states: Words, world: World, guide: Array, in_order: bool, taken: Array,
    items: Array, strengths: Array, moments: Array,
) -> None:  # fmt: skip
    """Draw items and strengths, and moments unless they are in order."""
    n_items, event = len(taken), 0
    for user in range(len(degrees)):
        state = states[user]
        refused, last, last_taste = 0, -1, 0
        stop = event + degrees[user]
        while event < stop:
            state = advance(state)
            choice = uniform(mix(state))
            state = advance(state)
            place = uniform(mix(state))
            strength, taste, is_tired = _CURIOUS, 0, refused > _MOST_REFUSED
            if is_tired:
                item = below(mix(state), n_items)
                while taken[item] == user:
                    item = (item + 1) % n_items
            elif choice < _CURIOSITY:
                item = _pick(world.popularity, guide, 0, n_items, place)
            else:
                choice = (choice - _CURIOSITY) / (1.0 - _CURIOSITY)
                state, item, strength, taste = _by_taste(
                    world, guide, user, choice, place, last, last_taste, state
                )
            if item >= 0 and not is_tired and world.drift > 0:
                # Whether an item is still in demand: not before its release, then less and less.
                arrival = world.arrivals[user]
                age = arrival + moments[event] * (1 - arrival) - world.releases[item]
                state = advance(state)
                if age < 0 or uniform(mix(state)) > np.exp(-world.drift * age):
                    item = -1
            if item < 0 or taken[item] == user:
                refused += 1
                continue
            taken[item] = user
            refused = 0
            items[event] = item
            strengths[event] = strength
            if strength != _CURIOUS:
                last, last_taste = item, taste
            if not in_order:
                state = advance(state)
                moments[event] = uniform(mix(state))
            event += 1


@inner
def _by_taste(
    world: World, guide: Array, user: int, choice: float, place: float, last: int, last_taste: int,
    state: np.uint64,
) -> tuple[np.uint64, int, float, int]:  # fmt: skip
    """Draw an item by one of the user's tastes, or near the item before.

    Returns:
        The state of the stream, the item or -1 if it is rejected, the strength of the taste, and
        its index.
    """
    shares, most = world.shares[user], world.tastes.shape[1]
    taste, largest = 0, shares[0]
    for other in range(1, most):
        largest = max(largest, shares[other] - shares[other - 1])
    while taste < most - 1 and shares[taste] <= choice:
        taste += 1
    wanted = world.favourites[user, taste]
    if world.sequences > 0 and last >= 0:
        state = advance(state)
        if uniform(mix(state)) < world.sequences:
            taste, wanted = last_taste, world.styles[last]
    category = world.tastes[user, taste]
    item = _pick(world.popularity, guide, world.starts[category], world.starts[category + 1], place)
    near = np.exp(-_SHARPNESS * abs(world.styles[item] - wanted))
    weight = shares[taste] - (shares[taste - 1] if taste else 0.0)
    state = advance(state)
    if uniform(mix(state)) > near:
        item = -1
    return state, item, near * np.sqrt(weight / largest), taste


@inner
def _pick(cumulated: Array, guide: Array, start: int, stop: int, place: float) -> int:
    """Find the item at a share `place` of the popularity of `start` to `stop`."""
    wanted = cumulated[start] + place * (cumulated[stop] - cumulated[start])
    piece = int(wanted / cumulated[-1] * len(guide))
    item = max(start, int(guide[min(piece, len(guide) - 1)]))
    while item < stop - 1 and cumulated[item + 1] <= wanted:
        item += 1
    return item
