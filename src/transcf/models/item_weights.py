"""`ItemWeights`: weights between items; a user's score is the sum over the user's items."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Csr, Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Mask
from transcf.io.tensors import Arrays, stored
from transcf.kernels import Array
from transcf.models.event_weights import EVEN, WeightSettings, weights_in_order
from transcf.models.explain import TERM, Contributions
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import setting, settings
from transcf.retrieval.scorer import BlockView, Scorer, Scores

#: Most counts of pairs of items that are held at once before the largest are picked, 12 bytes each.
_BLOCK_ENTRIES = 2**23


@settings()
class ItemWeightSettings(WeightSettings):
    """Parameters of models with item weights: events are weighted as targets and when scored."""

    history_recency: float | None = setting(
        None,
        "The same as `recency` for the history that is scored, where `recency` weighs what is "
        "learned; None takes `recency` for both. After a cut by date 0 is often better, for the "
        "next single event None.",
        low=0,
        high=50,
    )

    @property
    def scored_recency(self) -> float:
        """The recency of scored histories."""
        return self.event_weights.recency if self.history_recency is None else self.history_recency


class ItemWeights(FittedScorer):
    """`score(u, i) = sum of weights[j, i] over the items j of u`, later ones counting more.

    Weights are (n_items, n_items) float32, dense or sparse. `recency` weighs the items of a history
    in the order of time. `likeness` has similarities of items by row, if not the weights.
    """

    def __init__(
        self,
        known: TrainingData,
        name: str,
        weights: Scores | sp.csr_array,
        recency: float = 0.0,
        likeness: sp.csr_array | None = None,
    ) -> None:
        super().__init__(known, name)
        self.weights = weights
        self._recency = recency if known.timed else 0.0
        self._likeness = weights if likeness is None else likeness

    def arrays(self) -> Arrays:
        """Return the weights, a sparse matrix in three arrays."""
        if isinstance(self.weights, np.ndarray):
            return {"weights": self.weights}
        return {
            "indptr": self.weights.indptr.astype(np.int64),
            "indices": self.weights.indices.astype(np.int32),
            "weights": self.weights.data,
        }

    def attributes(self) -> dict[str, Any]:
        """Return the weights as one matrix."""
        return {"weights": self.weights}

    def _score_block(self, users: Rows) -> Scores:
        return self._score(self.known.histories, self.known.seen.take(users), users)

    def fold_in(self, histories: Histories) -> Scorer:
        """Score new users by their items."""
        owned = histories.matrix
        return BlockView(
            self.name, self.rankable, lambda rows: self._score(histories, owned.take(rows), rows)
        )

    def _score(self, histories: Histories, owned: Csr, rows: Rows) -> Scores:
        """Score all items for some rows of histories; `owned` has their items as sets."""
        few = histories.take(rows)
        values = self.history_weights(few)
        values = values[few.by_item] if len(values) else values
        scores = owned.to_scipy(values=values) @ self.weights
        return np.asarray(scores.toarray() if sp.issparse(scores) else scores)

    def history_weights(self, histories: Histories) -> Array:
        """Return how much the items of histories count: (n_events,); empty if all are equal."""
        return weights_in_order(histories, self._recency) if self._recency else EVEN

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Return the terms of the history's items in the score of another: they add up to it."""
        if isinstance(self.weights, np.ndarray):
            terms = self.weights[history, item]
        else:
            terms = self.weights[history][:, [item]].toarray().ravel()
        values = self.history_weights(Histories.of([history], len(self.known.items)))
        terms = terms.astype(np.float64) * (values if len(values) else 1.0)
        return Contributions(history, terms, TERM, rest=0.0)

    def item_similarity(self) -> Scorer:
        """Return the similarity of items by their weights."""
        likeness: Any = self._likeness
        is_sparse = sp.issparse(likeness)

        def score(rows: Rows) -> Scores:
            return likeness[rows].toarray() if is_sparse else likeness[rows]

        return BlockView(self.name, self.rankable, score, sparse=is_sparse)


def item_blocks(histories: Histories) -> Iterator[tuple[int, int]]:
    """Cut the items so that the counts of items in the same histories stay bounded."""
    n_items, lengths = histories.n_items, np.repeat(histories.counts, histories.counts)
    reach = np.zeros(n_items + 1, dtype=np.int64)
    reach[1:] = np.bincount(histories.items, lengths, minlength=n_items)
    bound = np.cumsum(np.minimum(reach, n_items))
    first = 0
    while first < n_items:
        last = int(np.searchsorted(bound, bound[first] + _BLOCK_ENTRIES, side="right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


def largest(values: Array, indptr: Array, n: int) -> Mask:
    """Return a mask of the n largest positive values of each row; of equal ones, the first."""
    kept = values > 0
    for start, stop in pairwise(indptr):
        row = values[start:stop]
        if np.count_nonzero(row) > n:
            edge = np.partition(row, len(row) - n)[len(row) - n]
            mask = row > edge
            mask[np.flatnonzero(row == edge)[: n - np.count_nonzero(mask)]] = True
            kept[start:stop] = mask
    return kept


def by_history(blocks: list[sp.csr_array]) -> sp.csr_array:
    """Transpose weights found block by block, a row for each scored item."""
    weights = sp.csr_array(sp.vstack(blocks).T.tocsr())
    weights.sort_indices()
    return weights


def stored_weights(arrays: Arrays, known: TrainingData) -> Any:
    """Check the weights of a folder: a dense matrix, or a sparse one in three arrays."""
    shape = (len(known.items), len(known.items))
    if "indptr" not in arrays:
        return stored(arrays, "weights", np.float32, shape)
    weights = sp.csr_array((arrays["weights"], arrays["indices"], arrays["indptr"]), shape=shape)
    weights.check_format(full_check=True)
    return weights
