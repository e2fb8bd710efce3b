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

from functools import partial

import numpy as np

from transcf.data.interactions import Interactions
from transcf.kernels import Array
from transcf.kernels.beneath import leave_out, leave_out_of_others, own_scores
from transcf.kernels.mixture import Batch
from transcf.threads import share

#: Lifts beyond this say no more, and exponentials of them would leave float32.
_HIGHEST = 25.0


class Beneath:
    """What EASE says of users whom it had not learned from, times a number.

    Args:
        train: What it was fitted on, all events alike.
        weights: B, (n_items, n_items) float32.
        regularization: That of EASE.
        strength: What its scores are multiplied by.
    """

    def __init__(
        self, train: Interactions, weights: Array, regularization: float, strength: float
    ) -> None:
        """Work out all that does not depend on which items are compared."""
        self._weights, self._strength = weights, strength
        self._regularization = regularization
        histories = train.histories
        self._starts, items = histories.indptr, histories.items
        scores = np.empty(len(items))
        own_scores(weights, self._starts, items, scores)
        # (X'X + regularization I) P = I, a column divided by P_jj and its row j: what is left of
        # an item's count is 1 / P_jj.
        rebuilt = np.bincount(items, scores, train.n_items)
        self._diagonal = 1 / (train.by_item.counts + regularization - rebuilt)
        self._rests, self._unseen = np.empty(train.n_users), np.empty(len(items))
        leave_out(self._starts, items, self._diagonal, scores, self._rests, self._unseen)

    @property
    def fingerprint(self) -> str:
        """What of it a checkpoint depends on, besides the training data."""
        return f"ease {self._regularization} {self._strength}"

    def of_own(self) -> Array:
        """Return EASE's scores of everybody's own items without them, (n_events,) float64."""
        return self._unseen

    def of_others(self, batch: Batch, others: Array, places: int) -> Array:
        """Return EASE's scores of items for the users of a batch, whom it has not learned from.

        Args:
            batch: Whose.
            others: Item rows, (n_others,) int32.
            places: Columns of what is returned; those after the last item are zeros.

        Returns:
            (n, places) float32; meaningless where the user has the item.
        """
        scores = np.zeros((len(batch.users), places), np.float32)
        people = self._rests, batch.users, batch.starts, batch.items
        work = partial(leave_out_of_others, self._weights, self._diagonal, *people, others, scores)
        share(len(batch.users), work)
        return scores

    def lift(self, batch: Batch, negatives: Array, places: int) -> Batch:
        """Return a batch with EASE's scores beneath those of its targets and negatives.

        A target is left out of its history. Its own score has no term of itself anyway; those of
        negatives are taken as a share of 1 - 1/n of what the whole history of n items gives them.

        Args:
            batch: Events, each a target of the others of its user.
            negatives: Rows of the items that targets are compared with, (n_negatives,) int32.
            places: How many places for negatives there are, (at least n_negatives).
        """
        counts = np.diff(batch.starts)
        events = np.repeat(self._starts[batch.users] - batch.starts[:-1], counts)
        events += np.arange(len(batch.items))
        others = self.of_others(batch, negatives, places)
        others *= (1 - 1 / counts)[:, None].astype(np.float32)
        return batch._replace(
            lifts=self._scaled(self._unseen[events].astype(np.float32)),
            lifts_of_negatives=self._scaled(others),
        )

    def _scaled(self, scores: Array) -> Array:
        scaled: Array = np.clip(np.float32(self._strength) * scores, -_HIGHEST, _HIGHEST)
        return scaled
