"""Items of users: `Csr`, a binary sparse matrix by rows; `Histories`, in order of time.

`order_by_user` sorts events by user and item and merges repeated pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from transcf.data.ids import Rows

_Offsets: TypeAlias = npt.NDArray[np.int64]
_Ratings: TypeAlias = npt.NDArray[np.float32] | None
_Times: TypeAlias = npt.NDArray[np.int64] | None


def offsets(counts: npt.ArrayLike) -> _Offsets:
    """Return where each row begins, and where the last one ends, (n + 1,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class Csr:
    """A binary sparse matrix with ascending columns in each row."""

    indptr: _Offsets  # (n_rows + 1,)
    indices: npt.NDArray[np.int32]  # (n_entries,) columns
    n_columns: int

    def __post_init__(self) -> None:
        self.indptr.flags.writeable = False
        self.indices.flags.writeable = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(n_rows,) entries per row."""
        return np.diff(self.indptr)

    @property
    def entry_rows(self) -> npt.NDArray[np.int32]:
        """(n_entries,) the row of each entry."""
        return np.repeat(np.arange(self.n_rows, dtype=np.int32), self.counts)

    def row(self, row: int) -> npt.NDArray[np.int32]:
        """Return the columns of one row, ascending."""
        return self.indices[self.indptr[row] : self.indptr[row + 1]]

    def take(self, rows: npt.NDArray[np.integer]) -> Csr:
        """Return some rows, in the given order, as a matrix of their own."""
        counts = self.counts[rows]
        indptr = offsets(counts)
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], counts)
        return Csr(indptr, self.indices[entries], self.n_columns)

    def between(self, first: int, end: int) -> Csr:
        """Return the rows first..end-1, without a copy of their entries."""
        indptr = self.indptr[first : end + 1]
        return Csr(indptr - indptr[0], self.indices[indptr[0] : indptr[-1]], self.n_columns)

    def transposed(self) -> Csr:
        """Return the matrix by columns."""
        by_column = self.to_scipy(np.int8).tocsc()
        indices = by_column.indices.astype(np.int32, copy=False)
        return Csr(by_column.indptr.astype(np.int64), indices, self.n_rows)

    def to_scipy(
        self, dtype: npt.DTypeLike = np.float32, values: npt.NDArray[np.floating] | None = None
    ) -> sp.csr_array:
        """Return the matrix with ones as values, or with those that are given (if any)."""
        if values is None or not len(values):
            values = np.ones(len(self.indices), dtype=dtype)
        shape = (self.n_rows, self.n_columns)
        return sp.csr_array((values.astype(dtype), self.indices, self.indptr), shape=shape)


@dataclass(frozen=True, eq=False)
class Histories:
    """Items of users in the order of their events.

    Example:
        >>> both = Histories.of([np.array([4, 1], np.int32), np.array([2], np.int32)], 5)
        >>> both[0].tolist(), both.matrix.indices.tolist()
        ([4, 1], [1, 4, 2])
    """

    indptr: _Offsets  # (n + 1,) where each history starts
    items: Rows  # (n_events,) oldest first; no item twice in a history
    n_items: int

    @classmethod
    def of(cls, lists: Sequence[Rows], n_items: int) -> Histories:
        """Combine single histories."""
        indptr = offsets([len(history) for history in lists])
        items = np.concatenate([*lists, np.empty(0, np.int32)]).astype(np.int32)
        return cls(indptr, items, n_items)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, row: int) -> Rows:
        return self.items[self.indptr[row] : self.indptr[row + 1]]

    def take(self, rows: npt.NDArray[np.integer]) -> Histories:
        """Return the histories of some users, in the given order."""
        taken = Csr(self.indptr, self.items, self.n_items).take(rows)
        return Histories(taken.indptr, taken.indices, self.n_items)

    def among(self, items: npt.NDArray[np.bool_]) -> Histories:
        """Return the histories without the items outside a mask, (n_items,)."""
        kept = items[self.items]
        return Histories(offsets(kept)[self.indptr], self.items[kept], self.n_items)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(n,) number of events of each user."""
        return np.diff(self.indptr)

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """(n_events,) the place of each event in its history, counted from 1."""
        return np.arange(1, len(self.items) + 1) - np.repeat(self.indptr[:-1], self.counts)

    @property
    def by_item(self) -> npt.NDArray[np.int64]:
        """(n_events,) the order of each user's events by item row instead of by time."""
        pairs = np.repeat(np.arange(len(self)) * self.n_items, self.counts) + self.items
        return np.argsort(pairs, kind="stable")  # ten times as fast as `lexsort`

    @cached_property
    def matrix(self) -> Csr:
        """The same as a matrix: item rows ascending."""
        return Csr(self.indptr, self.items[self.by_item], self.n_items)


def order_by_user(
    users: Rows, items: Rows, n_items: int, ratings: _Ratings, timestamps: _Times
) -> npt.NDArray[np.int64]:
    """Return the events that `Interactions.from_rows` keeps, ordered by user and item."""
    pairs, bits = users.astype(np.int64) * n_items + items, len(users).bit_length()
    if pairs.max(initial=0) < 1 << (63 - bits):
        # numpy sorts numbers of a pair and an event many times faster than it finds an order.
        pairs = (pairs << bits) | np.arange(len(pairs))
        pairs.sort()
        events = pairs & ((1 << bits) - 1)
        pairs >>= bits
    else:
        events = np.argsort(pairs, kind="stable")
        pairs = pairs[events]
    is_last = np.append(pairs[1:] != pairs[:-1], [True] * (len(pairs) > 0))
    if not is_last.all():
        repeated = ~is_last | np.append(False, ~is_last[:-1])
        events[repeated] = _best_last(events[repeated], is_last[repeated], ratings, timestamps)
        events = events[is_last]
    return events


def _best_last(
    events: npt.NDArray[np.int64],
    is_last: npt.NDArray[np.bool_],
    ratings: _Ratings,
    timestamps: _Times,
) -> npt.NDArray[np.int64]:
    """Put the event of each pair that is kept in the place of its last one."""
    ends = np.flatnonzero(is_last)
    counts = np.diff(ends, prepend=-1)
    starts = ends + 1 - counts
    is_best = np.ones(len(events), dtype=bool)
    rated = None if ratings is None else np.where(np.isnan(ratings), -np.inf, ratings)
    for column in (timestamps, rated):
        if column is not None:
            values = column[events]
            values[~is_best] = values.min()
            is_best &= values == np.repeat(np.maximum.reduceat(values, starts), counts)
    best = np.maximum.reduceat(np.where(is_best, np.arange(len(events)), -1), starts)
    events[ends] = events[best]
    return events
