"""`Histories`: the items of users in chronological order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import Rows


@dataclass(frozen=True, eq=False)
class Histories:
    """Items of users in the order of their events.

    Attributes:
        indptr: (n + 1,) int64, where each history starts.
        items: (n_events,) int32 item rows, oldest first; no item twice in a history.
        n_items: Number of items.
    """

    indptr: npt.NDArray[np.int64]
    items: Rows
    n_items: int

    @classmethod
    def of(cls, lists: Sequence[Rows], n_items: int) -> Histories:
        """Combine single histories.

        Example:
            >>> both = Histories.of([np.array([4, 1], np.int32), np.array([2], np.int32)], 5)
            >>> both[0].tolist(), both.matrix.indices.tolist()
            ([4, 1], [1, 4, 2])
        """
        indptr = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(history) for history in lists], out=indptr[1:])
        items = np.concatenate([*lists, np.empty(0, np.int32)]).astype(np.int32)
        return cls(indptr, items, n_items)

    def __len__(self) -> int:
        """Return the number of users."""
        return len(self.indptr) - 1

    def __getitem__(self, row: int) -> Rows:
        """Return the items of one user, oldest first."""
        return self.items[self.indptr[row] : self.indptr[row + 1]]

    def take(self, rows: npt.NDArray[np.integer]) -> Histories:
        """Return the histories of some users, in the given order."""
        taken = Csr(self.indptr, self.items, self.n_items).take(rows)
        return Histories(taken.indptr, taken.indices, self.n_items)

    def among(self, items: npt.NDArray[np.bool_]) -> Histories:
        """Return the histories without the items outside a mask, (n_items,).

        Example:
            >>> both = Histories.of([np.array([4, 1], np.int32), np.array([2], np.int32)], 5)
            >>> both.among(np.arange(5) < 4).indptr.tolist()
            [0, 1, 2]
        """
        kept = items[self.items]
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.indptr]
        return Histories(indptr, self.items[kept], self.n_items)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(n,) number of events of each user."""
        return np.diff(self.indptr)

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """(n_events,) the place of each event in its history, counted from 1."""
        return np.arange(1, len(self.items) + 1) - np.repeat(self.indptr[:-1], self.counts)

    @cached_property
    def by_item(self) -> npt.NDArray[np.int64]:
        """(n_events,) the order of each user's events by item row instead of by time."""
        return np.lexsort((self.items, np.repeat(np.arange(len(self)), self.counts)))

    @cached_property
    def matrix(self) -> Csr:
        """The same as a matrix: item rows ascending."""
        return Csr(self.indptr, self.items[self.by_item], self.n_items)
