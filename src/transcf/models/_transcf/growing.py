"""New users, new items and new interactions, added to a trained model."""

from dataclasses import dataclass

import numpy as np

from transcf.data.csr import Csr
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.errors import DataError
from transcf.kernels import Array
from transcf.models._growing import Growth
from transcf.models._triples import Problem

from .folding import ItemSide, Neighbors, by_count, fold_items, fold_users, relative_length
from .parameters import Form, Parameters, neighborhoods


@dataclass(frozen=True)
class Model:
    """What is grown: ids, training interactions and vectors."""

    users: IdMap
    items: IdMap
    seen: Csr
    parameters: Parameters
    q: Array
    n: Array


def grow(model: Model, log: Interactions, weights: Array, form: Form, item_bias: bool) -> Model:
    """Add a log to a model.

    Args:
        model: as trained.
        log: new interactions; those that are known already change nothing.
        weights: how much each counts among those of its user, (n_events,).
        form: which score.
        item_bias: whether items have a bias.

    Returns:
        The larger model: trained vectors as they were, in their new rows, the others placed by
        their neighbours, and all neighbourhood means renewed.
    """
    growth = _Growth(model, log, weights, form, item_bias)
    while growth.place_users() or growth.place_items():
        pass
    growth.check_all_placed()
    problem = Problem.from_csr(growth.seen.indptr, growth.seen.indices, len(growth.items))
    parameters = Parameters(growth.a, growth.b, growth.bias)
    q, n = neighborhoods(problem, parameters)
    return Model(growth.users, growth.items, growth.seen, parameters, q, n)


class _Growth:
    """The larger arrays while they fill."""

    def __init__(
        self, model: Model, log: Interactions, weights: Array, form: Form, item_bias: bool
    ) -> None:
        self._form, self._item_bias, self._weights = form, item_bias, weights
        growth = Growth.of(model.users, model.items, model.seen, log)
        self.users, self.items, self.seen = growth.users, growth.items, growth.seen
        self._event_users, self._event_items = growth.event_users, growth.event_items
        trained = model.parameters
        self.a, self._q = (growth.of_users(matrix) for matrix in (trained.users, model.q))
        self.b, self._n = (growth.of_items(matrix) for matrix in (trained.items, model.n))
        self.bias = growth.of_items(trained.item_bias)
        self._has_user = growth.of_users(model.seen.counts > 0)
        counts = np.bincount(model.seen.indices, minlength=len(model.items))
        self._has_item = growth.of_items(counts > 0)
        self._trained_counts = counts[counts > 0]
        self._trained_bias = trained.item_bias[counts > 0].astype(np.float64)
        self._trained_lengths = np.linalg.norm(trained.items[counts > 0].astype(float), axis=1)
        active = model.seen.counts > 0
        self._user_length = relative_length(trained.users[active], model.q[active])

    def place_users(self) -> bool:
        """Place users who have an item with a vector; whether there were any."""
        usable = ~self._has_user[self._event_users] & self._has_item[self._event_items]
        rows, neighbors = self._neighbors(
            usable, self._event_users, self._event_items, len(self.items)
        )
        if len(rows):
            side = ItemSide(self.b, self._n, self.bias)
            placed = fold_users(self._form, neighbors, side, self._user_length)
            self.a[rows], self._q[rows] = placed
            self._has_user[rows] = True
        return len(rows) > 0

    def place_items(self) -> bool:
        """Place items that have a user with a vector; whether there were any."""
        usable = ~self._has_item[self._event_items] & self._has_user[self._event_users]
        rows, neighbors = self._neighbors(
            usable, self._event_items, self._event_users, len(self.users)
        )
        if len(rows):
            b, self._n[rows] = fold_items(self._form, neighbors, self.a, self._q)
            counts = np.bincount(self.seen.indices, minlength=len(self.items))[rows]
            lengths = by_count(self._trained_lengths, self._trained_counts, counts)
            present = np.maximum(np.linalg.norm(b, axis=1), np.finfo(np.float32).tiny)
            self.b[rows] = b * (lengths / present)[:, None]
            if self._item_bias:
                self.bias[rows] = by_count(self._trained_bias, self._trained_counts, counts)
            self._has_item[rows] = True
        return len(rows) > 0

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
                f"user {self.users.ids(lost[:1]).item()!r} ({len(lost)} users in all) shares no "
                "item with anybody the model knows, not even through others: leave them out, or "
                "fit again with all interactions."
            )
