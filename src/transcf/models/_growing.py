"""Ids and rows of a model that takes in new interactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.csr import Csr
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.errors import DataError


@dataclass(frozen=True)
class Growth:
    """A model's ids and interactions together with those of a log; rows in the order of ids.

    Attributes:
        users: All users.
        items: All items.
        seen: All interactions, each pair once.
        old_users: The new row of each user that the model had, (n_old_users,).
        old_items: The same for items, (n_old_items,).
        event_users: User row of each event of the log, (n_events,).
        event_items: Item row of each, (n_events,).
    """

    users: IdMap
    items: IdMap
    seen: Csr
    old_users: Rows
    old_items: Rows
    event_users: Rows
    event_items: Rows

    @classmethod
    def of(cls, users: IdMap, items: IdMap, seen: Csr, log: Interactions) -> Growth:
        """Add a log to the ids and interactions of a model.

        Raises:
            DataError: There is nothing to add, or ids are text here and integers there.
        """
        if not len(log):
            raise DataError("There is nothing to add: the log has no interactions.")
        all_users = _merged(users, log.users, "user")
        all_items = _merged(items, log.items, "item")
        old_users, old_items = all_users.rows(users.series), all_items.rows(items.series)
        event_users = all_users.rows(log.users.series)[log.user_rows]
        event_items = all_items.rows(log.items.series)[log.item_rows]
        joined = _joined(
            np.concatenate([old_users[seen.entry_rows], event_users]),
            np.concatenate([old_items[seen.indices], event_items]),
            (len(all_users), len(all_items)),
        )
        return cls(all_users, all_items, joined, old_users, old_items, event_users, event_items)

    def of_users(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What the model knew of its users, in their new rows, zeros elsewhere."""
        return _spread(values, self.old_users, len(self.users))

    def of_items(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The same for items."""
        return _spread(values, self.old_items, len(self.items))

    def places(self, users: Rows, items: Rows) -> npt.NDArray[np.int64]:
        """Where pairs of rows are among the entries of `seen`, which has them all: (n,)."""
        n_items = len(self.items)
        keys = self.seen.entry_rows.astype(np.int64) * n_items + self.seen.indices
        return np.searchsorted(keys, users.astype(np.int64) * n_items + items)


def _merged(known: IdMap, new: IdMap, what: str) -> IdMap:
    if len(new) and known.is_text != new.is_text:
        kinds = ["text" if ids.is_text else "integers" for ids in (known, new)]
        raise DataError(
            f"{what} ids of the model are {kinds[0]} and the new ones {kinds[1]}: convert them."
        )
    return IdMap(pl.concat([known.series, new.series]).unique().sort())


def _joined(users: Rows, items: Rows, shape: tuple[int, int]) -> Csr:
    """The pairs, each once."""
    n_users, n_items = shape
    keys = np.unique(users.astype(np.int64) * n_items + items)
    indptr = np.zeros(n_users + 1, np.int64)
    np.cumsum(np.bincount(keys // n_items, minlength=n_users), out=indptr[1:])
    return Csr(indptr, (keys % n_items).astype(np.int32), n_items)


def _spread(values: npt.NDArray[Any], rows: Rows, n_rows: int) -> npt.NDArray[Any]:
    spread = np.zeros((n_rows, *values.shape[1:]), values.dtype)
    spread[rows] = values
    return spread
