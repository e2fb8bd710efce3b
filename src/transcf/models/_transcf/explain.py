"""Where a score comes from, by the direct formula in float64."""

from dataclasses import dataclass

import numpy as np

from transcf.kernels import Array

from .linear import score_pairs
from .parameters import Form


@dataclass(frozen=True)
class Parts:
    """A score and its parts; `effects` (n_history,) belong to the items of the history."""

    score: float
    distance_before: float
    distance_after: float
    effects: Array


def explain_pair(form: Form, a: Array, history: Array, b: Array, n: Array, bias: float) -> Parts:
    """Take a score apart.

    Args:
        form: which score; one with a distance.
        a: the user's vector, (dim,).
        history: vectors of the user's items, (n_history, dim).
        b: the item's vector, (dim,).
        n: mean of the item's users, (dim,).
        bias: the item's bias.

    Returns:
        The parts. An effect is the score minus the score with the item left out of q, everything
        else as it is; without its only item q is zero.
    """
    a, history, b, n = (np.asarray(vectors, np.float64) for vectors in (a, history, b, n))
    q, count = history.mean(axis=0), len(history)
    score = float(score_pairs(form, a, q, b, n, np.asarray(bias, np.float64)))
    without = (count * q - history) / max(1, count - 1) if count > 1 else np.zeros_like(history)
    # Not every form looks at q, so a gives the result its shape.
    everywhere = np.broadcast_to(a, history.shape)
    left = score_pairs(form, everywhere, without, b, n, np.asarray(bias, np.float64))
    return Parts(score, float(((a - b) ** 2).sum()), float(bias) - score, score - left)


def nearest_users(a: Array, rows: Array, users: Array, top: int) -> tuple[Array, Array]:
    """The rows whose vectors in `users` are nearest to a: rows and squared distances, (top,)."""
    distances = ((users[rows].astype(np.float64) - a.astype(np.float64)) ** 2).sum(axis=1)
    order = np.argsort(distances, kind="stable")[:top]
    return rows[order], distances[order]
