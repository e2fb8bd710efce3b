"""Neighbourhoods that are mixed: of a user's items and friends, of an item's users and mates.

    q_u = (1 - friends) mean of b over the user's items + friends mean of a over the user's friends
    n_i = (1 - category) mean of a over the item's users + category mean of b over its mates

The mean over an item's mates is the mean over its categories of the mean of b over the *other*
items of the category: each category counts the same, whatever its size. Only users and items with
interactions count. Those without friends, or without others in their categories, keep the usual
mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Csr
from transcf.kernels import Array
from transcf.models.transcf.settings import TransCFSettings
from transcf.models.transcf.side import Side


@dataclass(frozen=True)
class Mates:
    """Weighted means over the mates of items: shelves @ (members @ b) - own * b.

    Attributes:
        shelves: (n_items, n_categories).
        members: Ones, (n_categories, n_items).
        own: What an item's own vector has in `shelves @ members`, (n_items,).
    """

    shelves: sp.csr_array
    members: sp.csr_array
    own: Array

    @classmethod
    def of(cls, categories: Csr, weight: float, active: Array) -> Mates:
        """Weigh the categories of items, (n_items, n_categories).

        Args:
            categories: Of each item.
            weight: What the weights of an item with mates add up to.
            active: Which items have interactions, (n_items,) bool.
        """
        rows, columns, n_items = categories.entry_rows, categories.indices, categories.n_rows
        shape = (categories.n_columns, n_items)
        inside = active[rows]
        ones = np.ones(np.count_nonzero(inside))
        members = sp.coo_array((ones, (columns[inside], rows[inside])), shape).tocsr()
        others = np.diff(members.indptr)[columns] - inside
        has_others = others > 0
        counts = np.bincount(rows, has_others, n_items)
        share = weight * has_others / np.maximum(1, others * counts[rows])
        shelves = sp.csr_array((share, columns, categories.indptr), shape=shape[::-1])
        return cls(shelves, members, np.bincount(rows, share * inside, n_items))

    @property
    def has_some(self) -> Array:
        """Which items have mates, (n_items,) bool."""
        return np.asarray(self.shelves.sum(axis=1)) > 0

    def means(self, items: Array) -> Array:
        """Return those of all items, (n_items, dim), from b, (n_items, dim)."""
        return np.asarray(self.shelves @ (self.members @ items) - self.own[:, None] * items)

    def means_of(self, rows: Array, items: Array) -> Array:
        """Return those of some items, (n, dim)."""
        centres = self.members @ items
        return np.asarray(self.shelves[rows] @ centres - self.own[rows, None] * items[rows])

    def add_back(self, into: Array, rows: Array, slopes: Array) -> None:
        """Add the slopes by some means, (n, dim), to those by b, (n_items, dim)."""
        into += self.members.T @ (self.shelves[rows].T @ slopes)
        np.subtract.at(into, rows, self.own[rows, None] * slopes)


@dataclass(frozen=True)
class Mixing:
    """How much of a neighbourhood is the usual mean, and what the rest of it is.

    Attributes:
        kept_users: Weight of the usual mean of each user, (n_users,) float64.
        kept_items: The same of items, (n_items,) float64.
        friends: Weighted means over friends, (n_users, n_users), or None.
        mates: Weighted means over mates, or None.
    """

    kept_users: Array
    kept_items: Array
    friends: sp.csr_array | None = None
    mates: Mates | None = None

    @classmethod
    def of(cls, side: Side, settings: TransCFSettings, users: Array, items: Array) -> Mixing:
        """Weigh links and categories.

        Args:
            side: Links and categories.
            settings: How much they count.
            users: Which users have interactions, (n_users,) bool.
            items: Which items have some, (n_items,) bool.
        """
        kept_users, kept_items = np.ones(len(users)), np.ones(len(items))
        friends = mates = None
        if side.friends is not None:
            friends = _averaging(side.friends, settings.friends, users)
            kept_users[np.diff(friends.indptr) > 0] = 1 - settings.friends
        if side.categories is not None:
            mates = Mates.of(side.categories, settings.category, items)
            kept_items[mates.has_some] = 1 - settings.category
        return cls(kept_users, kept_items, friends, mates)

    def mixed(self, q: Array, n: Array, users: Array, items: Array) -> tuple[Array, Array]:
        """Return the neighbourhoods of all users and items.

        Args:
            q: Mean items of users, (n_users, dim).
            n: Mean users of items, (n_items, dim).
            users: a, (n_users, dim).
            items: b, (n_items, dim).
        """
        if self.friends is not None:
            q = (self.kept_users[:, None] * q + self.friends @ users).astype(q.dtype)
        if self.mates is not None:
            n = (self.kept_items[:, None] * n + self.mates.means(items)).astype(n.dtype)
        return q, n


def _averaging(friends: Csr, weight: float, active: Array) -> sp.csr_array:
    """Return the matrix that averages friends with interactions, times a weight."""
    inside = active[friends.indices]
    counts = np.bincount(friends.entry_rows[inside], minlength=friends.n_rows)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    shares = np.repeat(weight / np.maximum(1, counts), counts)
    shape = (friends.n_rows, friends.n_columns)
    return sp.csr_array((shares, friends.indices[inside], indptr), shape=shape)
