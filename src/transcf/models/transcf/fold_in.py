"""Vectors of users and items that were not trained, from the vectors of their neighbours.

The closed forms minimise the squared error |a + q * n - b|^2 of the known pairs (for "alt" that of
its own error). With the translation r, a user is placed at the mean of b_i - r_ui over the user's
items, later ones weighing more, and an item at the mean of a_u + r_ui over its users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from transcf.data.interactions import Interactions
from transcf.data.report import counted
from transcf.errors import DataError
from transcf.kernels import Array
from transcf.models.fitted import Growth
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS, TINY, ScoreFunction
from transcf.models.transcf.solver_fast import Parameters, TransCFSettings

if TYPE_CHECKING:
    from transcf.models.transcf.fitted import Translated


@dataclass(frozen=True)
class Neighbors:
    """The trained neighbours of rows to be placed, compressed by row; no row is empty.

    `indptr` (n + 1,), `indices` (nnz,) rows of `n_columns` trained vectors, `weights` (nnz,).
    """

    indptr: Array
    indices: Array
    weights: Array
    n_columns: int

    @property
    def even(self) -> sp.csr_array:
        """The matrix that averages the neighbours with equal weights."""
        return self._averaging(np.ones(len(self.indices)))

    @property
    def weighted(self) -> sp.csr_array:
        """The matrix that averages by weight."""
        return self._averaging(self.weights.astype(np.float64))

    def _averaging(self, weights: Array) -> sp.csr_array:
        counts = np.diff(self.indptr)
        shares = weights / np.repeat(np.add.reduceat(weights, self.indptr[:-1]), counts)
        shape = (len(counts), self.n_columns)
        return sp.csr_array((shares, self.indices, self.indptr), shape=shape)


@dataclass(frozen=True)
class ItemSide:
    """Trained items: b (n_items, dim), n (n_items, dim), bias (n_items,)."""

    b: Array
    n: Array
    bias: Array


def fold_users(
    form: ScoreFunction, neighbors: Neighbors, items: ItemSide, length: float
) -> tuple[Array, Array]:
    """Return a and q of new users, (n, dim) float64 each.

    `length` is that of trained a_u relative to q_u; inner products need it, whose error has no
    minimum.
    """
    even, b, n = neighbors.even, items.b.astype(np.float64), items.n.astype(np.float64)
    a = form.place_users(even, neighbors.weighted, b, n)
    return (a if form.is_distance else length * a), even @ b


def fold_items(
    form: ScoreFunction, neighbors: Neighbors, a: Array, q: Array
) -> tuple[Array, Array]:
    """Return b and n of new items, (n, dim) float64 each.

    Means are shorter than trained vectors, which training pushes away from users without the item.
    """
    even, a = neighbors.even, a.astype(np.float64)
    return form.place_items(even, a, q.astype(np.float64)), even @ a


def by_count(values: Array, counts: Array, new_counts: Array) -> Array:
    """Predict a value of new items (m,) from their popularity, within the range of the values.

    By linear regression of the values of trained items (n,) on the logarithm of their counts (n,).
    """
    centered = np.log(counts) - np.log(counts).mean()
    slope = (centered @ values) / max(centered @ centered, TINY)
    predicted = values.mean() + slope * (np.log(new_counts) - np.log(counts).mean())
    bounded: Array = np.clip(predicted, values.min(), values.max())
    return bounded


def refine_user(
    settings: TransCFSettings, a: Array, q: Array, history: Array, weights: Array, items: ItemSide,
    pool: Array, steps: int,
) -> Array:  # fmt: skip
    """Return a of a user (dim,) after gradient steps on the training loss with fixed items.

    Each step draws negatives from `pool` for every item of the history, (n,) rows with weights.
    """
    generator = np.random.default_rng([settings.random_state, len(history)])
    form, share = SCORE_FUNCTIONS[settings.variant], weights / weights.sum()
    rank_weights = settings.rank_weights(len(pool) + len(history))
    b_i, n_i, bias_i = items.b[history], items.n[history], items.bias[history]
    for _ in range(steps if len(pool) else 0):
        drawn = generator.choice(pool, (len(history), settings.negatives))
        near = form.pair_cost(a, q, b_i, n_i) - bias_i
        far = form.pair_cost(a, q, items.b[drawn], items.n[drawn]) - items.bias[drawn]
        gaps = settings.margin + near[:, None] - far
        hardest = drawn[np.arange(len(drawn)), gaps.argmax(axis=1)]
        weight = rank_weights[(gaps > 0).sum(axis=1)]
        pull = form.pair_slope(weight + settings.reg_distance, a, q, b_i, n_i)[0]
        push = form.pair_slope(-weight, a, q, items.b[hardest], items.n[hardest])[0]
        slope = share @ (pull + push) + 2 * settings.reg_neighborhood * (a - q)
        a = a - settings.learning_rate * slope
    return a


def grow(learned: Translated, log: Interactions, weights: Array) -> Translated:
    """Return a fitted model with additional interactions.

    Trained vectors do not change. New users and items are placed by their neighbours, and all
    neighbourhood means are updated.

    Args:
        learned: The fitted model.
        log: Additional interactions; known ones have no effect.
        weights: Weight of each among those of its user, (n_events,).

    Raises:
        DataError: A user shares no item with the known users, not even through others.
    """
    growth, form = Growth.of(learned.known, log), learned.form
    trained, rankable = learned.parameters, learned.known.item_counts > 0
    a, q = (growth.of_users(matrix) for matrix in (trained.users, learned.q))
    b, n = (growth.of_items(matrix) for matrix in (trained.items, learned.n))
    bias = growth.of_items(trained.item_bias)
    has_user, has_item = growth.of_users(learned.known.active), growth.of_items(rankable)
    counts = learned.known.item_counts[rankable]
    lengths = np.linalg.norm(trained.items[rankable].astype(float), axis=1)
    users, items = growth.event_users, growth.event_items

    def place_users() -> bool:
        """Place users who have an item with a vector; return whether there were any."""
        usable = ~has_user[users] & has_item[items]
        rows, near = _neighbors(usable, users, items, weights, len(b))
        if len(rows):
            a[rows], q[rows] = fold_users(form, near, ItemSide(b, n, bias), learned.user_length)
            has_user[rows] = True
        return len(rows) > 0

    def place_items() -> bool:
        """Place items that have a user with a vector; return whether there were any."""
        usable = ~has_item[items] & has_user[users]
        rows, near = _neighbors(usable, items, users, weights, len(a))
        if len(rows):
            placed, n[rows] = fold_items(form, near, a, q)
            new_counts = growth.known.item_counts[rows]
            present = np.maximum(np.linalg.norm(placed, axis=1), np.finfo(np.float32).tiny)
            b[rows] = placed * (by_count(lengths, counts, new_counts) / present)[:, None]
            if learned.settings.item_bias:
                values = trained.item_bias[rankable].astype(np.float64)
                bias[rows] = by_count(values, counts, new_counts)
            has_item[rows] = True
        return len(rows) > 0

    while place_users() or place_items():
        pass
    lost = np.unique(users[~has_user[users]])
    if len(lost):
        raise DataError(
            f"user {growth.known.users.ids(lost[:1]).item()!r} ({counted(len(lost), 'user')} in "
            "all) shares no item with a user of the model, not even through others: leave "
            "them out, or fit again with all interactions."
        )
    return type(learned)(growth.known, learned.settings, Parameters(a, b, bias))


def _neighbors(
    usable: Array, owners: Array, others: Array, weights: Array, n_columns: int
) -> tuple[Array, Neighbors]:
    """Return the owners of usable events, and these events of each."""
    order = np.flatnonzero(usable)
    order = order[np.argsort(owners[order], kind="stable")]
    rows, counts = np.unique(owners[order], return_counts=True)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return rows, Neighbors(indptr, others[order], weights[order], n_columns)
