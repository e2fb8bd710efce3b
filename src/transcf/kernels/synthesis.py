"""Drawing the events of made-up users."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import compiled, inner
from .rng import advance, below, mix, stream, uniform

#: Name of the random streams, apart from those of splits and training.
_EVENTS = 111
#: How sharply a user keeps to a favourite style inside of a category.
_SHARPNESS = 5.0
#: Refused draws of one event before any item that is left is taken.
_PATIENCE = 200


@compiled
def draw_events(
    degrees: npt.NDArray[np.int64],
    tastes: npt.NDArray[np.int32],
    shares: npt.NDArray[np.float64],
    favourites: npt.NDArray[np.float64],
    starts: npt.NDArray[np.int64],
    popularity: npt.NDArray[np.float64],
    styles: npt.NDArray[np.float64],
    curiosity: float,
    seed: int,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Draw different items for each user.

    Args:
        degrees: (n_users,) how many.
        tastes: (n_users, t) categories that the user likes.
        shares: (n_users, t) cumulated weights of the tastes, up to 1.
        favourites: (n_users, t) favourite style in [0, 1] inside of each.
        starts: (n_categories + 1,) offsets of the categories; items are in category order.
        popularity: (n_items + 1,) cumulated popularity, from 0.
        styles: (n_items,) in [0, 1].
        curiosity: Share of draws from all items, whatever the taste.
        seed: Names the streams, together with the user.

    Returns:
        items, strengths, moments: (n,) user after user; how strong the taste was, in [0, 1], and
        when it happened in the user's time, in [0, 1].
    """
    total = 0
    for degree in degrees:
        total += degree
    n_items = len(styles)
    items = np.empty(total, dtype=np.int32)
    strengths = np.empty(total, dtype=np.float32)
    moments = np.empty(total, dtype=np.float32)
    taken = np.full(n_items, -1, dtype=np.int32)
    guide = _guide(popularity)
    event = 0
    for user in range(len(degrees)):
        state = stream(seed, 0, _EVENTS, user)
        largest = shares[user, 0]
        for taste in range(1, tastes.shape[1]):
            largest = max(largest, shares[user, taste] - shares[user, taste - 1])
        refused = 0
        stop = event + degrees[user]
        while event < stop:
            state = advance(state)
            choice = uniform(mix(state))
            state = advance(state)
            place = uniform(mix(state))
            strength = 0.1
            if refused > _PATIENCE:
                item = _next_free(below(mix(state), n_items), taken, user)
            elif choice < curiosity:
                item = _pick(popularity, guide, 0, n_items, place)
            else:
                choice = (choice - curiosity) / (1.0 - curiosity)
                taste = 0
                while taste < tastes.shape[1] - 1 and shares[user, taste] <= choice:
                    taste += 1
                category = tastes[user, taste]
                item = _pick(popularity, guide, starts[category], starts[category + 1], place)
                near = np.exp(-_SHARPNESS * abs(styles[item] - favourites[user, taste]))
                weight = shares[user, taste] - (shares[user, taste - 1] if taste else 0.0)
                strength = near * np.sqrt(weight / largest)
                state = advance(state)
                if uniform(mix(state)) > near:
                    refused += 1
                    continue
            if taken[item] == user:
                refused += 1
                continue
            taken[item] = user
            refused = 0
            state = advance(state)
            items[event] = item
            strengths[event] = strength
            moments[event] = uniform(mix(state))
            event += 1
    return items, strengths, moments


@inner
def _guide(cumulated: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """Cut the popularity into equal pieces and note the first item that reaches into each."""
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
