"""`ItemWeights`: weights between items; a user's score is the sum over the user's items."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.learning.contributions import Contributions
from transcf.learning.known import Known
from transcf.learning.learned import Learned
from transcf.learning.weights import EVEN, weights_in_order
from transcf.retrieval.scorer import Scorer, Scores
from transcf.retrieval.views import BlockView
from transcf.storage.tensors import Arrays, stored


class ItemWeights(Learned):
    """`score(u, i) = sum of weights[j, i] over the items j of u`, later ones counting more.

    Args:
        known: What the model keeps of its training data.
        name: What tables call the model.
        weights: (n_items, n_items) float32, dense or sparse, from a user's items to scored ones.
        events: How much each event of the training data counts in its user's history, (n_events,)
            float32 in the order of `known.seen`, 1 at most; empty where all count the same.
        recency: How much later items of other people's histories count.
        likeness: Similarities of items by row, where they are not these weights.
    """

    def __init__(
        self,
        known: Known,
        name: str,
        weights: Scores | sp.csr_array,
        events: Scores = EVEN,
        recency: float = 0.0,
        likeness: sp.csr_array | None = None,
    ) -> None:
        """Keep them."""
        super().__init__(known, name)
        self.weights, self.events = weights, events
        self._recency = recency if known.timed else 0.0
        self._likeness = weights if likeness is None else likeness

    def arrays(self) -> Arrays:
        """Return the weights, a sparse matrix in three arrays, and those of events if there are."""
        events = {"event_weights": self.events} if len(self.events) else {}
        if isinstance(self.weights, np.ndarray):
            return {"weights": self.weights, **events}
        return {
            "indptr": self.weights.indptr.astype(np.int64),
            "indices": self.weights.indices.astype(np.int32),
            "weights": self.weights.data,
            **events,
        }

    def attributes(self) -> dict[str, Any]:
        """Return the weights as one matrix, and those of events."""
        return {"weights": self.weights, "event_weights": self.events}

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        seen = self.known.seen
        values = self.events[seen.entries_of(users)] if len(self.events) else EVEN
        return self._score(seen.take(users), values)

    def guests(self, histories: Histories) -> Scorer:
        """Score people by their items, as users are; ages of their events are not known."""
        owned = histories.matrix

        def score(rows: Rows) -> Scores:
            some, values = owned.take(rows), EVEN
            if self._recency:
                few = Histories.of([histories[row] for row in rows], histories.n_items)
                values = weights_in_order(few, self._recency)[few.by_item]
            return self._score(some, values)

        return BlockView(self.name, self.rankable, score)

    def _score(self, owned: Csr, values: Scores) -> Scores:
        scores = owned.to_scipy(values=values) @ self.weights
        return np.asarray(scores.toarray() if sp.issparse(scores) else scores)

    def contributions(self, history: Rows, item: int, user: int | None = None) -> Contributions:
        """Return the terms of the history's items in the score of another: they add up to it."""
        if isinstance(self.weights, np.ndarray):
            terms = self.weights[history, item]
        else:
            terms = self.weights[history][:, [item]].toarray().ravel()
        values = np.ones(1)
        if user is not None and len(self.events):
            seen = self.known.seen
            values = self.events[seen.indptr[user] + np.searchsorted(seen.row(user), history)]
        elif user is None and self._recency:
            values = weights_in_order(Histories.of([history], len(self.known.items)), self._recency)
        return Contributions.of_terms(history, terms.astype(np.float64) * values)

    def item_similarity(self) -> Scorer:
        """Return how much having one item speaks for each other one, row by row."""
        likeness = self._likeness
        if isinstance(likeness, np.ndarray):
            return BlockView(self.name, self.rankable, lambda rows: likeness[rows])
        return BlockView(
            self.name, self.rankable, lambda rows: likeness[rows].toarray(), sparse=True
        )


def by_history(blocks: list[sp.csr_array]) -> sp.csr_array:
    """Turn weights found block by block, a row for each scored item, to rows of history items."""
    weights = sp.csr_array(sp.vstack(blocks).T.tocsr())
    weights.sort_indices()
    return weights


def stored_sparse(arrays: Arrays, known: Known) -> sp.csr_array:
    """Put the three arrays of a file together, and check them."""
    n_items = len(known.items)
    entries = (arrays["weights"], arrays["indices"], arrays["indptr"])
    weights = sp.csr_array(entries, shape=(n_items, n_items))
    weights.check_format(full_check=True)
    return weights


def stored_events(arrays: Arrays, known: Known) -> Scores:
    """Check the weights of events of a file, where it has some."""
    if "event_weights" not in arrays:
        return EVEN
    return stored(arrays, "event_weights", np.float32, (len(known.seen.indices),))


def stored_dense(arrays: Arrays, known: Known) -> Scores:
    """Check the dense weights of a file."""
    return stored(arrays, "weights", np.float32, (len(known.items), len(known.items)))
