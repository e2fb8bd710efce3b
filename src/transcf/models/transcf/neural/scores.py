"""Scores with learned neighbourhoods or translations, without torch and in little memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.kernels import Array
from transcf.kernels.attention import softmax_means
from transcf.learning import Arrays
from transcf.learning.forms import Form
from transcf.retrieval.scorer import Scores
from transcf.threads import one_blas_thread, share

#: Numbers that are worked on at once, for one person; part of what is computed.
_NUMBERS_AT_ONCE = 2**20


@dataclass(frozen=True)
class LearnedMap:
    """r = f(q, n), and how sharply neighbours are told apart.

    Attributes:
        weights: By name, see `PartSettings.weight_shapes`.
    """

    weights: Arrays

    @property
    def attends(self) -> bool:
        """Whether neighbours weigh differently."""
        return "temperatures" in self.weights

    @property
    def item_scale(self) -> Array:
        """What products of items are multiplied with, (dim,), to weigh those of a user."""
        return self._scale("item_attention", 0)

    @property
    def user_scale(self) -> Array:
        """The same for the users of an item."""
        return self._scale("user_attention", 1)

    def _scale(self, name: str, side: int) -> Array:
        scale: Array = self.weights[name] * np.exp(self.weights["temperatures"][side])
        return scale

    def translations(self, q: Array, n: Array) -> Array:
        """Return r of q and n, (..., dim) each: their product and what the map adds."""
        product: Array = q * n
        if "map_out" not in self.weights:
            return product
        sums = q @ self.weights["map_q"] + n @ self.weights["map_n"] + self.weights["map_bias"]
        product += np.tanh(sums) @ self.weights["map_out"]
        return product


@dataclass(frozen=True)
class World:
    """All that the scores of somebody depend on, beside themselves.

    Attributes:
        form: The form of the score.
        parts: What is learned about q, n and r.
        users: a, (n_users, dim) float32.
        items: b, (n_items, dim) float32.
        bias: c, (n_items,) float32.
        n: The mean user of every item, (n_items, dim) float32; of an item that nobody has, what it
            was placed with.
        by_item: Users of each item.
    """

    form: Form
    parts: LearnedMap
    users: Array
    items: Array
    bias: Array
    n: Array
    by_item: Csr

    @cached_property
    def _keys(self) -> Array:
        """What the items of a history are compared with, (n_items, dim)."""
        return self.items * self.parts.item_scale

    def score_people(self, a: Array, q: Array, histories: Histories) -> Scores:
        """Score all items for people, each by themselves: (n, n_items) float32.

        Args:
            a: Where they are, (n, dim) float32.
            q: The means of their items, (n, dim) float32.
            histories: Their items.
        """
        scores = np.empty((len(a), len(self.items)), np.float32)
        if self.parts.attends:
            self._keys  # noqa: B018 - made before threads ask for it

        def score(first: int, end: int) -> None:
            for person in range(first, end):
                self._score_one(a[person], q[person], histories[person], scores[person])

        with one_blas_thread():
            share(len(a), score)
        return scores

    def _score_one(self, a: Array, q: Array, history: Array, scores: Scores) -> None:
        """Score all items for somebody, as many at once as memory allows."""
        logits = self.users @ (a * self.parts.user_scale) if self.parts.attends else None
        wide = len(history) + 4 * len(a)
        step = max(1, _NUMBERS_AT_ONCE // wide)
        past = self.items[history]
        for start in range(0, len(scores), step):
            some = slice(start, start + step)
            items, own = self.items[some], q
            n = self.n[some]
            if logits is not None:
                own = _softmax(self._keys[some] @ past.T) @ past if len(past) else q
                indptr = self.by_item.indptr[start : start + len(items) + 1]
                kept = np.where(np.diff(indptr)[:, None] > 0, np.float32(0), n)  # nobody has it
                n = kept + softmax_means(indptr, self.by_item.indices, logits, self.users)
            r = self.parts.translations(own, n)
            scores[some] = self.bias[some] - self.form.moved_cost(a, r, items)


def _softmax(logits: Array) -> Array:
    """Softmax over the last axis, in place."""
    logits -= logits.max(axis=-1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=-1, keepdims=True)
    return logits


def attended(neighbors: Csr, vectors: Array, queries: Array) -> Array:
    """Return means of neighbours by a softmax over each row, by the direct formula.

    Args:
        neighbors: Of n rows, as rows of `vectors`.
        vectors: (n_columns, dim).
        queries: What they are multiplied with, (n, dim) float64.

    Returns:
        (n, dim) float64, zeros where there are no neighbours.
    """
    counts, starts = neighbors.counts, neighbors.indptr[:-1][neighbors.counts > 0]
    near = vectors[neighbors.indices].astype(np.float64)
    logits = (near * np.repeat(queries, counts, axis=0)).sum(axis=1)
    found = np.zeros(queries.shape)
    if not len(starts):
        return found
    some = counts[counts > 0]
    weights = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts), some))
    sums = np.add.reduceat(weights[:, None] * near, starts, axis=0)
    found[counts > 0] = sums / np.add.reduceat(weights, starts)[:, None]
    return found
