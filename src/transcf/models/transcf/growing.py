"""New users, new items and new interactions, added to a trained model."""

from __future__ import annotations

import numpy as np

from transcf.data.interactions import Interactions
from transcf.data.report import counted
from transcf.errors import DataError
from transcf.kernels import Array
from transcf.models.training_data import Growth
from transcf.models.transcf.folding import ItemSide, Neighbors, by_count, fold_items, fold_users
from transcf.models.transcf.learned import Translated
from transcf.models.transcf.parameters import Parameters


def grow(learned: Translated, log: Interactions, weights: Array) -> Translated:
    """Add a log to what was learned.

    Args:
        learned: As trained.
        log: New interactions; those that are known already change nothing.
        weights: How much each counts among those of its user, (n_events,).

    Returns:
        The larger one: trained vectors as they were, in their new rows, the others placed by
        their neighbours, and all neighbourhood means renewed.
    """
    growing = _Growing(learned, log, weights)
    while growing.place_users() or growing.place_items():
        pass
    growing.check_all_placed()
    return growing.grown()


class _Growing:
    """The larger arrays while they fill."""

    def __init__(self, learned: Translated, log: Interactions, weights: Array) -> None:
        self._learned, self._weights = learned, weights
        growth = Growth.of(learned.known, log)
        self.known, self._growth = growth.known, growth
        self._event_users, self._event_items = growth.event_users, growth.event_items
        trained, rankable = learned.parameters, learned.known.item_counts > 0
        self.a, self._q = (growth.of_users(matrix) for matrix in (trained.users, learned.q))
        self.b, self._n = (growth.of_items(matrix) for matrix in (trained.items, learned.n))
        self.bias = growth.of_items(trained.item_bias)
        self._has_user = growth.of_users(learned.known.active)
        self._has_item = growth.of_items(rankable)
        self._trained_counts = learned.known.item_counts[rankable]
        self._trained_bias = trained.item_bias[rankable].astype(np.float64)
        self._trained_lengths = np.linalg.norm(trained.items[rankable].astype(float), axis=1)

    def place_users(self) -> bool:
        """Place users who have an item with a vector; whether there were any."""
        usable = ~self._has_user[self._event_users] & self._has_item[self._event_items]
        rows, neighbors = self._neighbors(
            usable, self._event_users, self._event_items, len(self.known.items)
        )
        if len(rows):
            side = ItemSide(self.b, self._n, self.bias)
            placed = fold_users(self._learned.form, neighbors, side, self._learned.user_length)
            self.a[rows], self._q[rows] = placed
            self._has_user[rows] = True
        return len(rows) > 0

    def place_items(self) -> bool:
        """Place items that have a user with a vector; whether there were any."""
        usable = ~self._has_item[self._event_items] & self._has_user[self._event_users]
        rows, neighbors = self._neighbors(
            usable, self._event_items, self._event_users, len(self.known.users)
        )
        if len(rows):
            b, self._n[rows] = fold_items(self._learned.form, neighbors, self.a, self._q)
            counts = self.known.item_counts[rows]
            lengths = by_count(self._trained_lengths, self._trained_counts, counts)
            present = np.maximum(np.linalg.norm(b, axis=1), np.finfo(np.float32).tiny)
            self.b[rows] = b * (lengths / present)[:, None]
            if self._learned.settings.item_bias:
                self.bias[rows] = by_count(self._trained_bias, self._trained_counts, counts)
            self._has_item[rows] = True
        return len(rows) > 0

    def grown(self) -> Translated:
        """Return the larger model."""
        parameters = Parameters(self.a, self.b, self.bias)
        return Translated(self.known, self._learned.settings, parameters)

    def _neighbors(
        self, usable: Array, owners: Array, others: Array, n_columns: int
    ) -> tuple[Array, Neighbors]:
        """Rows to be placed, and the usable events of each."""
        order = np.flatnonzero(usable)
        order = order[np.argsort(owners[order], kind="stable")]
        rows, counts = np.unique(owners[order], return_counts=True)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return rows, Neighbors(indptr, others[order], self._weights[order], n_columns)

    def check_all_placed(self) -> None:
        """Raise a `DataError` about users and items without any path to a trained vector."""
        lost = np.unique(self._event_users[~self._has_user[self._event_users]])
        if len(lost):
            raise DataError(
                f"user {self.known.users.ids(lost[:1]).item()!r} ({counted(len(lost), 'user')} in "
                "all) shares no item with anybody the model knows, not even through others: leave "
                "them out, or fit again with all interactions."
            )
