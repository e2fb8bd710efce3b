"""Alternating least squares over all pairs of users and items, with any row solver.

A row needs the vectors of the other side and their Gram matrix, and no other row of its own side.
So each of several processes can have some of the users and update some of the items: before items
are updated, processes exchange their users' vectors and parts of the Gram matrix, afterwards the
items. Parts are the same in any process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr, Histories
from transcf.data.ids import Rows
from transcf.errors import DivergenceError
from transcf.io.tensors import Arrays
from transcf.kernels import Array, aligned_zeros
from transcf.kernels.als import Side, add_grams, solve_rows
from transcf.kernels.rows import padded, padded_width, unpadded
from transcf.models.communicator import Communicator
from transcf.models.event_weights import EVEN, weights_in_order
from transcf.models.training import EpochStats

#: Improves the rows of one side in place, given side, others, width, gram, vectors and losses:
#: `solve_rows`, or `conjugate_gradient` or `descend_rows` with their parameters.
RowSolver: TypeAlias = Callable[..., None]

#: Blocks of rows that threads share; each has about the same work.
_BLOCKS = 64


@dataclass(frozen=True)
class ALSObjective:
    """The objective, minimised over user vectors x and item vectors y, with s_ui = x_u . y_i.

    `sum over observed (u, i) of w_ui (1 - s_ui)^2 - spared_i s_ui^2
    + sum over all (u, i) of missing_i s_ui^2
    + sum over u of user_ridges_u |x_u|^2 + sum over i of item_ridges_i |y_i|^2`

    where the weights w_ui are given with the interactions.
    """

    missing: Array  # (n_items,) weight among all pairs; 0 for items without interactions
    spared: Array  # (n_items,) the part of that weight that observed pairs do not have
    user_ridges: Array  # (n_users,)
    item_ridges: Array  # (n_items,)

    def user_side(
        self, by_user: Csr, width: int, dtype: npt.DTypeLike, weights: Array = EVEN
    ) -> Side:
        """Return the quadratics of users; the Gram matrix weights items by `missing`."""
        ones = np.ones(by_user.n_rows)
        constants = ones, ones, 1 - self.spared, self.user_ridges, weights
        return _side(by_user, width, dtype, *constants)

    def item_side(
        self, by_item: Csr, width: int, dtype: npt.DTypeLike, weights: Array, items: slice
    ) -> Side:
        """Return the quadratics of some items; in the Gram matrix all users have weight 1."""
        ones = np.ones(by_item.n_columns)
        own = self.missing, 1 - self.spared, self.item_ridges
        shares, factors, ridges = (values[items] for values in own)
        return _side(by_item, width, dtype, shares, factors, ones, ridges, weights)


def _side(rows: Csr, width: int, dtype: npt.DTypeLike, *constants: Array) -> Side:
    active = np.flatnonzero(rows.counts).astype(np.int32)
    work = np.concatenate([[0], np.cumsum(rows.counts[active] + width)])
    cuts = np.searchsorted(work, np.linspace(0, work[-1], _BLOCKS + 1))
    return Side(
        cuts, active, rows.indptr, rows.indices, *(values.astype(dtype) for values in constants)
    )


@dataclass(frozen=True)
class ALSProblem:
    """The interactions of all users and items, or of a shard of them.

    Weights of interactions are in the order of `by_user` and in that of `by_item`, (nnz,) each;
    empty if all are 1.
    """

    by_user: Csr  # items of each user of the shard
    by_item: Csr  # users of each item of the shard, including users of other shards
    objective: ALSObjective  # of these users and all items
    weights: tuple[Array, Array] = (EVEN, EVEN)
    first_item: int = 0  # number of items before those of the shard

    @property
    def user_indptr(self) -> Array:
        """Offsets of the interactions of users, (n_users + 1,) int64."""
        return self.by_user.indptr

    @property
    def items(self) -> slice:
        """Rows of the items of the shard."""
        return slice(self.first_item, self.first_item + self.by_item.n_rows)

    def part(self, first: int, end: int) -> Self:
        """Return the users first..end-1, and about as large a share of the items."""
        users, items = slice(first, end), slice(self._items_before(first), self._items_before(end))
        by_user, user_weights = _rows(self.by_user, self.weights[0], users)
        by_item, item_weights = _rows(self.by_item, self.weights[1], items)
        goal = replace(self.objective, user_ridges=self.objective.user_ridges[users])
        return type(self)(by_user, by_item, goal, (user_weights, item_weights), items.start)

    def _items_before(self, user: int) -> int:
        """Return the number of items with as many interactions as the users before one."""
        if user == self.by_user.n_rows:
            return self.by_item.n_rows
        return int(np.searchsorted(self.by_item.indptr, self.by_user.indptr[user]))


def _rows(matrix: Csr, weights: Array, rows: slice) -> tuple[Csr, Array]:
    """Return some rows of a matrix, and the weights of their entries."""
    entries = slice(*matrix.indptr[[rows.start, rows.stop]])
    own = weights[entries] if len(weights) else weights
    return matrix.between(rows.start, rows.stop), own


@dataclass(frozen=True)
class UserParts:
    """Parts of the users whose outer products are summed together, in whichever process."""

    groups: Array  # boundaries of the parts, (n_parts + 1,)
    interactions: int  # including those of other processes

    @property
    def n_groups(self) -> int:
        """Parts of this process."""
        return len(self.groups) - 1

    def part(self, first: int, end: int) -> Self:
        """Return the parts first..end-1, with users renumbered from 0."""
        return replace(self, groups=self.groups[first : end + 1] - self.groups[first])


class Alternation:
    """Solves users and items in turn; a `Trainable`.

    It starts from `users`, (n_users, dim), and `items`, (n_items, dim), all of them float32 or
    float64; rows without interactions become zero. `layout` are the parts of the users of a shard.
    """

    def __init__(
        self, pairs: ALSProblem, solver: RowSolver, users: Array, items: Array, *,
        layout: UserParts | None = None, comm: Communicator | None = None,
    ) -> None:  # fmt: skip
        self._dim, dtype = users.shape[1], users.dtype
        self._width = padded_width(self._dim)
        self._solver, self._pairs, goal = solver, pairs, pairs.objective
        self._parts, self._comm = layout or self.layout(pairs, None), comm or Communicator()
        self._user_side = goal.user_side(pairs.by_user, self._width, dtype, pairs.weights[0])
        self._item_side = goal.item_side(
            pairs.by_item, self._width, dtype, pairs.weights[1], pairs.items
        )
        self._missing, self._ones = goal.missing.astype(dtype), np.ones(len(users), dtype)
        self._users = padded(users * (pairs.by_user.counts > 0)[:, None])
        self._items = padded(items * (goal.missing > 0)[:, None])

    @classmethod
    def layout(cls, pairs: ALSProblem, settings: Any) -> UserParts:
        """Divide all users into parts."""
        return UserParts(gram_cuts(pairs.by_user.n_rows), len(pairs.by_user.indices))

    def solve_users(self) -> float:
        """Update all users; returns the loss."""
        gram = weighted_gram(self._items, self._width, self._missing)
        losses = self._solve(self._user_side, self._items, gram, self._users)
        penalties = self._penalties(self._items, self._pairs.objective.item_ridges)
        return self._sum_of_users(losses) + float(penalties.sum())

    def solve_items(self) -> float:
        """Update all items; returns the loss."""
        comm, width, own = self._comm, self._width, self._pairs.items
        cuts = self._parts.groups
        gram = sum_grams(comm.all_of(grams_of(self._users, width, self._ones, cuts))[0])
        users, _ = comm.all_of(self._users)
        items = self._items[own.start * width : own.stop * width]
        losses, _ = comm.all_of(self._solve(self._item_side, users, gram, items))
        self._items[:], _ = comm.all_of(items)
        penalties = self._penalties(self._users, self._pairs.objective.user_ridges)
        return float(losses.sum()) + self._sum_of_users(penalties)

    def _solve(self, side: Side, others: Array, gram: Array, vectors: Array) -> Array:
        losses = np.zeros(len(side.ridges))
        self._solver(
            side=side, others=others, width=self._width, gram=gram, vectors=vectors, losses=losses
        )
        return losses

    def _penalties(self, flat: Array, ridges: Array) -> Array:
        """Return ridge * |row|^2 of each row."""
        rows = flat.reshape(-1, self._width)
        return ridges * np.einsum("nk,nk->n", rows, rows, dtype=np.float64)

    def _sum_of_users(self, values: Array) -> float:
        """Sum a number of every user over all processes, part by part."""
        sums = [values[first:end].sum() for first, end in pairwise(self._parts.groups.tolist())]
        return float(self._comm.all_of(np.array(sums))[0].sum())

    def run_epoch(self, number: int) -> EpochStats:
        """Update all users and all items once."""
        self.solve_users()
        loss = self.solve_items()
        samples = self._parts.interactions
        return EpochStats(loss / samples, samples)

    def tensors(self) -> Arrays:
        """Return the vectors without padding."""
        return {
            "user_vectors": unpadded(self._users, self._width, self._dim),
            "item_vectors": unpadded(self._items, self._width, self._dim),
        }

    def load_tensors(self, tensors: Arrays) -> None:
        """Restore what `tensors` returned."""
        self._users = padded(tensors["user_vectors"])
        self._items = padded(tensors["item_vectors"])


class LeastSquaresFoldIn:
    """Folds in new users with the exact minimum of the objective; item vectors are fixed.

    Ages and ratings of their events are not known: only positions in a history give weights, which
    are 1 on average over it. `objective` returns the objective for lengths of histories, (n,).
    """

    def __init__(
        self, items: Array, objective: Callable[[Array], ALSObjective], recency: float = 0.0
    ) -> None:
        self._items, self._objective, self._recency = items, objective, recency

    @cached_property
    def _fixed(self) -> tuple[Array, Array]:
        """Padded items, and their weighted Gram matrix."""
        rows, dtype = padded(self._items), self._items.dtype
        missing = self._objective(np.zeros(0, np.int64)).missing
        return rows, weighted_gram(rows, padded_width(self._items.shape[1]), missing.astype(dtype))

    def __call__(self, histories: Histories) -> Array:
        """Return the vectors of new users, (n, dim)."""
        (items, gram), dtype = self._fixed, self._items.dtype
        dim, width = self._items.shape[1], padded_width(self._items.shape[1])
        weights = self._weights(histories)[histories.by_item] if self._recency else EVEN
        goal = self._objective(histories.counts)
        side = goal.user_side(histories.matrix, width, dtype, weights)
        vectors = aligned_zeros((len(histories) * width,), dtype)
        solve_rows(side, items, width, gram, vectors, np.zeros(len(histories)))
        if not np.isfinite(vectors).all():
            raise DivergenceError(
                "The vector of a history is not finite: regularization is too small for least "
                f"squares in {dtype}; fit with a larger one."
            )
        return unpadded(vectors, width, dim)

    def _weights(self, histories: Histories) -> Array:
        """Return the weights of events of histories, in their order, (n_events,)."""
        weights = weights_in_order(histories, self._recency)
        owners = np.repeat(np.arange(len(histories)), histories.counts)
        sums = np.bincount(owners, weights, len(histories))
        return weights * (histories.counts / np.maximum(1, sums))[owners]

    def terms(self, history: Rows, vector: Array) -> npt.NDArray[np.float64]:
        """Return the term of each item in the product of a user's vector with another: (n,).

        The vector is `A^-1 (sum of w_j y_j over the history)`, so the item j adds
        `w_j y_j . A^-1 vector`.
        """
        (_, gram), (_, dim) = self._fixed, self._items.shape
        width = padded_width(dim)
        goal = self._objective(np.array([len(history)]))
        owned = self._items[history].astype(np.float64)
        matrix = gram.reshape(width, width)[:dim, :dim].astype(np.float64)
        weights = self._weights(Histories.of([history], len(self._items)))
        matrix += (owned.T * (weights - goal.spared[history])) @ owned
        matrix.flat[:: dim + 1] += goal.user_ridges[0]
        try:
            return weights * (owned @ np.linalg.solve(matrix, vector))
        except np.linalg.LinAlgError as error:
            raise DivergenceError(
                "The history has no single best vector: regularization is too small for least "
                "squares; fit with a larger one."
            ) from error


#: Parts of a Gram matrix, summed in order: the result does not depend on threads.
GRAM_PARTS = 16


def gram_cuts(n_rows: int) -> Array:
    """Return the boundaries of the parts of so many rows, (GRAM_PARTS + 1,)."""
    return np.arange(GRAM_PARTS + 1) * n_rows // GRAM_PARTS


def weighted_gram(vectors: Array, width: int, weights: Array) -> Array:
    """Return the sum of weight * y y' over rows y, flat in and out: (width * width,)."""
    return sum_grams(grams_of(vectors, width, weights, gram_cuts(len(weights))))


def grams_of(vectors: Array, width: int, weights: Array, cuts: Array) -> Array:
    """Return the sum of each part, (n_parts, width * width); only upper triangles are valid."""
    parts = np.zeros((len(cuts) - 1, width * width), vectors.dtype)
    add_grams(vectors, width, weights, cuts, parts)
    return parts


def sum_grams(parts: Array) -> Array:
    """Add up the parts that `grams_of` returns."""
    width = math.isqrt(parts.shape[1])
    upper = np.triu(parts.sum(axis=0, dtype=np.float64).reshape(width, width))
    return (upper + np.triu(upper, 1).T).astype(parts.dtype).ravel()
