"""What TransCF has learned where neighbourhoods or translations are learned, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
import polars as pl

from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.kernels import Array
from transcf.learning import Arrays, Known, Learned
from transcf.learning.contributions import Contributions
from transcf.models.transcf.growing import grow
from transcf.models.transcf.learned import Translated
from transcf.models.transcf.neural.scores import LearnedMap, World, attended
from transcf.models.transcf.parameters import Parameters
from transcf.models.transcf.placing import place_items
from transcf.models.transcf.settings import TransCFSettings
from transcf.retrieval.scorer import Scorer, Scores
from transcf.retrieval.views import BlockView
from transcf.storage.tensors import checked

#: Neighbours that are looked at together where pairs are scored.
_NEIGHBORS_AT_ONCE = 2**16


class Extended(Translated):
    """Points, and how their neighbourhoods make a translation for each pair.

    The score is no inner product: whatever ranks asks for blocks of scores.

    Args:
        known: What the model keeps of its training data.
        settings: The model's.
        parameters: a, b and the biases.
        weights: Of attention and map, by name.
        means: As for `Translated`.
    """

    def __init__(
        self,
        known: Known,
        settings: TransCFSettings,
        parameters: Parameters,
        weights: Arrays,
        means: tuple[Array, Array] | None = None,
    ) -> None:
        """Keep them."""
        super().__init__(known, settings, parameters, means)
        self.name, self.weights = settings.title, weights

    @classmethod
    def from_arrays(cls, arrays: Arrays, known: Known, settings: TransCFSettings) -> Extended:
        """Check the arrays of a file or of a training, and put them together."""
        plain = Translated.from_arrays(arrays, known, settings)
        shapes = settings.weight_shapes(settings.dim)
        weights = {name: checked(arrays, name, np.float32, shape) for name, shape in shapes.items()}
        return cls(plain.known, settings, plain.parameters, weights, plain._means)

    @classmethod
    def snapshot(cls, tensors: Arrays, known: Known, settings: TransCFSettings) -> Extended:
        """Put together what a training has learned so far, as copies."""
        dim = settings.dim
        parameters = Parameters(
            tensors["users.rows"][:, :dim].copy(),
            tensors["items.rows"][:, :dim].copy(),
            tensors["bias.rows"][:, 0].copy(),
        )
        weights = {name: tensors[name].copy() for name in settings.weight_shapes(dim)}
        return cls(known, settings, parameters, weights)

    def arrays(self) -> Arrays:
        """Return what `Translated` does, and the weights."""
        return super().arrays() | self.weights

    # -- scores ------------------------------------------------------------------------------

    @cached_property
    def _parts(self) -> LearnedMap:
        return LearnedMap(self.weights)

    @cached_property
    def _world(self) -> World:
        own = self.parameters
        return World(
            form=self.form,
            parts=self._parts,
            users=own.users,
            items=own.items,
            bias=own.item_bias,
            n=self.n,
            by_item=self.known.by_item,
        )

    def linear_form(self) -> None:
        """Return nothing: q, n or r belong to a pair, so that the score is no inner product."""

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        histories = self.known.histories.take(users)
        return self._world.score_people(self.parameters.users[users], self.q[users], histories)

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula in float64: (n,)."""
        scores = np.empty(len(users), np.float32)
        for some in self._pieces(users, items):
            a, r, b = self._moved(users[some], items[some])
            bias = self.parameters.item_bias[items[some]]
            scores[some] = bias - self.form.moved_cost(a, r, b)
        return scores

    def translations(self, users: Rows, items: Rows) -> Scores:
        """Return the vectors that move users toward items, by pairs of rows: (n, dim)."""
        found = np.empty((len(users), self.settings.dim), np.float32)
        for some in self._pieces(users, items):
            a, r, b = self._moved(users[some], items[some])
            found[some] = self.form.translation(a, r, b, np.ones(1))
        return found

    def _pieces(self, users: Rows, items: Rows) -> Iterator[slice]:
        """Cut pairs of rows where they have too many neighbours to be looked at together."""
        numbers = self.known.seen.counts[users] + self.known.by_item.counts[items]
        ends, start = np.cumsum(numbers), 0
        while start < len(users):
            before = int(ends[start - 1]) if start else 0
            fitting = int(np.searchsorted(ends, before + _NEIGHBORS_AT_ONCE, side="right"))
            yield slice(start, max(start + 1, fitting))
            start = max(start + 1, fitting)

    def _moved(self, users: Rows, items: Rows) -> tuple[Array, Array, Array]:
        """Return a, r and b of pairs of rows, (n, dim) float64 each."""
        own = self.parameters
        a = own.users[users].astype(np.float64)
        return self._toward(a, self.q[users], self.known.histories.take(users), items)

    def _toward(
        self, a: Array, q: Array, histories: Histories, items: Rows
    ) -> tuple[Array, Array, Array]:
        """Return a, r and b of people, placed at a with means q, each with one item."""
        own, known = self.parameters, self.known
        b = own.items[items].astype(np.float64)
        q, n = q.astype(np.float64), self.n[items].astype(np.float64)
        if self._parts.attends:
            q = attended(histories.matrix, own.items, b * self._parts.item_scale)
            users = known.by_item.take(items)
            kept = np.where(users.counts[:, None] > 0, 0.0, n)  # of items that nobody has
            n = kept + attended(users, own.users, a * self._parts.user_scale)
        return a, self._parts.translations(q, n), b

    def with_bias(self, offset: Array) -> Extended | None:
        """Return the same with a number added to each item's bias; None where it has none."""
        if not self.settings.item_bias:
            return None
        own = replace(self.parameters, item_bias=self.parameters.item_bias + offset)
        return Extended(self.known, self.settings, own, self.weights, self._means)

    # -- people and things beyond the training data ----------------------------------------------

    def guests(self, histories: Histories) -> Scorer:
        """Place people by their items as the form does, and score all items for them.

        Somebody without any, as explanations ask about, is where the average item is, without q.
        """
        some = np.flatnonzero(histories.counts)
        a = np.tile(self.average_item[0].astype(np.float32), (len(histories), 1))
        q = np.zeros_like(a)
        if len(some):
            a[some], q[some] = self.fold_in(histories.take(some))

        def score(rows: Rows) -> Scores:
            return self._world.score_people(a[rows], q[rows], histories.take(rows))

        return BlockView(self.name, self.rankable, score)

    def trained_guests(self, histories: Histories, steps: int) -> Scorer:
        """Refuse steps of training, as kinds do that have none."""
        return Learned.trained_guests(self, histories, steps)

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Return what the score would lose without each item of a history."""
        return Learned.contributions(self, history, item)

    def toward(self, user: int | None, history: Rows, item: int) -> tuple[Array, Array]:
        """Return a and r of somebody and an item; see `Translated`."""
        one = np.array([item], np.int32)
        if user is not None:
            a, r, _ = self._moved(np.array([user], np.int32), one)
        else:
            histories = Histories.of([history], len(self.known.items))
            a, r, _ = self._toward(*self.fold_in(histories), histories, one)
        return a[0], r[0]

    def grown(self, log: Interactions, weights: Array) -> Extended:
        """Return the same with interactions added: trained points stay, new ones are placed.

        They are placed as in the form without learned parts, see `grow`.
        """
        return self._extended(grow(self._plain, log, weights))

    def with_items(self, categories: pl.DataFrame) -> Extended:
        """Return the same with new items, placed in the same way; see `place_items`."""
        return self._extended(place_items(self._plain, categories))

    @property
    def _plain(self) -> Translated:
        settings = replace(self.settings, neighbors="mean", mapping="product")
        return Translated(self.known, settings, self.parameters, self._means)

    def _extended(self, plain: Translated) -> Extended:
        return Extended(plain.known, self.settings, plain.parameters, self.weights, plain._means)
