"""`AlternatingRecommender`: what iALS and eALS have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Csr
from transcf.data.interactions import Interactions
from transcf.kernels import Array
from transcf.models.base import State
from transcf.models.vectors import VectorRecommender
from transcf.retrieval.scorer import Scores

from .alternation import Alternation, FixedItems, Objective, Solver, start_vectors


class AlternatingRecommender(VectorRecommender):
    """Inner products learned by least squares over all pairs; a subclass says which weights."""

    cure: ClassVar[str] = "dim, or raise regularization"

    _fixed_items: FixedItems | None = None

    @abstractmethod
    def _objective(self, user_counts: Array, item_counts: Array) -> Objective:
        """What is minimised, given the interactions of each user and of each item."""

    @abstractmethod
    def _solver(self) -> Solver:
        """How a row is solved in training."""

    @abstractmethod
    def _start_scale(self) -> float:
        """Standard deviation of the first vectors."""

    def _trainable(self, train: Interactions) -> Alternation:
        by_user, by_item = train.by_user, train.by_item
        users, items = start_vectors(
            (train.n_users, train.n_items), self.dim, self._start_scale(), self.random_state
        )
        objective = self._objective(by_user.counts, by_item.counts)
        return Alternation(by_user, by_item, objective, self._solver(), users, items)

    def _fold_in(self, histories: sp.csr_array) -> Scores:
        """Place people exactly where the objective wants them, the items as they are."""
        by_user = Csr(
            histories.indptr.astype(np.int64),
            histories.indices.astype(np.int32),
            len(self.items_),
        )
        objective = self._objective(by_user.counts, self.item_counts_)
        if self._fixed_items is None:
            self._fixed_items = FixedItems(self.item_vectors_, objective.missing)
        return self._fixed_items.solve(by_user, objective)

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self._fixed_items = None
