"""`TrainingData`: the ids and interactions that a fitted model keeps. `Growth` adds new ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.csr import Csr, Histories, offsets
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.errors import DataError


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Ids and interactions."""

    users: IdMap
    items: IdMap
    seen: Csr  # items of each user, as a set
    histories: Histories  # the same in the order of events, oldest first
    timed: bool  # whether that is the order of time; else it is that of the log

    @classmethod
    def of(cls, log: Interactions) -> TrainingData:
        """Keep what is needed of a log."""
        timed = log.timestamps is not None
        return cls(log.users, log.items, log.by_user, log.histories, timed)

    @property
    def user_counts(self) -> npt.NDArray[np.int64]:
        """(n_users,) training interactions of each user."""
        return self.seen.counts

    @cached_property
    def item_counts(self) -> npt.NDArray[np.int64]:
        """(n_items,) training interactions of each item."""
        return np.bincount(self.seen.indices, minlength=len(self.items))

    @cached_property
    def by_item(self) -> Csr:
        """Users of each item in training."""
        return self.seen.transposed()

    @cached_property
    def rankable(self) -> npt.NDArray[np.bool_]:
        """(n_items,) items with training interactions."""
        return self.item_counts > 0

    @cached_property
    def active(self) -> npt.NDArray[np.bool_]:
        """(n_users,) users with training interactions."""
        return self.seen.counts > 0

    def average_item(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the mean of values of items, (n_items, ...), over all interactions: (...)."""
        mean: npt.NDArray[np.float64] = self.item_counts @ values / self.item_counts.sum()
        return mean

    def typical_items(self, number: int) -> npt.NDArray[np.int64]:
        """Return rows of items as interactions would draw them, evenly spread: (number,)."""
        ends = np.cumsum(self.item_counts)
        drawn = (np.arange(number) + 0.5) / number * ends[-1]
        rows: npt.NDArray[np.int64] = np.searchsorted(ends, drawn)
        return rows

    def facts(self) -> dict[str, Any]:
        """Sizes for reports."""
        return {
            "users": int(np.count_nonzero(self.active)),
            "items": int(np.count_nonzero(self.rankable)),
            "interactions": len(self.seen.indices),
        }


@dataclass(frozen=True)
class Growth:
    """Training data of a model with a log added; rows in the order of ids."""

    known: TrainingData  # each pair once; new items come last in a history
    old_users: Rows  # the new row of each user of the model, (n_old_users,)
    old_items: Rows  # the new row of each item of the model, (n_old_items,)
    event_users: Rows  # user row of each event of the log, (n_events,)
    event_items: Rows  # item row of each, (n_events,)

    @classmethod
    def of(cls, known: TrainingData, log: Interactions) -> Growth:
        """Add a log to the training data of a model; an empty log or ids of another kind raise."""
        if not len(log):
            raise DataError("There is nothing to add: the log has no interactions.")
        users = merged(known.users, log.users, "user")
        items = merged(known.items, log.items, "item")
        old_users, old_items = users.rows(known.users.series), items.rows(known.items.series)
        event_users = users.rows(log.users.series)[log.user_rows]
        event_items = items.rows(log.items.series)[log.item_rows]
        owners = np.concatenate([old_users[known.seen.entry_rows], event_users[log.in_order]])
        owned = np.concatenate([old_items[known.histories.items], event_items[log.in_order]])
        pairs = owners.astype(np.int64) * len(items) + owned
        first = np.sort(np.unique(pairs, return_index=True)[1])  # of repeated pairs
        order = first[np.argsort(owners[first], kind="stable")]
        indptr = offsets(np.bincount(owners[first], minlength=len(users)))
        histories = Histories(indptr, owned[order].astype(np.int32), len(items))
        grown = TrainingData(users, items, histories.matrix, histories, known.timed)
        return cls(grown, old_users, old_items, event_users, event_items)

    def of_users(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values of the model's users in their new rows, zeros elsewhere."""
        return _spread(values, self.old_users, len(self.known.users))

    def of_items(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values of the model's items in their new rows, zeros elsewhere."""
        return _spread(values, self.old_items, len(self.known.items))

    def places(self, users: Rows, items: Rows) -> npt.NDArray[np.int64]:
        """Return the positions of pairs of rows among the entries of `known.seen`: (n,)."""
        n_items, seen = len(self.known.items), self.known.seen
        keys = seen.entry_rows.astype(np.int64) * n_items + seen.indices
        return np.searchsorted(keys, users.astype(np.int64) * n_items + items)


def merged(known: IdMap, new: IdMap, what: str) -> IdMap:
    """Return the ids of a model and of a log together; text and integers do not mix."""
    if len(new) and known.is_text != new.is_text:
        kinds = ["text" if ids.is_text else "integers" for ids in (known, new)]
        raise DataError(
            f"{what} ids of the model are {kinds[0]} and the new ones {kinds[1]}: convert them."
        )
    return IdMap(pl.concat([known.series, new.series]).unique().sort())


def _spread(values: npt.NDArray[Any], rows: Rows, n_rows: int) -> npt.NDArray[Any]:
    spread = np.zeros((n_rows, *values.shape[1:]), values.dtype)
    spread[rows] = values
    return spread
