"""Models with sparse weights between items: a user's score is the sum over the user's items."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from transcf.data.ids import Rows
from transcf.models.base import Recommender, State
from transcf.retrieval.scorer import Scores
from transcf.retrieval.views import BlockView


class ItemWeights(Recommender):
    """`score(u, i) = sum of weights_[j, i] over the items j of u`; a subclass learns the weights.

    Attributes (after `fit`):
        weights_: (n_items, n_items) sparse float32, from a user's items to the scored ones.
    """

    weights_: sp.csr_array

    def _adopt_targets(self, blocks: list[sp.csr_array]) -> None:
        """Take over weights found block by block, a row for every scored item."""
        # Scoring walks over the user's own items, hence the transpose.
        self.weights_ = sp.csr_array(sp.vstack(blocks).T.tocsr())
        self.weights_.sort_indices()

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        return self._score_histories(self._histories(users))

    def _score_histories(self, histories: sp.csr_array) -> Scores:
        scores: Scores = (histories @ self.weights_).toarray()
        return scores

    def _item_similarity(self) -> BlockView:
        # Row i: how much having item i speaks for each other item.
        return self._sparse_view(self.weights_)

    def _sparse_view(self, weights: sp.csr_array) -> BlockView:
        return BlockView(
            self.name, self.rankable, lambda rows: weights[rows].toarray(), sparse=True
        )

    def _state(self) -> State:
        return {
            "indptr": self.weights_.indptr.astype(np.int64),
            "indices": self.weights_.indices.astype(np.int32),
            "weights": self.weights_.data,
        }

    def _restore(self, state: State) -> None:
        n_items = len(self.items_)
        entries = (state["weights"], state["indices"], state["indptr"])
        self.weights_ = sp.csr_array(entries, shape=(n_items, n_items))
        self.weights_.check_format(full_check=True)
