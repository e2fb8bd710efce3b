"""The honest floor: the same list for everybody, most popular first or rarest first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.models._tensors import stored
from transcf.models.base import Held, Recommender, State
from transcf.retrieval.scorer import Scores
from transcf.training.options import FitOptions


class _ByItem(Recommender):
    """A score for each item, the same for all users."""

    #: What the number of training interactions is multiplied with.
    _sign: ClassVar[float]

    item_scores_: Scores

    def _learn(self, train: Interactions, validation: Held, options: FitOptions) -> None:
        self._restore({"item_scores": (self._sign * self.item_counts_).astype(np.float32)})

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        return np.tile(self.item_scores_, (len(users), 1))

    def _score_histories(self, histories: sp.csr_array) -> Scores:
        return np.tile(self.item_scores_, (histories.shape[0], 1))

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        return self.item_scores_[items]

    def _state(self) -> State:
        return {"item_scores": self.item_scores_}

    def _restore(self, state: State) -> None:
        self.item_scores_ = stored(state, "item_scores", np.float32, (len(self.items_),))


class Popularity(_ByItem):
    """Items that most users touched come first.

    Formula: `score(u, i) = |N_i|`, the number of users of item i in training.

    Reference: folklore. Cremonesi, Koren and Turrin, "Performance of recommender algorithms on
    top-N recommendation tasks" (RecSys 2010), show how hard it is to beat.

    Attributes (after `fit`):
        item_scores_: (n_items,) float32.

    Example:
        >>> import polars as pl
        >>> from transcf import Popularity, read_interactions
        >>> log = read_interactions(pl.DataFrame(
        ...     {"user": ["ann", "ann", "bob", "cid"], "item": ["x", "y", "x", "z"]}))
        >>> Popularity().fit(log).recommend("cid", k=1)["item_id"].item()
        'x'
    """

    name = "popularity"
    _sign = 1.0


class InversePopularity(_ByItem):
    """Items that fewest users touched come first: a probe for lopsided protocols.

    Formula: `score(u, i) = -|N_i|`. It is of no use to anybody, yet it wins under sampled
    protocols whose held-out items are rare; a table without it can mislead.

    Reference: the case against sampled metrics is Krichene and Rendle, "On sampled metrics for
    item recommendation" (KDD 2020).

    Attributes (after `fit`):
        item_scores_: (n_items,) float32.

    Example:
        >>> import polars as pl
        >>> from transcf import InversePopularity, read_interactions
        >>> log = read_interactions(pl.DataFrame(
        ...     {"user": ["ann", "bob", "bob", "cid"], "item": ["x", "x", "y", "z"]}))
        >>> InversePopularity().fit(log).recommend("cid", k=1)["item_id"].item()
        'y'
    """

    name = "inverse-popularity"
    _sign = -1.0
