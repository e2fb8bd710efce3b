"""`ServedTransCF`: what a trained TransCF can do beyond ranking for its own users."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import polars as pl

from transcf.data.ids import Id, Rows
from transcf.data.interactions import Interactions
from transcf.errors import DataError, ParameterError, UnknownIdError, UnsupportedError
from transcf.kernels import Array
from transcf.models import _tables
from transcf.models._filters import Filters, OnUnknown
from transcf.models.explanation import Effect, Explanation, Neighbor
from transcf.models.iterative import IterativeRecommender
from transcf.retrieval.forms import cosine_form, nearness_form
from transcf.retrieval.scorer import LinearForm, Scores
from transcf.retrieval.views import FormView

from .explain import explain_pair, nearest_users
from .folding import ItemSide, Neighbors, fold_users, refine_user, relative_length
from .growing import Model, grow
from .linear import user_vectors
from .parameters import Form, Hyper, Parameters
from .recency import recency_weights, weights_of_places


class ServedTransCF(IterativeRecommender):
    """New people and things, explanations and similarity; `TransCF` adds the learning."""

    recency: float
    user_vectors_: Scores
    item_vectors_: Scores
    user_neighborhoods_: Scores
    item_neighborhoods_: Scores
    item_bias_: Scores

    @property
    @abstractmethod
    def _form(self) -> Form:
        """The score that is learned."""

    @abstractmethod
    def _hyper(self) -> Hyper:
        """Settings of the training."""

    @abstractmethod
    def linear_form(self) -> LinearForm:
        """Return the score as inner products."""

    # -- new people and things ---------------------------------------------------------------

    def recommend_for(
        self,
        history: Iterable[Id],
        k: int = 10,
        *,
        steps: int = 0,
        exclude_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        on_unknown: OnUnknown = "raise",
    ) -> pl.DataFrame:
        """Recommend items to somebody the model was not fitted on.

        Their q is the mean of their items' vectors, and their a the mean of b_i - q * n_i, where
        later items weigh more if the model learned from timestamps, as in training. How much
        quality that keeps depends on the data: on MovieTweetings N@10 is 98 % of that of users
        trained normally (`benchmarks/fold_in.py`), on MovieLens latest-small, with its long
        histories, 83 %, and 91 % after ten gradient steps.

        Args:
            history: Their item ids, oldest first; of an item given twice the last place counts.
            k: Longest list; shorter where fewer items are left.
            steps: Gradient steps on the training loss, items fixed, after the closed form; about
                ten are worth their time where histories are long.
            exclude_seen: Whether to leave out the items of the history.
            items: The only items to choose from (ids), or None for all.
            exclude: Items never to choose (ids).
            on_unknown: What to do about items that are unknown or have no training interactions:
                "raise" an error or "skip" them. A history without any usable item is an error.

        Returns:
            Table `item_id, score, rank`, ordered as in `recommend`.

        Example:
            >>> model.recommend_for(["x", "y"], k=3, steps=10)  # doctest: +SKIP
        """
        self._check_fitted()
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise ParameterError(
                f"steps={steps!r} is not allowed; it must be a whole number of at least 0."
            )
        rows = _tables.history_rows(self, history, on_unknown)
        filters = Filters(exclude_seen, items, exclude, on_unknown)
        return _tables.guest_recommendations(self, self._guests([rows], steps), rows, k, filters)

    def partial_fit(self, log: Interactions) -> Self:
        """Add interactions without training again.

        New users and items are placed by their neighbours in closed form: users as in
        `recommend_for`, items toward the mean of a_u + q_u * n_i over their first users, with
        the length and the bias that trained items of their popularity have. Trained vectors and
        biases stay as they are under their ids, while all neighbourhood means are renewed. Rows
        are in the order of ids, so row numbers, and the order of `user_vectors_` and its like,
        do change. Nothing is trained here, and it shows (`benchmarks/fold_in.py`): new items
        come out too low on some data and too high on other, so fit again soon.

        Args:
            log: New interactions, with old or new ids.

        Raises:
            DataError: Somebody is not connected to the training data, not even through others.

        Example:
            >>> model.partial_fit(read_interactions("today.csv"))  # doctest: +SKIP
        """
        self._check_fitted()
        if not len(log):
            raise DataError("There is nothing to add: the log has no interactions.")
        weights = recency_weights(log, self._history_recency)
        if not len(weights):
            weights = np.ones(len(log), np.float32)
        known = Model(
            self.users_,
            self.items_,
            self.seen_,
            Parameters(self.user_vectors_, self.item_vectors_, self.item_bias_),
            self.user_neighborhoods_,
            self.item_neighborhoods_,
        )
        grown = grow(known, log, weights, self._form, self._hyper().item_bias)
        report = self.report_
        self._remember(grown.users, grown.items, grown.seen)
        additions = int(report.get("additions", 0)) + 1
        self.report_ = report | self.report_ | {"additions": additions}
        self._restore(
            {
                "user_vectors": grown.parameters.users,
                "item_vectors": grown.parameters.items,
                "user_neighborhoods": grown.q,
                "item_neighborhoods": grown.n,
                "item_bias": grown.parameters.item_bias,
            }
        )
        return self

    @property
    def _history_recency(self) -> float:
        """How much later items of a history count: as in training, where times were known."""
        return self.recency if self.report_.get("timestamps") else 0.0

    def _guests(self, histories: list[Rows], steps: int = 0) -> FormView:
        a, q = self._fold_in(histories, steps)
        x, constants = user_vectors(self._form, a.astype(np.float32), q.astype(np.float32))
        return FormView(self.name, self.rankable, self.linear_form().for_users(x, constants))

    def _fold_in(self, histories: list[Rows], steps: int) -> tuple[Array, Array]:
        """Place people by their item rows, oldest first: a and q, (n, dim)."""
        weights = [
            weights_of_places(np.arange(1, len(rows) + 1), len(rows), self._history_recency)
            for rows in histories
        ]
        indptr = np.concatenate([[0], np.cumsum([len(rows) for rows in histories])])
        neighbors = Neighbors(
            indptr, np.concatenate(histories), np.concatenate(weights), len(self.items_)
        )
        items = ItemSide(self.item_vectors_, self.item_neighborhoods_, self.item_bias_)
        a, q = fold_users(self._form, neighbors, items, self._user_length())
        for place, rows in enumerate(histories if steps else ()):
            others = self.rankable.copy()
            others[rows] = False
            pool = np.flatnonzero(others)
            a[place] = refine_user(
                self._hyper(), a[place], q[place], rows, weights[place], items, pool, steps
            )
        return a, q

    def _user_length(self) -> float:
        """How long user vectors are against their neighbourhoods, where it matters."""
        if self._form != "dot":
            return 1.0
        active = self.seen_.counts > 0
        return relative_length(self.user_vectors_[active], self.user_neighborhoods_[active])

    # -- similar users and items -------------------------------------------------------------

    def _item_similarity(self) -> FormView:
        return FormView(self.name, self.rankable, self._nearness(self.item_vectors_))

    def _user_similarity(self) -> FormView:
        return FormView(self.name, self.seen_.counts > 0, self._nearness(self.user_vectors_))

    def _nearness(self, vectors: Scores) -> LinearForm:
        """Minus the squared distance of vectors; their cosine where scores are inner products."""
        return cosine_form(vectors) if self._form == "dot" else nearness_form(vectors)

    # -- explanations ------------------------------------------------------------------------

    def explain(self, user: Id, item: Id, top: int = 5) -> Explanation:
        """Say where the score of a pair comes from.

        Args:
            user: Id of a user with training interactions.
            item: Id of an item with training interactions.
            top: How many past items and how many other users to show.

        Raises:
            UnknownIdError: An id is unknown or has no training interactions.
            UnsupportedError: The model has no distances (`form="dot"`).

        Example:
            >>> print(model.explain("ann", "x"))  # doctest: +SKIP
        """
        self._check_explainable(top)
        row = int(_tables.user_rows(self, [user], "raise")[0])
        return self._explain(user, row, self.user_vectors_[row], self.seen_.row(row), item, top)

    def explain_for(self, history: Iterable[Id], item: Id, top: int = 5) -> Explanation:
        """Say where the score of an item comes from for somebody known by a history alone.

        Args:
            history: Item ids, oldest first, as for `recommend_for`.
            item: Id of an item with training interactions.
            top: How many past items and how many other users to show.
        """
        self._check_explainable(top)
        rows = _tables.history_rows(self, history, "raise")
        a, _ = self._fold_in([rows], steps=0)
        return self._explain(None, None, a[0], rows, item, top)

    def _check_explainable(self, top: int) -> None:
        self._check_fitted()
        if self._form == "dot":
            raise UnsupportedError(
                'A model with form="dot" has no distances to explain: use another form.'
            )
        if isinstance(top, bool) or not isinstance(top, int) or top < 1:
            raise ParameterError(f"top={top!r} is not allowed; it must be at least 1.")

    def _explain(
        self, user: Id | None, row: int | None, a: Array, history: Rows, item: Id, top: int
    ) -> Explanation:
        target = int(self.items_.require([item], "item")[0])
        if not self.rankable[target]:
            raise UnknownIdError(f"item {item!r} has no training interactions, so it has no score.")
        bias = float(self.item_bias_[target])
        b, n = self.item_vectors_[target], self.item_neighborhoods_[target]
        parts = explain_pair(self._form, a, self.item_vectors_[history], b, n, bias)
        order = np.argsort(-np.abs(parts.effects), kind="stable")[:top]
        entries = np.flatnonzero(self.seen_.indices == target)
        owners = np.searchsorted(self.seen_.indptr, entries, side="right") - 1
        nearest = nearest_users(a, owners[owners != row], self.user_vectors_, top)
        past = self.items_.ids(history[order])
        return Explanation(
            user_id=user,
            item_id=item,
            score=parts.score,
            bias=bias,
            distance_before=parts.distance_before,
            distance_after=parts.distance_after,
            effects=tuple(map(Effect, past, parts.effects[order].tolist())),
            neighbors=tuple(map(Neighbor, self.users_.ids(nearest[0]), nearest[1].tolist())),
        )
