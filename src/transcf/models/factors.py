"""`Factors`: a vector for every user and every item, scored by inner product or by distance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.io.tensors import Arrays, checked
from transcf.models.contributions import ChangingFoldIn, Contributions, SummingFoldIn
from transcf.models.fitted import FittedScorer
from transcf.models.training_data import TrainingData
from transcf.retrieval.forms import (
    Geometry,
    LinearForm,
    cosine_form,
    nearness_form,
    user_side,
    vector_form,
)
from transcf.retrieval.scorer import Scorer, Scores
from transcf.retrieval.views import FormView

#: Pairs whose vectors are gathered at once: few enough to stay in the cache.
PAIRS_AT_ONCE = 512


class FoldIn(Protocol):
    """How people are placed whom the model was not fitted on."""

    def __call__(self, histories: Histories) -> Scores:
        """Return the vectors of some people, (n, dim)."""


class Factors(FittedScorer):
    """`score(u, i) = x_u . y_i + c_i`, or `-|x_u - y_i|^2 + c_i` by distance.

    Args:
        known: What the model keeps of its training data.
        name: What tables call the model.
        users: x, (n_users, dim).
        items: y, (n_items, dim).
        guests: How somebody new is placed.
        bias: c, (n_items,), or None where items have none.
        geometry: "dot" or "distance".
        extras: Further arrays of the model, which go to its files.
        stores_users: Whether files hold x; not where it follows from the rest.
    """

    def __init__(
        self,
        known: TrainingData,
        name: str,
        users: Scores,
        items: Scores,
        guests: FoldIn,
        *,
        bias: Scores | None = None,
        geometry: Geometry = "dot",
        extras: Mapping[str, Scores] | None = None,
        stores_users: bool = True,
    ) -> None:
        """Keep them."""
        super().__init__(known, name)
        self.users, self.items, self.bias, self.geometry = users, items, bias, geometry
        self.extras: Mapping[str, Scores] = extras or {}
        self._guests, self._stores_users = guests, stores_users

    def arrays(self) -> Arrays:
        """Return `user_vectors`, `item_vectors`, `item_bias` where there is one, and the rest."""
        users = {"user_vectors": self.users} if self._stores_users else {}
        bias = {} if self.bias is None else {"item_bias": self.bias}
        return {**users, "item_vectors": self.items, **bias, **self.extras}

    def attributes(self) -> dict[str, Any]:
        """Return all of them."""
        return {"user_vectors": self.users, **self.arrays()}

    # -- scores ------------------------------------------------------------------------------

    @cached_property
    def _form(self) -> LinearForm:
        return vector_form(self.geometry, self.users, self.items, self.bias)

    def linear_form(self) -> LinearForm:
        """Return the score as inner products."""
        return self._form

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula: (n,)."""

        def score(u: Rows, i: Rows) -> Scores:
            x, y = self.users[u], self.items[i]
            parts = x * y if self.geometry == "dot" else -np.square(x - y)
            scores: Scores = parts.sum(axis=1)
            return scores if self.bias is None else scores + self.bias[i]

        return in_pieces(score, users, items)

    def with_bias(self, offset: Scores) -> Factors | None:
        """Return the same with a number added to each item's bias; None where it has none."""
        if self.bias is None:
            return None
        changed = copy(self)
        changed.__dict__.pop("_form", None)
        changed.bias = self.bias + offset
        return changed

    # -- people beyond the training data, similar users and items ----------------------------

    def fold_in(self, histories: Histories) -> Scorer:
        """Place people by their items, and score all items for them."""
        people = user_side(self.geometry, self._guests(histories), self.bias is not None)
        return FormView(self.name, self.rankable, self._form.for_users(*people))

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Return what the items of a history do to where somebody with them is placed."""
        guests, vector = self._guests, self._weighted_item(self.items[item].astype(np.float64))
        rest = 0.0 if self.bias is None else float(self.bias[item])
        if isinstance(guests, SummingFoldIn) and self.geometry == "dot":
            return Contributions.of_terms(history, guests.terms(history, vector), rest)
        if not isinstance(guests, ChangingFoldIn):
            return super().contributions(history, item)
        # By distance, too, a lead is linear in the person's vector x: |x|^2 is in both scores.
        places, average = guests.changed(history), self._weighted_item(self._average_item)
        leads = places @ (vector - average) * (1 if self.geometry == "dot" else 2)
        return Contributions.of_leads(history, leads, guests.meaning)

    @cached_property
    def _average_item(self) -> npt.NDArray[np.float64]:
        return self.known.average_item(self.items)

    def _weighted_item(self, vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What people's vectors are multiplied with, (dim,), from an item's vector."""
        return vector

    def stand(self, user: int | None, history: Rows) -> Scores | None:
        """Return the vector of a user, or that of somebody new."""
        guests = self._guests
        place: Scores = (
            guests(Histories.of([history], len(self.items)))[0]
            if user is None
            else self.users[user]
        )
        return place

    def item_similarity(self) -> Scorer:
        """Return the cosine or the nearness of item vectors."""
        return FormView(self.name, self.rankable, self._likeness(self.items))

    def user_similarity(self) -> Scorer:
        """Return the cosine or the nearness of user vectors."""
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
