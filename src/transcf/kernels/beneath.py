"""What EASE would say of somebody whom it had not learned from, out of what it does say."""

from typing import NamedTuple

import numpy as np

from . import Array, compiled, inlined, inner
from .lanes import LANES, load, store
from .mixture_batches import NOWHERE, Batch

#: What is left of a user, at least: only rounding can bring it below.
_LEAST = 1e-3
#: Lifts beyond this say no more, and exponentials of them would leave float32.
HIGHEST = 25.0


class Layer(NamedTuple):
    """What lies beneath the scores of a model while it learns.

    Attributes:
        weights: B, (n_items, n_items) float32; (0, 0) where nothing does.
        diagonal: That of P, (n_items,) float64.
        rests: r, (n_users,) float64.
        starts: Where histories start, (n_users + 1,) int64.
        own: What is added to the scores of everybody's own items, (n_events,) float32.
        strength: What scores of other items are multiplied by.
    """

    weights: Array
    diagonal: Array
    rests: Array
    starts: Array
    own: Array
    strength: float


#: Nothing beneath.
NO_LAYER = Layer(
    np.zeros((0, 0), np.float32), np.zeros(0), np.zeros(0), np.zeros(0, np.int64),
    np.zeros(0, np.float32), 0.0,
)  # fmt: skip


@compiled
def own_scores(weights: Array, starts: Array, items: Array, scores: Array) -> None:
    """Scores of everybody's own items.

    Args:
        weights: B, (n_items, n_items) float32.
        starts: Where histories start, (n_users + 1,) int64.
        items: Their items, (n_events,) int32.
        scores: Out: z, (n_events,) float64.
    """
    for n in range(len(starts) - 1):
        for i in range(starts[n], starts[n + 1]):
            total = 0.0
            for k in range(starts[n], starts[n + 1]):
                total += weights[items[k], items[i]]
            scores[i] = total


@compiled
def leave_out(
    starts: Array, items: Array, diagonal: Array, scores: Array, rests: Array, unseen: Array
) -> None:
    """Scores of everybody's own items by weights that were learned without them.

    Args:
        starts: Where histories start, (n_users + 1,) int64.
        items: Their items, (n_events,) int32.
        diagonal: That of P, (n_items,) float64.
        scores: z, (n_events,) float64.
        rests: Out: r, (n_users,) float64.
        unseen: Out: 1 - (1 - z) / (r + P_ii (1 - z)^2), (n_events,) float64.
    """
    for n in range(len(starts) - 1):
        rest = 1.0
        for i in range(starts[n], starts[n + 1]):
            rest -= diagonal[items[i]] * (1 - scores[i])
        rests[n] = rest = max(rest, _LEAST)
        for i in range(starts[n], starts[n + 1]):
            error = 1 - scores[i]
            unseen[i] = 1 - error / (rest + diagonal[items[i]] * error * error)


@inner
def lift(
    layer: Layer, batch: Batch, heights: Array, tile: Array, size: int, begin: int, stop: int
) -> None:
    """Add what lies beneath the scores of some users of a batch, the same for a whole history.

    A target is left out of its history. Its own score has no term of itself anyway; those of
    negatives are taken as a share of 1 - 1/n of what the whole history of n items gives them.

    Args:
        layer: What lies beneath.
        batch: Whose.
        heights: Exponents of targets, (n_events,) float32, changed in place.
        tile: Those of negatives, a row for each event of these users, flat, changed in place.
        size: Places for negatives; what users have themselves gets anything.
        begin: Of the users.
        stop: Of the users.
    """
    first, lifts = batch.starts[begin], np.empty(size, np.float32)
    for n in range(begin, stop):
        start, end = batch.starts[n], batch.starts[n + 1]
        own = layer.starts[batch.users[n]] - start
        _lift_others(layer, batch, n, lifts)
        for r in range(start, end):
            heights[r] += layer.own[own + r]
            at = (r - first) * size
            for j in range(0, size, LANES):
                store(tile, at + j, load(tile, at + j) + load(lifts, j))


@inlined
def _lift_others(layer: Layer, batch: Batch, n: int, lifts: Array) -> None:
    """Find what the negatives of a batch get for a user: a share of z / (r + P_jj z^2)."""
    start, end, count = batch.starts[n], batch.starts[n + 1], len(lifts)
    while count and batch.touched[count - 1] == NOWHERE:
        count -= 1
    for j in range(len(lifts)):
        lifts[j] = 0
    for r in range(start, end):
        item = batch.items[r]
        for j in range(count):
            lifts[j] += layer.weights[item, batch.touched[j]]
    rest, share = layer.rests[batch.users[n]], layer.strength * (1 - 1 / (end - start))
    for j in range(count):
        score = lifts[j]
        unseen = score / (rest + layer.diagonal[batch.touched[j]] * score * score)
        lifts[j] = min(max(share * unseen, -HIGHEST), HIGHEST)
