"""`TrainingData`: what a model keeps of its training data, whatever it learns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.kernels.sorting import transpose


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Ids, and who has what.

    Attributes:
        users: User ids.
        items: Item ids.
        seen: Items of each user in training, as a set.
        histories: The same in the order of their events, oldest first.
        timed: Whether that order is one of time; else it is that of the log.
    """

    users: IdMap
    items: IdMap
    seen: Csr
    histories: Histories
    timed: bool

    @classmethod
    def of(cls, log: Interactions) -> TrainingData:
        """Keep what is needed of a log."""
        timed = log.timestamps is not None
        return cls(log.users, log.items, log.by_user, log.histories, timed)

    def loaded(self) -> TrainingData:
        """Return the same with all of it in memory, as a fitted model keeps it."""
        return self

    @cached_property
    def item_counts(self) -> npt.NDArray[np.int64]:
        """(n_items,) training interactions of each item."""
        return np.bincount(self.seen.indices, minlength=len(self.items))

    @cached_property
    def by_item(self) -> Csr:
        """Users of each item in training."""
        indptr, rows = transpose(self.seen.indptr, self.seen.indices, len(self.items))
        return Csr(indptr, rows, len(self.users))

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
