"""What NeuMF has learned, and how it scores without torch: GMF alone, or with a tower."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.io.tensors import Arrays
from transcf.models.contributions import Contributions
from transcf.models.factors import Factors, in_pieces
from transcf.models.fitted import FittedScorer
from transcf.models.fold_in import HistoryMap
from transcf.models.training_data import TrainingData
from transcf.retrieval.forms import LinearForm, cosine_form
from transcf.retrieval.scorer import Scorer, Scores
from transcf.retrieval.views import BlockView, FormView

#: Pairs that go through the tower at once: few enough to stay in the cache.
_PAIRS_AT_ONCE = 1024
#: Items that the tower compares one with, to explain it.
_COMPARED = 64


class GMF(Factors):
    """`score(u, i) = h . (p_u * q_i) + c`, an inner product with the item vectors `h * q_i`.

    Args:
        known: What the model keeps of its training data.
        name: What tables call the model.
        users: p, (n_users, dim).
        items: q, (n_items, dim).
        weights: `gmf_head`, h (dim,), and `gmf_bias`, c (1,).
    """

    def __init__(
        self, known: TrainingData, name: str, users: Scores, items: Scores, weights: Arrays
    ) -> None:
        """Keep them."""
        guests = HistoryMap(known, users, items)
        super().__init__(known, name, users, items, guests, extras=weights)
        self._head, self._bias, self._place = weights["gmf_head"], weights["gmf_bias"], guests

    @cached_property
    def _weighted(self) -> LinearForm:
        return LinearForm(self.items * self._head, lambda rows: self._side(self.users[rows]))

    def _side(self, vectors: Scores) -> tuple[Scores, Scores]:
        """Vectors and constants of users in the linear form."""
        return vectors, np.repeat(self._bias, len(vectors))

    def linear_form(self) -> LinearForm:
        """Return the score as inner products."""
        return self._weighted

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula: (n,)."""

        def score(u: Rows, i: Rows) -> Scores:
            scores: Scores = (self.users[u] * self.items[i]) @ self._head + self._bias
            return scores

        return in_pieces(score, users, items)

    def fold_in(self, histories: Histories) -> Scorer:
        """Place people by their items, and score all items for them."""
        people = self._side(self._place(histories))
        return FormView(self.name, self.rankable, self._weighted.for_users(*people))

    def _weighted_item(self, vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return vector * self._head


class Tower(FittedScorer):
    """`score(u, i) = h . (p_u * q_i) + h' . x_L + c`, or MLP's part of it alone.

    Args:
        known: What the model keeps of its training data.
        name: What tables call the model.
        users: [p, p'], (n_users, width).
        items: [q, q'], (n_items, width).
        weights: All others by name; `NeuMFSettings.shapes` has their shapes.
        gmf_width: Length of p and q; 0 without GMF's part.
    """

    def __init__(
        self,
        known: TrainingData,
        name: str,
        users: Scores,
        items: Scores,
        weights: Arrays,
        gmf_width: int,
    ) -> None:
        """Keep them."""
        super().__init__(known, name)
        self._users, self._items, self._weights, self._cut = users, items, weights, gmf_width
        self._place = HistoryMap(known, users, items)

    def arrays(self) -> Arrays:
        """Return `user_vectors`, `item_vectors` and the weights."""
        return {"user_vectors": self._users, "item_vectors": self._items, **self._weights}

    # -- scores ------------------------------------------------------------------------------

    def _score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        return self._score(self._users[users], self._sums_of_users[users])

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula: (n,)."""
        weights, cut = self._weights, self._cut

        def score(u: Rows, i: Rows) -> Scores:
            scores = upper_layers(weights, self._sums_of_users[u] + self._sums_of_items[i])
            if cut:
                products = self._users[u, :cut] * self._items[i, :cut]
                scores += products @ weights["gmf_head"] + weights["gmf_bias"]
            return scores

        return in_pieces(score, users, items, _PAIRS_AT_ONCE)

    def _score(self, vectors: Scores, sums: Scores) -> Scores:
        """Score all items for people with these vectors and sums of the first layer."""
        block = np.empty((len(vectors), len(self._items)), np.float32)
        # One person at a time: a score must not depend on who else was asked for.
        for row, (vector, own_sums) in enumerate(zip(vectors, sums, strict=True)):
            for start in range(0, len(self._items), _PAIRS_AT_ONCE):
                some = slice(start, start + _PAIRS_AT_ONCE)
                block[row, some] = self._score_items(vector, own_sums, some)
        return block

    def _score_items(self, vector: Scores, sums: Scores, items: Rows | slice) -> Scores:
        """Score some items for one person."""
        weights, cut = self._weights, self._cut
        scores = upper_layers(weights, self._sums_of_items[items] + sums)
        if cut:
            scores += self._items[items, :cut] @ (vector[:cut] * weights["gmf_head"])
            scores += weights["gmf_bias"]
        return scores

    # The first layer is a sum of a user's and an item's part: each is computed once, and kept.

    @cached_property
    def _sums_of_users(self) -> Scores:
        return self._first_layer(self._users)

    @cached_property
    def _sums_of_items(self) -> Scores:
        sums: Scores = self._items[:, self._cut :] @ self._weights["item_weight"]
        return sums

    def _first_layer(self, people: Scores) -> Scores:
        """What people, (n, width), add to the sums of the first layer, the bias included."""
        weights = self._weights
        sums: Scores = people[:, self._cut :] @ weights["user_weight"] + weights["bias_1"]
        return sums

    # -- people beyond the training data, similar users and items ----------------------------

    def fold_in(self, histories: Histories) -> Scorer:
        """Place people by their items, and send them through the tower."""
        vectors = self._place(histories)
        sums = self._first_layer(vectors)
        return BlockView(
            self.name, self.rankable, lambda rows: self._score(vectors[rows], sums[rows])
        )

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Return what the items of a history do to where somebody with them is placed."""
        places = self._place.changed(history).astype(np.float32)
        # The tower is not linear, so that no vector stands for the average item: some items do.
        compared = np.concatenate([[item], self.known.typical_items(_COMPARED)])
        leads = np.empty(len(places))
        for row, place in enumerate(places):
            scores = self._score_items(place, self._first_layer(place[None])[0], compared)
            leads[row] = scores[0] - scores[1:].mean(dtype=np.float64)
        return Contributions.of_leads(history, leads, self._place.meaning)

    def item_similarity(self) -> Scorer:
        """Return the cosine of item vectors."""
        return FormView(self.name, self.rankable, cosine_form(self._items))

    def user_similarity(self) -> Scorer:
        """Return the cosine of user vectors."""
        return FormView(self.name, self.known.active, cosine_form(self._users))


def upper_layers(weights: Arrays, sums: Scores) -> Scores:
    """Turn sums of the first layer, (n, width), which are overwritten, into logits, (n,)."""
    x, layer = np.maximum(sums, 0, out=sums), 2
    while f"weight_{layer}" in weights:
        x = x @ weights[f"weight_{layer}"]
        x += weights[f"bias_{layer}"]
        np.maximum(x, 0, out=x)
        layer += 1
    logits: Scores = x @ weights["mlp_head"] + weights["mlp_bias"]
    return logits
