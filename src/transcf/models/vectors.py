"""Models with a vector for every user and every item, scored by inner product or distance."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from transcf.data.ids import Rows
from transcf.models._tensors import checked
from transcf.models.base import State
from transcf.models.iterative import IterativeRecommender
from transcf.retrieval.forms import cosine_form, distance_form, dot_form, nearness_form
from transcf.retrieval.scorer import LinearForm, Scorer, Scores
from transcf.retrieval.views import FormView

#: Pairs whose vectors are gathered at once: few enough to stay in the cache.
_PAIRS_AT_ONCE = 512
#: Ridge of the map from histories to user vectors, as a share of the mean square of its inputs.
_MAP_RIDGE = 1e-2


class VectorRecommender(IterativeRecommender):
    """`score(u, i) = x_u . y_i + c_i`, or `-|x_u - y_i|^2 + c_i` where `geometry` is "distance".

    A subclass says how an epoch changes the vectors (`_trainable`, whose tensors are named
    `user_vectors`, `item_vectors` and `item_bias` unless `_adopt` says otherwise). Ranking,
    similar users and items, and files are here, and so are people the model was not fitted on:
    they get the vector that users with such a history tend to have, `x = [m, 1] W` with m the mean
    of their items' vectors and W fitted to the trained users by least squares with a small ridge.
    A subclass with a better answer overrides `_fold_in`.

    Attributes (after `fit`):
        user_vectors_: x, (n_users, dim) float32.
        item_vectors_: y, (n_items, dim) float32.
        item_bias_: c, (n_items,) float32.
    """

    geometry: ClassVar[Literal["dot", "distance"]] = "dot"

    dim: int
    user_vectors_: Scores
    item_vectors_: Scores
    item_bias_: Scores

    _linear: LinearForm | None = None
    _history_map: Scores | None = None

    # -- scoring -----------------------------------------------------------------------------

    def _form_for(self, users: Scores) -> LinearForm:
        """Return the scores of users with these vectors, (n, dim)."""
        make = dot_form if self.geometry == "dot" else distance_form
        return make(users, self.item_vectors_, self.item_bias_)

    def linear_form(self) -> LinearForm | None:
        """Return the score as inner products."""
        if self._linear is None:
            self._linear = self._form_for(self.user_vectors_)
        return self._linear

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula: (n,)."""
        scores = np.empty(len(users), np.float32)
        for start in range(0, len(users), _PAIRS_AT_ONCE):
            some = slice(start, start + _PAIRS_AT_ONCE)
            x, y = self.user_vectors_[users[some]], self.item_vectors_[items[some]]
            parts = x * y if self.geometry == "dot" else -np.square(x - y)
            scores[some] = parts.sum(axis=1) + self.item_bias_[items[some]]
        return scores

    # -- people beyond the training data, similar users and items ----------------------------

    def _guests(self, histories: list[Rows]) -> Scorer:
        vectors = self._fold_in(self._matrix_of(histories))
        return FormView(self.name, self.rankable, self._form_for(vectors))

    def _fold_in(self, histories: sp.csr_array) -> Scores:
        """Place people known by their items, (n, n_items): vectors (n, dim)."""
        if self._history_map is None:
            active = self.seen_.counts > 0
            means = self._history_means(self.seen_.to_scipy()[active])
            self._history_map = _least_squares(means, self.user_vectors_[active])
        vectors: Scores = self._history_means(histories) @ self._history_map
        return vectors

    def _history_means(self, histories: sp.csr_array) -> Scores:
        """Means of the items' vectors and a constant 1, (n, dim + 1)."""
        lengths = np.maximum(1, np.diff(histories.indptr))[:, None]
        means = (histories @ self.item_vectors_) / lengths
        return np.hstack([means, np.ones_like(means[:, :1])]).astype(np.float32)

    def _item_similarity(self) -> FormView:
        return FormView(self.name, self.rankable, self._likeness(self.item_vectors_))

    def _user_similarity(self) -> FormView:
        return FormView(self.name, self.seen_.counts > 0, self._likeness(self.user_vectors_))

    def _likeness(self, vectors: Scores) -> LinearForm:
        return cosine_form(vectors) if self.geometry == "dot" else nearness_form(vectors)

    # -- files -------------------------------------------------------------------------------

    def _state(self) -> State:
        return {
            "user_vectors": self.user_vectors_,
            "item_vectors": self.item_vectors_,
            "item_bias": self.item_bias_,
        }

    def _restore(self, state: State) -> None:
        users, items = (len(self.users_), self.dim), (len(self.items_), self.dim)
        self.user_vectors_ = checked(state, "user_vectors", np.float32, users)
        self.item_vectors_ = checked(state, "item_vectors", np.float32, items)
        self.item_bias_ = checked(state, "item_bias", np.float32, items[:1])
        self._linear = self._history_map = None


def _least_squares(inputs: Scores, outputs: Scores) -> Scores:
    """Return W that minimises |inputs W - outputs|^2, (d_in, d_out) float32.

    The last input is the constant 1; the others have a ridge that grows and shrinks with them.
    """
    x = inputs.astype(np.float64)
    gram = x.T @ x
    squares = np.diag(gram)[:-1]
    ridge = max(_MAP_RIDGE * float(squares.mean()), float(np.finfo(np.float32).tiny))
    gram[:-1, :-1] += ridge * np.eye(len(squares))
    return np.linalg.solve(gram, x.T @ outputs).astype(np.float32)
