"""Friends and mates in the packed rows of the fast solver, and the way back to them.

As with the usual means: neighbourhoods are renewed a few times per epoch, and the steps that they
ask for are collected in between and then shared out. What is collected for friends is all of a
user's steps; only those of the user's items are left to chance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from transcf.kernels import Array, aligned_zeros
from transcf.kernels.neighborhood import Part, add_means
from transcf.kernels.rounds import PackedRows
from transcf.kernels.translation import TranslationExtra
from transcf.models.transcf.mixing import Mates, Mixing


class Sums(NamedTuple):
    """Which rows are summed up with which weights, as kernels want it."""

    indptr: Array
    indices: Array
    weights: Array

    @classmethod
    def of(cls, matrix: sp.csr_array, dtype: np.dtype[np.floating]) -> Sums:
        """Take a sparse matrix apart."""
        indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
        return cls(indptr, indices, matrix.data.astype(dtype))


class MixedRows:
    """Mixes neighbourhoods in packed rows, for one epoch.

    Args:
        mixing: What is mixed in.
        dim: Length of one vector in a row.
        order: Item rows in dealt order, (n_active,).
        places: The place of each item in it, (n_items,).
        dtype: Of the rows.
    """

    def __init__(
        self, mixing: Mixing, dim: int, order: Array, places: Array, dtype: np.dtype[np.floating]
    ) -> None:
        """Deal the weights as the items were."""
        self._dim, self._friends, self._shelves = dim, None, None
        if mixing.friends is not None:
            back = sp.csr_array(-mixing.friends.T)
            self._friends = Sums.of(mixing.friends, dtype), Sums.of(back, dtype)
        if mixing.mates is not None:
            self._shelves = _Shelves(mixing.mates, dim, order, places, dtype)

    def renew(self, rows: PackedRows[TranslationExtra]) -> None:
        """Add friends to q, and mates to n."""
        dim = self._dim
        if self._friends is not None:
            a, q = Part(rows.users, 2 * dim, 0), Part(rows.users, 2 * dim, dim)
            add_means(q, a, dim, *self._friends[0])
        if self._shelves is not None:
            self._shelves.renew(rows.items)

    def push(self, rows: PackedRows[TranslationExtra]) -> None:
        """Let friends and mates take the steps that were collected for them."""
        dim = self._dim
        if self._friends is not None:
            steps = Part(rows.extra.steps, dim, 0)
            add_means(Part(rows.users, 2 * dim, 0), steps, dim, *self._friends[1])
            rows.extra.steps[:] = 0
        if self._shelves is not None:
            self._shelves.push(rows.items)


class _Shelves:
    """Sums over categories, items in dealt order."""

    def __init__(
        self, mates: Mates, dim: int, order: Array, places: Array, dtype: np.dtype[np.floating]
    ) -> None:
        shelves, members = mates.shelves[order], mates.members
        shape = (members.shape[0], len(order))
        dealt = sp.csr_array((members.data, places[members.indices], members.indptr), shape=shape)
        self._shelves, self._members = Sums.of(shelves, dtype), Sums.of(dealt, dtype)
        self._to_shelves = Sums.of(sp.csr_array(-shelves.T), dtype)
        self._to_members = Sums.of(sp.csr_array(dealt.T), dtype)
        self._own = mates.own[order, None].astype(dtype)
        self._dim, self._sums = dim, aligned_zeros((shape[0] * dim,), dtype)

    def renew(self, items: Array) -> None:
        """N += the weighted mean of b over the mates."""
        dim, sums = self._dim, self._emptied()
        add_means(sums, Part(items, 3 * dim, 0), dim, *self._members)
        add_means(Part(items, 3 * dim, dim), sums, dim, *self._shelves)
        rows = items.reshape(-1, 3, dim)
        rows[:, 1] -= self._own * rows[:, 0]

    def push(self, items: Array) -> None:
        """B -= what n of the mates asks for."""
        dim, sums = self._dim, self._emptied()
        add_means(sums, Part(items, 3 * dim, 2 * dim), dim, *self._to_shelves)
        add_means(Part(items, 3 * dim, 0), sums, dim, *self._to_members)
        rows = items.reshape(-1, 3, dim)
        rows[:, 0] += self._own * rows[:, 2]

    def _emptied(self) -> Part:
        self._sums[:] = 0
        return Part(self._sums, self._dim, 0)
