"""What TransCF has learned: vectors, their neighbourhoods, and how they score."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.models.event_weights import weights_in_order
from transcf.models.explain import Contributions, Remarks
from transcf.models.factors import in_pieces
from transcf.models.fitted import FittedScorer
from transcf.models.training_data import TrainingData
from transcf.models.transcf import explaining
from transcf.models.transcf.folding import (
    ItemSide,
    Neighbors,
    fold_users,
    refine_user,
    relative_length,
)
from transcf.models.transcf.parameters import Parameters, neighborhoods
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.models.transcf.settings import TransCFSettings
from transcf.retrieval.scorer import LazyForm, LinearForm, Scorer, Scores
from transcf.retrieval.views import BlockView, FormView


class Translated(FittedScorer):
    """Points of users and items, and the neighbourhoods that translate between them.

    Args:
        known: What the model keeps of its training data.
        settings: The model's.
        parameters: a, b and the biases.
        means: q and n, (n_users, dim) and (n_items, dim); None works them out when needed.
    """

    def __init__(
        self,
        known: TrainingData,
        settings: TransCFSettings,
        parameters: Parameters,
        means: tuple[Array, Array] | None = None,
    ) -> None:
        """Keep them."""
        self.form, self.settings = SCORE_FUNCTIONS[settings.variant], settings
        super().__init__(known, settings.title)
        self.parameters, self._means = parameters, means

    @classmethod
    def from_arrays(
        cls, arrays: Arrays, known: TrainingData, settings: TransCFSettings
    ) -> Translated:
        """Check the arrays of a file or of a solver, and put them together."""
        users, items = (len(known.users), settings.dim), (len(known.items), settings.dim)
        form = SCORE_FUNCTIONS[settings.variant]
        bias: Array = np.zeros(len(known.items), np.float32)
        if settings.item_bias:
            bias = checked(arrays, "item_bias", np.float32, items[:1])
        parameters = Parameters(
            checked(arrays, "user_vectors", np.float32, users),
            checked(arrays, "item_vectors", np.float32, items),
            bias,
        )
        means = None
        if form.has_neighborhoods and "user_neighborhoods" in arrays:
            means = (
                checked(arrays, "user_neighborhoods", np.float32, users),
                checked(arrays, "item_neighborhoods", np.float32, items),
            )
        return cls(known, settings, parameters, means)

    def arrays(self) -> Arrays:
        """Return the vectors, and biases and neighbourhoods where the score has them."""
        own = self.parameters
        arrays = {"user_vectors": own.users, "item_vectors": own.items}
        if self.form.has_neighborhoods:
            arrays |= {"user_neighborhoods": self.q, "item_neighborhoods": self.n}
        arrays |= {"item_bias": own.item_bias} if self.settings.item_bias else {}
        return arrays

    @cached_property
    def _neighborhoods(self) -> tuple[Array, Array]:
        if self._means is not None:
            return self._means
        return neighborhoods(self.known.seen, self.known.by_item, self.parameters)

    @property
    def q(self) -> Array:
        """The mean item of every user, (n_users, dim)."""
        return self._neighborhoods[0]

    @property
    def n(self) -> Array:
        """The mean user of every item, (n_items, dim)."""
        return self._neighborhoods[1]

    @property
    def _score_means(self) -> tuple[Array, Array]:
        """What the score takes as q and n; where it looks at neither, anything of their shape."""
        is_seen = self.form.has_neighborhoods
        return (self.q, self.n) if is_seen else (self.parameters.users, self.parameters.items)

    # -- scores ------------------------------------------------------------------------------

    @cached_property
    def _linear(self) -> LinearForm:
        form, a, (q, n) = self.form, self.parameters.users, self._score_means
        y = form.linear_items(self.parameters.items, n, self.parameters.item_bias[:, None])
        return LazyForm(y, lambda users: form.linear_users(a[users], q[users]))

    def linear_form(self) -> LinearForm | None:
        """Return the score as inner products, where the form has them."""
        return self._linear if self.form.is_linear else None

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        if self.form.is_linear:
            return self._linear.score_block(users)
        return self._direct(self.parameters.users[users], self._score_means[0][users])

    def _direct(self, a: Array, q: Array) -> Scores:
        """Score all items for users at a with means q, (n, dim) each, without inner products."""
        items, n = self.parameters.items, self._score_means[1]
        rows = [self.form.pair_cost(*pair, items, n) for pair in zip(a, q, strict=True)]
        scores: Scores = (self.parameters.item_bias - np.array(rows)).astype(np.float32)
        return scores

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula: (n,)."""
        own, (q, n) = self.parameters, self._score_means

        def score(u: Rows, i: Rows) -> Scores:
            cost = self.form.pair_cost(own.users[u], q[u], own.items[i], n[i])
            scores: Scores = own.item_bias[i] - cost
            return scores

        return in_pieces(score, users, items)

    def with_bias(self, offset: Array) -> Translated | None:
        """Return the same with a number added to each item's bias; None where it has none."""
        if not self.settings.item_bias:
            return None
        own = replace(self.parameters, item_bias=self.parameters.item_bias + offset)
        return Translated(self.known, self.settings, own, self._means)

    def translations(self, users: Rows, items: Rows) -> Scores:
        """Return the vectors that move users toward items, by pairs of rows: (n, dim)."""
        own = self.parameters
        return self.form.translation(
            own.users[users], self.q[users], own.items[items], self.n[items]
        )

    def toward(self, user: int | None, history: Rows, item: int) -> tuple[Array, Array]:
        """Return where somebody is, and what moves them toward an item: a and r, (dim,) float64.

        Args:
            user: Row of the user; None for somebody known by a history alone.
            history: Item rows of the user, in order.
            item: Row of the item.
        """
        if user is None:
            (a,), (q,) = self.fold_in_vectors(Histories.of([history], len(self.known.items)))
        else:
            rows = (self.parameters.users, self._score_means[0])
            a, q = (vectors[user].astype(np.float64) for vectors in rows)
        return a, q * self._score_means[1][item]

    def stand(self, user: int | None, history: Rows) -> Array:
        """Return a of a user or of somebody new, (dim,)."""
        people = Histories.of([history], len(self.known.items))
        place: Array = (
            self.fold_in_vectors(people)[0][0] if user is None else self.parameters.users[user]
        )
        return place

    def moved(self, user: int | None, history: Rows, items: Rows) -> Array | None:
        """Return a + r for some items, (n, dim), where the form translates."""
        if not (self.form.has_neighborhoods and self.form.is_distance):
            return None
        pairs = [self.toward(user, history, item) for item in items.tolist()]
        return np.array([a + r for a, r in pairs]).reshape(len(items), -1)

    # -- people and things beyond the training data ----------------------------------------------

    @property
    def recency(self) -> float:
        """How much later items of a history count: as in training, where times were known."""
        return self.settings.event_weights.recency if self.known.timed else 0.0

    @property
    def item_side(self) -> ItemSide:
        """Vectors, neighbourhoods and biases of the items."""
        return ItemSide(self.parameters.items, self._score_means[1], self.parameters.item_bias)

    def fold_in(self, histories: Histories) -> Scorer:
        """Place people by their items, and score all items for them."""
        return self.fold_in_with_sgd(histories, 0)

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        """Do the same, with gradient steps on the training loss after the closed form."""
        a, q = self.fold_in_vectors(histories, steps)
        if not self.form.is_linear:
            return BlockView(self.name, self.rankable, lambda rows: self._direct(a[rows], q[rows]))
        x, constants = self.form.linear_users(a.astype(np.float32), q.astype(np.float32))
        return FormView(self.name, self.rankable, self._linear.for_users(x, constants))

    def fold_in_vectors(self, histories: Histories, steps: int = 0) -> tuple[Array, Array]:
        """Place people by their items: a and q, (n, dim) float64.

        Args:
            histories: What they have, in order.
            steps: Gradient steps on the training loss, items fixed, after the closed form.
        """
        weights, items = weights_in_order(histories, self.recency), self.item_side
        neighbors = Neighbors(histories.indptr, histories.items, weights, histories.n_items)
        a, q = fold_users(self.form, neighbors, items, self.user_length)
        for place in range(len(histories) if steps else 0):
            own = slice(histories.indptr[place], histories.indptr[place + 1])
            others = self.rankable.copy()
            others[histories.items[own]] = False
            a[place] = refine_user(
                self.settings, a[place], q[place], histories.items[own], weights[own], items,
                np.flatnonzero(others), steps,
            )  # fmt: skip
        return a, q

    @cached_property
    def user_length(self) -> float:
        """How long user vectors are against their neighbourhoods; only products need it."""
        if self.form.is_distance:
            return 1.0
        active = self.known.active
        return relative_length(self.parameters.users[active], self.q[active])

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Return what the items of a history do to where somebody with them is placed."""
        return explaining.contributions(self, history, item)

    @cached_property
    def average_item(self) -> tuple[Array, Array]:
        """Vector and neighbourhood of the item of an interaction, on average: (dim,) each."""
        return self.known.average_item(self.item_side.b), self.known.average_item(self.item_side.n)

    @cached_property
    def average_side(self) -> Array:
        """The same of what the linear form has of items, (width,)."""
        return self.known.average_item(self._linear.item_vectors)

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        """Say how far the translation brings them, and who else has the item."""
        return explaining.remarks(self, user, history, item, top)

    def item_similarity(self) -> Scorer:
        """Return how near items are to items."""
        return FormView(self.name, self.rankable, self.form.likeness(self.parameters.items))

    def user_similarity(self) -> Scorer:
        """Return how near users are to users."""
        return FormView(self.name, self.known.active, self.form.likeness(self.parameters.users))
