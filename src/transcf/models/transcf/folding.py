"""Users and items that were not trained, placed by their neighbours' vectors.

The closed forms minimise the squared error |a + q * n - b|^2 of the known pairs (for "alt" that of
its own error): with r for the translation, a user stands at the mean of b_i - r_ui over their
items, later ones weighing more, and an item at the mean of a_u + r_ui over its users.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from transcf.kernels import Array
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS, TINY, ScoreFunction
from transcf.models.transcf.settings import TransCFSettings


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
        """The matrix that averages all neighbours alike."""
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
    """Place users by their items.

    Args:
        form: which score.
        neighbors: items of each user.
        items: their vectors.
        length: how long a trained a_u is against its q_u; inner products need it, because their
            error has no minimum.

    Returns:
        a and q, (n, dim) float64 each.
    """
    even, b, n = neighbors.even, items.b.astype(np.float64), items.n.astype(np.float64)
    a = form.place_users(even, neighbors.weighted, b, n)
    return (a if form.is_distance else length * a), even @ b


def fold_items(
    form: ScoreFunction, neighbors: Neighbors, a: Array, q: Array
) -> tuple[Array, Array]:
    """Place items by their users: b and n, (n, dim) float64 each; see `fold_users`.

    Means are shorter than trained vectors, which have been pushed away from users without the
    item; `by_count` tells how long those are.
    """
    even, a = neighbors.even, a.astype(np.float64)
    return form.place_items(even, a, q.astype(np.float64)), even @ a


def relative_length(vectors: Array, neighborhoods: Array) -> float:
    """Mean length of trained vectors, against that of their neighbourhoods."""
    lengths = [np.linalg.norm(rows, axis=1).mean() for rows in (vectors, neighborhoods)]
    return float(lengths[0] / max(lengths[1], TINY))


def by_count(values: Array, counts: Array, new_counts: Array) -> Array:
    """What trained items of some popularity have: the line through log count and value.

    Args:
        values: of the trained items, (n,).
        counts: their interactions, (n,).
        new_counts: interactions of the items to predict for, (m,).

    Returns:
        (m,), never beyond the extremes of the trained ones.
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
    """Descend the training loss of one user, the items fixed.

    Args:
        settings: those of the training.
        a: where to start, (dim,).
        q: mean of the user's items, (dim,).
        history: item rows of the user.
        weights: how much each of them counts.
        items: their vectors, and those of all others.
        pool: item rows to draw negatives from, none of the user's own.
        steps: how many; each draws new negatives for every item of the history.

    Returns:
        a, (dim,).
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
