# ruff: noqa: D102  (methods of the base class are documented there)
"""`Factors`: a vector for every user and item, scored by inner product or by distance.

`first_vectors` draws the first ones. `HistoryMap` folds in new users for models without a fold-in
of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr, Histories
from transcf.data.ids import Rows
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.kernels.neighborhood import bound_rows
from transcf.models.explain import REPLACED, TERM, Contributions
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.retrieval.scorer import (
    FormView,
    Geometry,
    LinearForm,
    Scorer,
    Scores,
    StoredForm,
    cosine_form,
    nearness_form,
    user_side,
    vector_form,
)

#: Pairs whose vectors are gathered at once: few enough to stay in the cache.
PAIRS_AT_ONCE = 512
#: Folds in new users: from histories to vectors, (n, dim). For explanations it may have `terms`,
#: (history, item vector) -> (n,), where positions are sums over items, or `changed`, history ->
#: (n + 1, dim): the position as it is and with each item changed, in a way that `meaning` says.
FoldIn: TypeAlias = Callable[[Histories], Scores]


class Factors(FittedScorer):
    """`score(u, i) = x_u . y_i + c_i`, or `-|x_u - y_i|^2 + c_i` by distance.

    Args:
        known: The training data.
        name: Name of the model.
        users: x, (n_users, dim).
        items: y, (n_items, dim).
        fold: Folds in new users.
        bias: c, (n_items,), or None.
        geometry: "dot" or "distance".
        extras: Further arrays of the model folder.
        stores_users: Whether the folder has x; not if it follows from the rest.
        senders: p, (n_items, dim), if p_j . y_i is how similar item i is to item j; None compares
            the vectors y.
    """

    def __init__(
        self,
        known: TrainingData,
        name: str,
        users: Scores,
        items: Scores,
        fold: FoldIn,
        *,
        bias: Scores | None = None,
        geometry: Geometry = "dot",
        extras: Mapping[str, Scores] | None = None,
        stores_users: bool = True,
        senders: Scores | None = None,
    ) -> None:
        super().__init__(known, name)
        self.users, self.items, self.bias, self.geometry = users, items, bias, geometry
        self.extras: Mapping[str, Scores] = extras or {}
        self._fold, self._stores_users, self._senders = fold, stores_users, senders

    def arrays(self) -> Arrays:
        users = {"user_vectors": self.users} if self._stores_users else {}
        bias = {} if self.bias is None else {"item_bias": self.bias}
        return {**users, "item_vectors": self.items, **bias, **self.extras}

    def attributes(self) -> dict[str, Any]:
        return {"user_vectors": self.users, **self.arrays()}

    # -- scores ------------------------------------------------------------------------------

    @cached_property
    def _form(self) -> LinearForm:
        return vector_form(self.geometry, self.users, self.items, self.bias)

    def linear_form(self) -> LinearForm:
        return self._form

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:

        def score(u: Rows, i: Rows) -> Scores:
            x, y = self.users[u], self.items[i]
            parts = x * y if self.geometry == "dot" else -np.square(x - y)
            scores = parts.sum(axis=1)
            return scores if self.bias is None else scores + self.bias[i]

        return in_pieces(score, users, items)

    def with_bias(self, offset: Scores) -> Factors | None:
        if self.bias is None:
            return None
        changed = copy(self)  # without cached properties
        changed.bias = self.bias + offset
        return changed

    # -- new users, similar users and items ----------------------------------------------------

    def fold_in(self, histories: Histories) -> Scorer:
        users = user_side(self.geometry, self._fold(histories), self.bias is not None)
        return FormView(self.name, self.rankable, self._form.for_users(*users))

    def with_histories(self, histories: Histories) -> Scorer:
        # Trained vectors are better than those that a map predicts.
        return self if isinstance(self._fold, HistoryMap) else self.fold_in(histories)

    def contributions(self, history: Rows, item: int) -> Contributions:
        fold: Any = self._fold
        vector = self.items[item].astype(np.float64)
        rest = 0.0 if self.bias is None else float(self.bias[item])
        if hasattr(fold, "terms") and self.geometry == "dot":
            return Contributions(history, fold.terms(history, vector), TERM, rest)
        if not hasattr(fold, "changed"):
            return super().contributions(history, item)
        # By distance, too, a lead is linear in the user's vector x: |x|^2 is in both scores.
        places, average = fold.changed(history), self._average_item
        leads = places @ (vector - average) * (1 if self.geometry == "dot" else 2)
        return Contributions(history, leads[0] - leads[1:], fold.meaning)

    @cached_property
    def _average_item(self) -> npt.NDArray[np.float64]:
        return self.known.average_item(self.items)

    def position(self, user: int | None, history: Rows) -> Scores | None:
        if user is not None:
            return self.users[user]
        return self._fold(Histories.of([history], len(self.items)))[0]

    def item_similarity(self) -> Scorer:
        form = self._likeness(self.items)
        if self._senders is not None:
            form = StoredForm(self._senders, self.items, np.zeros(len(self.items), np.float32))
        return FormView(self.name, self.rankable, form)

    def user_similarity(self) -> Scorer:
        return FormView(self.name, self.known.active, self._likeness(self.users))

    def _likeness(self, vectors: Scores) -> LinearForm:
        return cosine_form(vectors) if self.geometry == "dot" else nearness_form(vectors)


def in_pieces(
    score: Callable[[Rows, Rows], Scores], users: Rows, items: Rows, length: int = PAIRS_AT_ONCE
) -> Scores:
    """Score pairs of rows, (n,), `length` at a time."""
    scores = np.empty(len(users), np.float32)
    for start in range(0, len(users), length):
        some = slice(start, start + length)
        scores[some] = score(users[some], items[some])
    return scores


def stored_factors(arrays: Arrays, known: TrainingData, dim: int) -> tuple[Scores, Scores]:
    """Check `user_vectors` and `item_vectors` of a file."""
    users = checked(arrays, "user_vectors", np.float32, (len(known.users), dim))
    return users, checked(arrays, "item_vectors", np.float32, (len(known.items), dim))


def stored_bias(arrays: Arrays, known: TrainingData) -> Scores:
    """Check `item_bias` of a file."""
    return checked(arrays, "item_bias", np.float32, (len(known.items),))


#: Ridge of the map from histories to user vectors, as a share of the mean square of its inputs.
_RIDGE = 1e-2


class HistoryMap:
    """Predicts the vector of a user from the history, by ridge regression on the trained users.

    `x = [m, 1] W`, with m the mean of the items' vectors (`power` 1) or their sum over the root of
    their number (`power` 0.5), and W fitted by least squares with a small ridge at first use.
    With `in_ball`, vectors are projected into the unit ball.
    """

    meaning = REPLACED

    def __init__(
        self,
        known: TrainingData,
        users: Scores,
        items: Scores,
        power: float = 1.0,
        in_ball: bool = False,
    ) -> None:
        self._known, self._users, self._items = known, users, items
        self._power, self._in_ball = power, in_ball

    def __call__(self, histories: Histories) -> Scores:
        """Return the vectors of new users, (n, dim)."""
        vectors = self._inputs(histories.matrix) @ self._map
        if self._in_ball:
            bound_rows(vectors, 1.0)
        return vectors

    def changed(self, history: Rows) -> npt.NDArray[np.float64]:
        """Return the vector of a history, and those with each item replaced: (n + 1, dim)."""
        own = self._items[history].astype(np.float64)
        sums = own.sum(axis=0) + np.vstack([np.zeros_like(own[:1]), self._average - own])
        inputs = np.hstack([sums / len(own) ** self._power, np.ones((len(sums), 1))])
        vectors = inputs @ self._map.astype(np.float64)
        if self._in_ball:
            vectors /= np.maximum(1.0, np.linalg.norm(vectors, axis=1, keepdims=True))
        return vectors

    @cached_property
    def _average(self) -> npt.NDArray[np.float64]:
        return self._known.average_item(self._items)

    @cached_property
    def _map(self) -> Scores:
        """W, (d + 1, dim) float32, by least squares; all inputs but the constant have a ridge."""
        active = np.flatnonzero(self._known.active)
        x = self._inputs(self._known.seen.take(active)).astype(np.float64)
        gram = x.T @ x
        squares = np.diag(gram)[:-1]
        ridge = max(_RIDGE * float(squares.mean()), float(np.finfo(np.float32).tiny))
        gram[:-1, :-1] += ridge * np.eye(len(squares))
        return np.linalg.solve(gram, x.T @ self._users[active]).astype(np.float32)

    def _inputs(self, owned: Csr) -> Scores:
        """Return the inputs of histories and a constant 1, (n, d + 1)."""
        lengths = np.maximum(1, owned.counts)[:, None]
        scale = lengths if self._power == 1 else np.sqrt(lengths)
        sums = (owned.to_scipy() @ self._items) / scale
        return np.hstack([sums, np.ones_like(sums[:, :1])]).astype(np.float32)


#: Rows that are drawn at once.
_ROWS = 1 << 14


def first_vectors(
    sizes: Sequence[int],
    dim: int,
    scale: float,
    generator: np.random.Generator,
    dtype: npt.DTypeLike = np.float32,
    drawn_in: type[np.float32] | type[np.float64] = np.float64,
) -> list[Array]:
    """Draw normal vectors of standard deviation `scale`: one array (size, dim) after the other."""
    arrays = [np.empty((size, dim), dtype) for size in sizes]
    for array in arrays:
        for first in range(0, len(array), _ROWS):  # the same numbers, less memory
            some = array[first : first + _ROWS]
            some[:] = drawn_in(scale) * generator.standard_normal(some.shape, drawn_in)
    return arrays


NormConstraint: TypeAlias = Literal["norm", "squared", "none"]
#: The power of its norm by which a vector outside of the ball is divided.
NORM_POWERS: dict[NormConstraint, int] = {"none": 0, "norm": 1, "squared": 2}


def constrain_norms(matrix: Array, how: NormConstraint) -> bool:
    """Project rows longer than 1 into the unit ball, in place; whether all are finite."""
    return bool(np.isfinite(bound_rows(matrix, NORM_POWERS[how])).all())
