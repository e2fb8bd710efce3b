"""`RowScorer`: what ranking and evaluation need of a fitted model, in row numbers."""

from __future__ import annotations

from abc import ABC

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from transcf.data.csr import Csr
from transcf.data.ids import IdMap, Rows
from transcf.errors import NotFittedError, UnsupportedError
from transcf.retrieval.scorer import LinearForm, Scorer, Scores, block_length
from transcf.retrieval.views import BlockView


class RowScorer(ABC):
    """Scores of users against items, by row; a model has `linear_form` or `score_block`."""

    #: Short name in tables and on the command line.
    name: str

    users_: IdMap
    items_: IdMap
    seen_: Csr
    item_counts_: npt.NDArray[np.int64]

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` or `load` has run."""
        return "seen_" in vars(self)

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet: call fit first.")

    @property
    def rankable(self) -> npt.NDArray[np.bool_]:
        """(n_items,) items with training interactions."""
        return self.item_counts_ > 0

    def linear_form(self) -> LinearForm | None:
        """Return the score as inner products, if it is one."""
        return None

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        form = self.linear_form()
        assert form is not None, f"{type(self).__name__} has neither a linear form nor score_block"
        return form.score_block(users)

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,). Models with a direct formula override this."""
        form = self.linear_form()
        if form is not None:
            return form.score_pairs(users, items)
        scores = np.empty(len(users), dtype=np.float32)
        distinct, place = np.unique(users, return_inverse=True)
        order = np.argsort(place, kind="stable")
        step = block_length(len(self.items_))
        for first in range(0, len(distinct), step):
            start, stop = np.searchsorted(place[order], (first, first + step))
            pairs = order[start:stop]
            block = self.score_block(distinct[first : first + step].astype(np.int32))
            scores[pairs] = block[place[pairs] - first, items[pairs]]
        return scores

    def _histories(self, users: Rows) -> sp.csr_array:
        """Training items of some user rows as a sparse matrix of ones, (n, n_items)."""
        lengths = self.seen_.counts[users]
        indptr = np.zeros(len(users) + 1, dtype=np.int64)
        np.cumsum(lengths, out=indptr[1:])
        places = np.arange(indptr[-1]) + np.repeat(self.seen_.indptr[users] - indptr[:-1], lengths)
        return Csr(indptr, self.seen_.indices[places], len(self.items_)).to_scipy()

    # -- people and things beyond the training data: models fill in what they can --------------

    def _score_histories(self, histories: sp.csr_array) -> Scores:
        """Score all items for people known by their items alone, (n, n_items) in and out."""
        raise UnsupportedError(
            f"{type(self).__name__} cannot recommend to people it was not fitted on: fit again "
            "with them, or use a model such as TransCF."
        )

    def _guests(self, histories: list[Rows]) -> Scorer:
        """Return a scorer with a row for each history, item rows from the oldest to the latest."""
        matrix = self._matrix_of(histories)
        return BlockView(self.name, self.rankable, lambda rows: self._score_histories(matrix[rows]))

    def _matrix_of(self, histories: list[Rows]) -> sp.csr_array:
        """Lists of item rows as a sparse matrix of ones, (n, n_items)."""
        lengths = [len(history) for history in histories]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        indices = np.concatenate([np.sort(history) for history in histories])
        return Csr(indptr, indices.astype(np.int32), len(self.items_)).to_scipy()

    def _item_similarity(self) -> Scorer:
        """Return a scorer of items against items."""
        raise UnsupportedError(
            f"{type(self).__name__} has neither vectors nor weights of items, so none are "
            "similar: use a model such as TransCF, EASE or ItemKNN."
        )

    def _user_similarity(self) -> Scorer:
        """Return a scorer of users against users."""
        raise UnsupportedError(
            f"{type(self).__name__} has no vectors of users, so none are similar: use a model "
            "such as TransCF."
        )
