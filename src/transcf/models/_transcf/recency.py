"""How often each interaction is drawn: a user's later items more than earlier ones."""

import numpy as np

from transcf.data.interactions import Interactions
from transcf.kernels import Array


def recency_weights(log: Interactions, recency: float) -> Array:
    """Weights in proportion to exp(recency * p), p being an event's share of the user's history.

    Args:
        log: events; equal times are ordered by item.
        recency: strength; the latest event weighs exp(recency) times as much as one long before.

    Returns:
        (n_events,) float32 in the order of `log.by_user`, 1 on average over each user; empty where
        all weigh the same: without timestamps, or at a recency of 0.
    """
    if log.timestamps is None or recency == 0:
        return np.empty(0, np.float32)
    order = np.lexsort((log.item_rows, log.timestamps, log.user_rows))
    counts = log.by_user.counts
    place = np.arange(len(log)) - np.repeat(log.by_user.indptr[:-1], counts) + 1
    weights = np.empty(len(log))
    weights[order] = weights_of_places(place, np.repeat(counts, counts), recency)
    means = np.bincount(log.user_rows, weights, log.n_users) / np.maximum(1, counts)
    return (weights / np.repeat(means, counts)).astype(np.float32)


def weights_of_places(place: Array, count: Array | int, recency: float) -> Array:
    """Weights of events by their place in a history of `count`, the latest having the last."""
    weights: Array = np.exp(recency * (place / count - 1))
    return weights
