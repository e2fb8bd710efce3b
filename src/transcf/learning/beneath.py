"""`Beneath`: scores that are there already while a model learns what they leave over.

What a model says of the items that it was fitted on says little about what it would say of new
ones, and a second model that learned on top of it would have nothing left to learn. EASE can tell
what it would have said had it never seen a user, without being fitted again. With B the weights, x
the user's items, z = x'B and P the inverse behind B (`EASE`), Sherman and Morrison's rule gives

    r = 1 - x'Px = 1 - sum of P_kk (1 - z_k) over the user's items k
    own items:  1 - (1 - z_i) / (r + P_ii (1 - z_i)^2)
    others:     z_j / (r + P_jj z_j^2)
"""

from __future__ import annotations

import numpy as np

from transcf.data.interactions import Interactions
from transcf.kernels import Array
from transcf.kernels.beneath import HIGHEST, Layer, leave_out, own_scores


class Beneath:
    """What EASE says of users whom it had not learned from, times a number.

    Args:
        train: What it was fitted on, all events alike.
        weights: B, (n_items, n_items) float32.
        regularization: That of EASE.
        strength: What its scores are multiplied by.

    Attributes:
        layer: What kernels see of it.
    """

    def __init__(
        self, train: Interactions, weights: Array, regularization: float, strength: float
    ) -> None:
        """Work out all that does not depend on which items are compared."""
        self._regularization, self._items = regularization, train.histories.items
        starts, items = train.histories.indptr, self._items
        scores = np.empty(len(items))
        own_scores(weights, starts, items, scores)
        # (X'X + regularization I) P = I, a column divided by P_jj and its row j: what is left of
        # an item's count is 1 / P_jj.
        rebuilt = np.bincount(items, scores, train.n_items)
        diagonal = 1 / (train.by_item.counts + regularization - rebuilt)
        rests, unseen = np.empty(train.n_users), np.empty(len(items))
        leave_out(starts, items, diagonal, scores, rests, unseen)
        own = np.clip(strength * unseen, -HIGHEST, HIGHEST).astype(np.float32)
        # A copy, as kernels are compiled anew for what they may not write to.
        self.layer = Layer(weights, diagonal, rests, starts.copy(), own, float(strength))

    @property
    def fingerprint(self) -> str:
        """What of it a checkpoint depends on, besides the training data."""
        return f"ease {self._regularization} {self.layer.strength}"

    def of(self, user: int) -> Array:
        """Return what lies beneath the scores of all items for a user, (n_items,) float64.

        As the kernel `lift` has it, to the letter.

        Args:
            user: Row of a user with events.
        """
        layer = self.layer
        events = slice(layer.starts[user], layer.starts[user + 1])
        own = self._items[events]
        scores = layer.weights[own].sum(axis=0, dtype=np.float64)
        unseen = scores / (layer.rests[user] + layer.diagonal * scores**2)
        lifts: Array = layer.strength * (1 - 1 / len(own)) * unseen
        np.clip(lifts, -HIGHEST, HIGHEST, out=lifts)
        lifts[own] = layer.own[events]
        return lifts
