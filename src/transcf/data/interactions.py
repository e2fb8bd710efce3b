"""`Interactions`: an immutable event log, with the ids of the caller and their rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.sparse as sp

from transcf.data.csr import Csr, Histories, offsets, order_by_user
from transcf.data.ids import UNKNOWN, IdMap, Rows
from transcf.data.report import Report, counted
from transcf.data.validate import Place, to_categories
from transcf.errors import DataError

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """A set of (user, item) events, each pair once.

    Events are kept by user and then by item, both in ascending id order, whatever the order of
    the source. `read_interactions` makes one from a file or a table.

    Attributes:
        users: User ids; row u of `by_user` belongs to user u.
        items: Item ids; row i of `by_item` belongs to item i.
        by_user: Items of each user.
        positions: (n,) int64, the position of each event in its source, counted from 0.
        ratings: (n,) float32 or None.
        timestamps: (n,) int64 or None; microseconds since 1970 if `times_are_dates`, otherwise
            the integers of the source.
        times_are_dates: Whether the source gave dates rather than integers.
        categories: Table `item_id, category` (one row for each pair) or None.
        report: What was merged or left out.

    Example:
        >>> from transcf import read_interactions
        >>> log = read_interactions(pl.DataFrame({"user": ["ann", "bob"], "item": [7, 9]}))
        >>> len(log), log.by_user.row(1).tolist()
        (2, [1])
    """

    users: IdMap
    items: IdMap
    by_user: Csr
    positions: npt.NDArray[np.int64]
    ratings: npt.NDArray[np.float32] | None = None
    timestamps: npt.NDArray[np.int64] | None = None
    times_are_dates: bool = False
    categories: pl.DataFrame | None = None
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        for values in (self.positions, self.ratings, self.timestamps):
            if values is not None:
                values.flags.writeable = False

    @classmethod
    def from_rows(
        cls,
        users: IdMap,
        items: IdMap,
        user_rows: Rows,
        item_rows: Rows,
        *,
        ratings: npt.NDArray[np.float32] | None = None,
        timestamps: npt.NDArray[np.int64] | None = None,
        times_are_dates: bool = False,
        categories: pl.DataFrame | None = None,
        report: Report | None = None,
    ) -> Interactions:
        """Order events given as rows, and merge repeated pairs.

        Of a repeated pair the newest event is kept; where times are equal or absent, the one
        with the highest rating; then the last in the source.
        """
        kept = order_by_user(user_rows, item_rows, len(items), ratings, timestamps)
        repeats = len(user_rows) - len(kept)
        report = (report or Report()).then("merge repeats", events=len(user_rows), repeats=repeats)
        indptr = offsets(np.bincount(user_rows[kept], minlength=len(users)))
        by_user = Csr(indptr, item_rows[kept], len(items))
        ratings = None if ratings is None else ratings[kept]
        timestamps = None if timestamps is None else timestamps[kept]
        values = (kept, ratings, timestamps, times_are_dates)
        return cls(users, items, by_user, *values, categories, report)

    @classmethod
    def from_frame(
        cls, frame: pl.DataFrame, users: IdMap, items: IdMap, rows: tuple[Rows, Rows], **more: Any
    ) -> Interactions:
        """Take events that are in order from a table `position`, maybe `rating` and `timestamp`.

        `rows` are the rows of users and items; `more` are further attributes.
        """
        user_rows, item_rows = rows
        indptr = offsets(np.bincount(user_rows, minlength=len(users)))
        kinds = {"position": pl.Int64, "rating": pl.Float32, "timestamp": pl.Int64}
        values: list[Any] = [
            frame[name].cast(kind).to_numpy().copy() if name in frame.columns else None
            for name, kind in kinds.items()
        ]
        return cls(users, items, Csr(indptr, item_rows, len(items)), *values, **more)

    @classmethod
    def joined(cls, *parts: Interactions) -> Interactions:
        """Join disjoint parts of one log; ids, positions and report stay the same."""
        first = parts[0]

        def joint(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else np.concatenate(values)

        rows = joint("user_rows"), joint("item_rows")
        ratings, times = joint("ratings"), joint("timestamps")
        log = cls.from_rows(first.users, first.items, *rows, ratings=ratings, timestamps=times)
        names = ("times_are_dates", "categories", "report")
        shared = {name: getattr(first, name) for name in names}
        return replace(log, positions=joint("positions")[log.positions], **shared)

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        optional = ("ratings", "timestamps", "categories")
        known = [name for name in optional if getattr(self, name) is not None]
        with_known = f", with {', '.join(known)}" if known else ""
        sizes = ((self.n_users, "user"), (self.n_items, "item"), (len(self), "interaction"))
        return (
            f"Interactions({', '.join(counted(*size) for size in sizes)}, "
            f"density {100 * self.density:.3g} %{with_known})"
        )

    @property
    def n_users(self) -> int:
        """Number of user ids, with or without events."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """Number of item ids, with or without events."""
        return len(self.items)

    @property
    def user_counts(self) -> npt.NDArray[np.int64]:
        """(n_users,) events of each user."""
        return self.by_user.counts

    @property
    def item_counts(self) -> npt.NDArray[np.int64]:
        """(n_items,) events of each item."""
        return self.by_item.counts

    @property
    def density(self) -> float:
        """Share of all (user, item) pairs that are present."""
        cells = self.n_users * self.n_items
        return len(self) / cells if cells else 0.0

    @cached_property
    def user_rows(self) -> Rows:
        """(n,) the user row of each event."""
        return self.by_user.entry_rows

    @property
    def item_rows(self) -> Rows:
        """(n,) the item row of each event."""
        return self.by_user.indices

    @cached_property
    def by_item(self) -> Csr:
        """Users of each item, built at first use and kept."""
        return self.by_user.transposed()

    @cached_property
    def in_order(self) -> npt.NDArray[np.int64]:
        """(n,) the events of each user from the oldest to the newest, users in row order.

        Equal times are in the order of items, so that the order of the log does not matter;
        without times it is the order of the log.
        """
        if self.timestamps is None:
            return np.lexsort((self.positions, self.user_rows))
        return np.lexsort((self.item_rows, self.timestamps, self.user_rows))

    @cached_property
    def histories(self) -> Histories:
        """Items of each user, oldest first."""
        return Histories(self.by_user.indptr, self.item_rows[self.in_order], self.n_items)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of ids, events, the order of each history, times, ratings and categories.

        The position of events in the source does not matter.
        """
        digest = hashlib.sha256()
        for ids in (self.users.series, self.items.series):
            _add_column(digest, ids)
        for rows in (self.by_user.indptr, self.by_user.indices, self.histories.items):
            digest.update(rows.tobytes())
        for name, values in (("ratings", self.ratings), ("times", self.timestamps)):
            digest.update(f"{name} {values is not None}".encode())
            if values is not None:
                digest.update(values.tobytes())
        digest.update(f"dates {self.times_are_dates}".encode())
        digest.update(f"categories {self.categories is not None}".encode())
        for column in [] if self.categories is None else self.categories.iter_columns():
            _add_column(digest, column)
        digest.update(b"links False")  # of earlier versions: keys of stored runs contain the digest
        return digest.hexdigest()

    @cached_property
    def category_names(self) -> tuple[str, ...]:
        """Names of the categories, in the order of the columns of `item_categories`."""
        return () if self.categories is None else tuple(self.categories["category"].unique().sort())

    @cached_property
    def item_categories(self) -> Csr:
        """Categories of each item, (n_items, n_categories)."""
        if self.categories is None:
            return Csr(np.zeros(self.n_items + 1, np.int64), np.empty(0, np.int32), 0)
        names = np.array(self.category_names, object)
        columns = np.searchsorted(names, self.categories["category"].to_numpy())
        rows = self.items.rows(self.categories["item_id"])
        known = rows != UNKNOWN
        ones = np.ones(np.count_nonzero(known), np.int8)
        shape = (self.n_items, len(names))
        found = sp.coo_array((ones, (rows[known], columns[known])), shape=shape).tocsr()
        found.sort_indices()
        return Csr(found.indptr.astype(np.int64), found.indices.astype(np.int32), len(names))

    def select(self, events: Mask, *, drop_ids: bool = False) -> Interactions:
        """Return the events under a mask, (n,) bool.

        Rows stay the same, so that parts of a split share users and items; with `drop_ids`, ids
        without events are removed and rows are renumbered.
        """
        indptr = offsets(events)[self.by_user.indptr]
        # Frozen arrays are shared if all events are selected; indices are faster for a few.
        pick: Any = slice(None) if indptr[-1] == len(self) else events
        if 8 * indptr[-1] < len(self):
            pick = np.flatnonzero(events)
        columns = self.item_rows[pick]
        users, items, categories = self.users, self.items, self.categories
        if drop_ids:
            has_events = np.diff(indptr) > 0
            users = _some_ids(users, has_events)
            indptr = np.concatenate([[0], indptr[1:][has_events]])
            is_used = np.bincount(columns, minlength=len(items)) > 0
            items = _some_ids(items, is_used)
            columns = (np.cumsum(is_used) - 1).astype(np.int32)[columns]
            if categories is not None:
                categories = categories.filter(pl.col("item_id").is_in(items.series.implode()))
        return replace(
            self,
            users=users,
            items=items,
            by_user=Csr(indptr, columns, len(items)),
            positions=self.positions[pick],
            ratings=None if self.ratings is None else self.ratings[pick],
            timestamps=None if self.timestamps is None else self.timestamps[pick],
            categories=categories,
        )

    def with_report(self, report: Report) -> Interactions:
        """Return the same events with another report."""
        return replace(self, report=report)

    def with_categories(self, categories: pl.DataFrame | None) -> Interactions:
        """Return the same events with another table `item_id, category`."""
        if categories is None:
            return replace(self, categories=None)
        columns = ("item_id", "category")
        if missing := [name for name in columns if name not in categories.columns]:
            raise DataError(
                f"The table of categories has no column {missing[0]!r}: it needs item_id and "
                "category."
            )
        table = categories.drop_nulls("item_id")
        place = Place("the table of categories", "category")
        known = to_categories(table["item_id"], table["category"], place)
        return replace(self, categories=known)

    def to_frame(self) -> pl.DataFrame:
        """Return `user_id, item_id` and, where known, `rating` and `timestamp`."""
        users, items = self.users.ids(self.user_rows), self.items.ids(self.item_rows)
        columns = {"user_id": users, "item_id": items}
        if self.ratings is not None:
            columns["rating"] = pl.Series(self.ratings)
        if self.timestamps is not None:
            times = pl.Series(self.timestamps)
            columns["timestamp"] = times.cast(pl.Datetime("us")) if self.times_are_dates else times
        return pl.DataFrame(columns)


def _some_ids(ids: IdMap, used: Mask) -> IdMap:
    return ids if used.all() else IdMap(ids.series.filter(pl.Series(used)))


def _add_column(digest: Any, column: pl.Series) -> None:
    """Hash a column; lengths are included, so that "a", "bc" differs from "ab", "c"."""
    digest.update(f"{column.dtype} {len(column)}".encode())
    if column.dtype == pl.String:
        digest.update(column.str.len_bytes().to_numpy().tobytes())
        digest.update((column.str.join("").item() or "").encode())
    else:
        digest.update(column.to_numpy().tobytes())
