"""How often each interaction is drawn: a user's later items more than earlier ones."""

import numpy as np

from transcf.data.histories import Histories
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
    counts = log.by_user.counts
    weights = np.empty(len(log))
    weights[log.in_order] = weights_in_order(log.histories, recency)
    means = np.bincount(log.user_rows, weights, log.n_users) / np.maximum(1, counts)
    return (weights / np.repeat(means, counts)).astype(np.float32)


def weights_in_order(histories: Histories, recency: float) -> Array:
    """Weights of events by their place in a history, the latest having 1: (n_events,)."""
    lengths = np.repeat(histories.counts, histories.counts)
    weights: Array = np.exp(recency * (histories.places / lengths - 1))
    return weights
