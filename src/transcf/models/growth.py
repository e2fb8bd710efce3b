"""What a model knows that takes in new interactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.histories import Histories
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.errors import DataError
from transcf.models.training_data import TrainingData


@dataclass(frozen=True)
class Growth:
    """What a model knew together with a log; rows in the order of ids.

    Attributes:
        known: All ids and interactions, each pair once; what is new comes last in a history.
        old_users: The new row of each user that the model had, (n_old_users,).
        old_items: The same for items, (n_old_items,).
        event_users: User row of each event of the log, (n_events,).
        event_items: Item row of each, (n_events,).
    """

    known: TrainingData
    old_users: Rows
    old_items: Rows
    event_users: Rows
    event_items: Rows

    @classmethod
    def of(cls, known: TrainingData, log: Interactions) -> Growth:
        """Add a log to what a model knew.

        Raises:
            DataError: There is nothing to add, or ids are text here and integers there.
        """
        if not len(log):
            raise DataError("There is nothing to add: the log has no interactions.")
        users = merged(known.users, log.users, "user")
        items = merged(known.items, log.items, "item")
        old_users, old_items = users.rows(known.users.series), items.rows(known.items.series)
        event_users = users.rows(log.users.series)[log.user_rows]
        event_items = items.rows(log.items.series)[log.item_rows]
        histories = _joined(
            np.concatenate([old_users[known.seen.entry_rows], event_users[log.in_order]]),
            np.concatenate([old_items[known.histories.items], event_items[log.in_order]]),
            (len(users), len(items)),
        )
        grown = TrainingData(users, items, histories.matrix, histories, known.timed)
        return cls(grown, old_users, old_items, event_users, event_items)

    def of_users(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What the model knew of its users, in their new rows, zeros elsewhere."""
        return _spread(values, self.old_users, len(self.known.users))

    def of_items(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The same for items."""
        return _spread(values, self.old_items, len(self.known.items))

    def places(self, users: Rows, items: Rows) -> npt.NDArray[np.int64]:
        """Where pairs of rows are among the entries of `known.seen`, which has them all: (n,)."""
        n_items, seen = len(self.known.items), self.known.seen
        keys = seen.entry_rows.astype(np.int64) * n_items + seen.indices
        return np.searchsorted(keys, users.astype(np.int64) * n_items + items)


def merged(known: IdMap, new: IdMap, what: str) -> IdMap:
    """Return the ids of a model and of a log together.

    Raises:
        DataError: They are text here and integers there.
    """
    if len(new) and known.is_text != new.is_text:
        kinds = ["text" if ids.is_text else "integers" for ids in (known, new)]
        raise DataError(
            f"{what} ids of the model are {kinds[0]} and the new ones {kinds[1]}: convert them."
        )
    return IdMap(pl.concat([known.series, new.series]).unique().sort())


def _joined(users: Rows, items: Rows, shape: tuple[int, int]) -> Histories:
    """Histories of events in order; of a pair that comes twice the first place counts."""
    n_users, n_items = shape
    _, first = np.unique(users.astype(np.int64) * n_items + items, return_index=True)
    kept = np.sort(first)
    order = kept[np.argsort(users[kept], kind="stable")]
    indptr = np.zeros(n_users + 1, np.int64)
    np.cumsum(np.bincount(users[kept], minlength=n_users), out=indptr[1:])
    return Histories(indptr, items[order].astype(np.int32), n_items)


def _spread(values: npt.NDArray[Any], rows: Rows, n_rows: int) -> npt.NDArray[Any]:
    spread = np.zeros((n_rows, *values.shape[1:]), values.dtype)
    spread[rows] = values
    return spread
