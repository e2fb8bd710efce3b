"""New users, new items and new interactions, added to a trained model."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from transcf.data.csr import Csr
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.errors import DataError
from transcf.kernels import Array

from .folding import ItemSide, Neighbors, by_count, fold_items, fold_users, relative_length
from .parameters import Form, Parameters, Problem, neighborhoods


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
        self.users = _merged(model.users, log.users, "user")
        self.items = _merged(model.items, log.items, "item")
        old_users = self.users.rows(model.users.series)
        old_items = self.items.rows(model.items.series)
        self._event_users = self.users.rows(log.users.series)[log.user_rows]
        self._event_items = self.items.rows(log.items.series)[log.item_rows]
        self.seen = self._join(old_users[model.seen.entry_rows], old_items[model.seen.indices])
        trained = model.parameters
        self.a, self._q = (_spread(m, old_users, self.users) for m in (trained.users, model.q))
        self.b, self._n = (_spread(m, old_items, self.items) for m in (trained.items, model.n))
        self.bias = _spread(trained.item_bias, old_items, self.items)
        self._has_user = np.zeros(len(self.users), bool)
        self._has_user[old_users] = model.seen.counts > 0
        self._has_item = np.zeros(len(self.items), bool)
        counts = np.bincount(model.seen.indices, minlength=len(model.items))
        self._has_item[old_items] = counts > 0
        self._trained_counts = counts[counts > 0]
        self._trained_bias = trained.item_bias[counts > 0].astype(np.float64)
        self._trained_lengths = np.linalg.norm(trained.items[counts > 0].astype(float), axis=1)
        active = model.seen.counts > 0
        self._user_length = relative_length(trained.users[active], model.q[active])

    def _join(self, users: Array, items: Array) -> Csr:
        """Old and new interactions, each pair once."""
        n_users, n_items = len(self.users), len(self.items)
        every_user = np.concatenate([users, self._event_users]).astype(np.int64)
        keys = np.unique(every_user * n_items + np.concatenate([items, self._event_items]))
        indptr = np.zeros(n_users + 1, np.int64)
        np.cumsum(np.bincount(keys // n_items, minlength=n_users), out=indptr[1:])
        return Csr(indptr, (keys % n_items).astype(np.int32), n_items)

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


def _merged(known: IdMap, new: IdMap, what: str) -> IdMap:
    if len(new) and known.is_text != new.is_text:
        kinds = ["text" if ids.is_text else "integers" for ids in (known, new)]
        raise DataError(
            f"{what} ids of the model are {kinds[0]} and the new ones {kinds[1]}: convert them."
        )
    return IdMap(pl.concat([known.series, new.series]).unique().sort())


def _spread(vectors: Array, rows: Array, ids: IdMap) -> Array:
    """The vectors in their new rows, zeros elsewhere."""
    spread = np.zeros((len(ids), *vectors.shape[1:]), vectors.dtype)
    spread[rows] = vectors
    return spread
