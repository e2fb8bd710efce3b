"""Sampling of the events of generated users."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .decorators import compiled, inner
from .rng import advance, below, mix, stream, uniform

#: Purpose of the random streams, different from those of splits and training.
_EVENTS = 111
#: How fast interest decreases with the distance from the favourite style.
_SHARPNESS = 5.0
#: Rejected draws of one event before the next free item is taken.
_MOST_REFUSED = 200
#: Strength of events that follow popularity alone.
_CURIOUS = 0.1


class UserTastes(NamedTuple):
    """Tastes of generated users.

    Attributes:
        tastes: (n_users, t) preferred categories.
        shares: (n_users, t) cumulative weights of the tastes, up to 1.
        favourites: (n_users, t) favourite style in each category, in [0, 1].
    """

    tastes: npt.NDArray[np.int32]
    shares: npt.NDArray[np.float64]
    favourites: npt.NDArray[np.float64]


class ItemTable(NamedTuple):
    """Generated items in the order of their categories.

    Attributes:
        starts: (n_categories + 1,) offsets of the categories.
        popularity: (n_items + 1,) cumulative popularity, from 0.
        styles: (n_items,) in [0, 1].
    """

    starts: npt.NDArray[np.int64]
    popularity: npt.NDArray[np.float64]
    styles: npt.NDArray[np.float64]


class Dynamics(NamedTuple):
    """Changes over time.

    Attributes:
        sequences: Share of events by taste that stay in the category and near the style of the
            event before.
        drift: How fast items fade after their release; with 0 all exist from the beginning.
        releases: (n_items,) release times of items, in [0, 1].
        arrivals: (n_users,) arrival times of users, in [0, 1].
    """

    sequences: float
    drift: float
    releases: npt.NDArray[np.float64]
    arrivals: npt.NDArray[np.float64]


@compiled
def draw_events(
    degrees: npt.NDArray[np.int64],
    users: UserTastes,
    table: ItemTable,
    curiosity: float,
    dynamics: Dynamics,
    seed: int,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Draw different items for each user.

    Args:
        degrees: (n_users,) number of events.
        users: Tastes of the users.
        table: The items.
        curiosity: Share of draws from all items, independent of taste.
        dynamics: Changes over time.
        seed: Seed of the random streams, one for each user.

    Returns:
        items, strengths, moments: (n,) user after user; the strength of the taste, in [0, 1], and
        the time since the arrival of the user, in [0, 1], ascending if there are changes over time.
    """
    total = 0
    for degree in degrees:
        total += degree
    n_items = len(table.styles)
    items = np.empty(total, dtype=np.int32)
    strengths = np.empty(total, dtype=np.float32)
    moments = np.empty(total, dtype=np.float32)
    taken = np.full(n_items, -1, dtype=np.int32)
    guide = _guide(table.popularity)
    in_order = dynamics.sequences > 0 or dynamics.drift > 0
    event = 0
    for user in range(len(degrees)):
        state = stream(seed, 0, _EVENTS, user)
        refused, last, last_taste = 0, -1, 0
        stop = event + degrees[user]
        if in_order:
            state = _draw_moments(moments[event:stop], state)
        while event < stop:
            state = advance(state)
            choice = uniform(mix(state))
            state = advance(state)
            place = uniform(mix(state))
            strength, taste, is_tired = _CURIOUS, 0, refused > _MOST_REFUSED
            if is_tired:
                item = _next_free(below(mix(state), n_items), taken, user)
            elif choice < curiosity:
                item = _pick(table.popularity, guide, 0, n_items, place)
            else:
                choice = (choice - curiosity) / (1.0 - curiosity)
                state, item, strength, taste = _by_taste(
                    users, table, guide, dynamics.sequences, user, choice, place, last, last_taste,
                    state,
                )  # fmt: skip
            if item >= 0 and not is_tired and dynamics.drift > 0:
                state, item = _if_fresh(dynamics, item, user, moments[event], state)
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
    return items, strengths, moments


@inner
def _draw_moments(moments: npt.NDArray[np.float32], state: np.uint64) -> np.uint64:
    """Draw the times of a user's events, in order; returns the state of the stream."""
    for place in range(len(moments)):
        state = advance(state)
        moments[place] = uniform(mix(state))
    moments.sort()
    return state


@inner
def _by_taste(
    users: UserTastes, table: ItemTable, guide: npt.NDArray[np.int32], sequences: float,
    user: int, choice: float, place: float, last: int, last_taste: int, state: np.uint64,
) -> tuple[np.uint64, int, float, int]:  # fmt: skip
    """Draw an item by one of the user's tastes, or near the item before.

    Returns:
        The state of the stream, the item or -1 if it is rejected, the strength of the taste, and
        its index.
    """
    shares, most = users.shares[user], users.tastes.shape[1]
    taste, largest = 0, shares[0]
    for other in range(1, most):
        largest = max(largest, shares[other] - shares[other - 1])
    while taste < most - 1 and shares[taste] <= choice:
        taste += 1
    wanted = users.favourites[user, taste]
    if sequences > 0 and last >= 0:
        state = advance(state)
        if uniform(mix(state)) < sequences:
            taste, wanted = last_taste, table.styles[last]
    category = users.tastes[user, taste]
    item = _pick(table.popularity, guide, table.starts[category], table.starts[category + 1], place)
    near = np.exp(-_SHARPNESS * abs(table.styles[item] - wanted))
    weight = shares[taste] - (shares[taste - 1] if taste else 0.0)
    state = advance(state)
    if uniform(mix(state)) > near:
        item = -1
    return state, item, near * np.sqrt(weight / largest), taste


@inner
def _if_fresh(
    dynamics: Dynamics, item: int, user: int, moment: float, state: np.uint64
) -> tuple[np.uint64, int]:
    """Draw whether an item is still in demand; returns the stream's state and the item or -1."""
    now = dynamics.arrivals[user] + moment * (1 - dynamics.arrivals[user])
    state = advance(state)
    if uniform(mix(state)) > _freshness(dynamics, item, now):
        item = -1
    return state, item


@inner
def _freshness(dynamics: Dynamics, item: int, now: float) -> float:
    """Return the demand for an item: zero before its release, then decreasing."""
    age = now - dynamics.releases[item]
    return np.exp(-dynamics.drift * age) if age >= 0 else 0.0


@inner
def _guide(cumulated: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """Return the first item in each of equal pieces of the cumulative popularity."""
    n_items = len(cumulated) - 1
    n_pieces = 2 * n_items
    guide = np.empty(n_pieces, dtype=np.int32)
    item = 0
    for piece in range(n_pieces):
        while cumulated[item + 1] <= piece * cumulated[n_items] / n_pieces:
            item += 1
        guide[piece] = item
    return guide


@inner
def _pick(
    cumulated: npt.NDArray[np.float64],
    guide: npt.NDArray[np.int32],
    start: int,
    stop: int,
    place: float,
) -> int:
    """Find the item at a share `place` of the popularity of `start` to `stop`."""
    wanted = cumulated[start] + place * (cumulated[stop] - cumulated[start])
    piece = int(wanted / cumulated[-1] * len(guide))
    item = max(start, int(guide[min(piece, len(guide) - 1)]))
    while item < stop - 1 and cumulated[item + 1] <= wanted:
        item += 1
    return item


@inner
def _next_free(item: int, taken: npt.NDArray[np.int32], user: int) -> int:
    while taken[item] == user:
        item = (item + 1) % len(taken)
    return item
