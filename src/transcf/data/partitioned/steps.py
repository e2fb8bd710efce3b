"""The steps of a preparation in their order, and what each leaves for the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from transcf.data.files import parquet_schema
from transcf.data.filters import drop_low_ratings
from transcf.data.partitioned.chunks import Chunk
from transcf.data.partitioned.executor import Run
from transcf.data.partitioned.filtering import Remaining
from transcf.data.partitioned.log import offsets
from transcf.data.partitioned.manifest import (
    CATEGORIES,
    ITEMS,
    PARTS,
    USERS,
    Counts,
    digest_of,
    partition_name,
)
from transcf.data.partitioned.partitions import (
    NOWHERE,
    Kept,
    Share,
    first_positions,
    merge,
    write,
)
from transcf.data.partitioned.shuffle import (
    Counted,
    Scattered,
    count_ids,
    record_type,
    scatter,
)
from transcf.data.report import Report, with_unused_columns
from transcf.data.splitters import LEAST_EVENTS, Order
from transcf.data.validate import RatingRule, Roles
from transcf.errors import DataError


class Steps:
    """One preparation.

    Args:
        run: Who does the tasks.
        roles: Columns of the files.
        pieces: Rows of the files.
        scratch: Folder for what lies between the steps.
    """

    def __init__(self, run: Run, roles: Roles, pieces: list[Chunk], scratch: Path) -> None:
        """Begin with nothing done."""
        self._run, self._roles, self._pieces, self._scratch = run, roles, pieces, scratch
        self.shares: list[Share] = []
        self.are_dates = False
        self._unrated = 0
        self._dealt: list[Scattered] = []

    def number(self, partitions: int) -> None:
        """Number the ids in ascending order, and lay out partitions of users."""
        tasks = [(piece, self._roles) for piece in self._pieces]
        users, items, self._categories = _merged(self._run("numbering ids", count_ids, tasks))
        users.select("id").write_parquet(self._scratch / USERS)
        items.write_parquet(self._scratch / ITEMS)
        self._users, self._items = users["id"], items["id"]
        ends = users["events"].cast(pl.Int64).cum_sum().to_numpy()
        wanted = np.arange(1, partitions) * ends[-1] / partitions
        cuts = np.unique([0, *(np.searchsorted(ends, wanted) + 1), len(ends)])
        self._bounds = cuts.astype(np.int64)
        self.shares = [
            Share(number, self._scratch / f"share-{number:06}.npz", first, end, len(items))
            for number, (first, end) in enumerate(pairwise(cuts.tolist()))
        ]

    def deal(self, rule: RatingRule) -> None:
        """Deal the events out to the partitions."""
        fixed = (self._roles, rule, self._scratch, self._bounds)
        tasks = [(piece, *fixed) for piece in self._pieces]
        self._dealt = list(self._run("dealing out events", scatter, tasks))
        self._unrated = sum(piece.without_rating for piece in self._dealt)
        kinds = {piece.are_dates for piece in self._dealt}
        if len(kinds) > 1:
            raise DataError(
                f"Column {self._roles['timestamp']!r} holds dates in some rows and numbers in "
                f"others: write all of its times in one way."
            )
        self.are_dates = kinds.pop()

    def merge(self, min_rating: float | None) -> tuple[Remaining, Report]:
        """Merge repeated pairs, and leave out what is disliked."""
        dtype = record_type(self._roles)
        tasks = [
            (share, _pieces_of(share.number, self._dealt), dtype, min_rating)
            for share in self.shares
        ]
        users, counts, sums = list[Counts](), np.zeros(len(self._items), np.int64), np.zeros(4, int)
        for merged in self._run("merging repeats", merge, tasks):
            users.append(merged.users)
            counts += merged.items
            sums += (merged.events, merged.repeats, merged.disliked, merged.unrated)
        for dealt in self._dealt:
            dealt.path.unlink()
        events, repeats, disliked, unrated = sums.tolist()
        left = Remaining.of(users, counts)
        missing = {"without_rating": self._unrated} if self._unrated else {}
        report = Report().then("read", rows=events, **missing)
        report = with_unused_columns(report, parquet_schema(self._pieces[0].path), self._roles)
        report = report.then("merge repeats", events=events, repeats=repeats)
        if disliked:
            report = drop_low_ratings(
                report,
                min_rating,
                of=events - repeats,
                interactions=disliked,
                without_rating=unrated,
                users=len(self._users) - left.n_users,
                items=len(self._items) - left.n_items,
            )
        return left, report

    def write(
        self, target: Path, left: Remaining, order: Order, seed: int, report: Report
    ) -> tuple[list[int], dict[str, str], Report]:
        """Split and write the partitions, and the tables beside them.

        Returns:
            The first user of each partition, checksums, and the report with the split.
        """
        starts = offsets(np.array([np.count_nonzero(users) for users in left.users])).tolist()
        numbers = np.where(left.items, np.cumsum(left.items) - 1, -1).astype(np.int32)
        ranks = self._ranks(left) if order == "paper" else np.empty(0, np.int64)
        tasks = [
            (
                share,
                Kept(users, numbers, first),
                target / partition_name(share.number),
                order,
                seed,
                ranks,
            )
            for share, users, first in zip(self.shares, left.users, starts[:-1], strict=True)
        ]
        files, of_users = dict[str, str](), list[Counts]()
        of_items = np.zeros((len(PARTS), left.n_items), np.int64)
        for number, written in enumerate(self._run("writing partitions", write, tasks)):
            files[partition_name(number)] = written.digest
            of_users.append(written.users)
            of_items += written.items
        users, counts = np.concatenate(left.users), np.concatenate(of_users, axis=1)
        tables = {
            USERS: _table(self._users.filter(pl.Series(users)), counts),
            ITEMS: _table(self._items.filter(pl.Series(left.items)), of_items),
        }
        if self._categories is not None:
            own = tables[ITEMS]["id"].implode()
            tables[CATEGORIES] = self._categories.filter(pl.col("item_id").is_in(own))
        for name, table in tables.items():
            table.write_parquet(target / name)
            files[name] = digest_of(target / name)
        return starts, files, _with_split(report, counts)

    def _ranks(self, left: Remaining) -> Counts:
        """(n_items,) the order of the paper among items that are left."""
        if self._items.dtype != pl.String:
            return np.arange(left.n_items)
        first = np.full(len(self._items), NOWHERE)
        tasks = list(zip(self.shares, left.users, strict=True))
        for found in self._run("looking for first places", first_positions, tasks):
            np.minimum(first, found, out=first)
        ranks: Counts = first[left.items]
        return ranks


def _merged(
    found: Iterable[Counted],
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame | None]:
    """Put the ids of pieces together as they come: users with their events, items, categories."""
    users = items = categories = None
    for piece in found:
        users = pl.concat([users, piece.users]) if users is not None else piece.users
        users = users.group_by("id").agg(pl.col("events").sum())
        items = pl.concat([items, piece.items]).unique() if items is not None else piece.items
        if piece.categories is not None:
            both = [table for table in (categories, piece.categories) if table is not None]
            categories = pl.concat(both).unique()
    assert users is not None, "there is a piece at least"
    assert items is not None
    if categories is not None:
        categories = categories.sort("item_id", "category")
    return users.sort("id"), items.sort("id"), categories


def _pieces_of(number: int, dealt: Sequence[Scattered]) -> list[tuple[Path, int, int]]:
    """Return where the events of a partition are."""
    spans = [(piece.path, *piece.starts[number : number + 2].tolist()) for piece in dealt]
    return [(path, first, end - first) for path, first, end in spans if end > first]


def _table(ids: pl.Series, counts: Counts) -> pl.DataFrame:
    """Table `id, train, validation, test`."""
    events = {
        part: pl.Series(of_part, dtype=pl.Int32)
        for part, of_part in zip(PARTS, counts, strict=True)
    }
    return pl.DataFrame({"id": ids, **events})


def _with_split(report: Report, counts: Counts) -> Report:
    """Note how large the parts are, as `leave_one_out` does; (3, users) events."""
    events = counts.sum(axis=0)
    sizes = dict(zip(PARTS, counts.sum(axis=1).tolist(), strict=True))
    held_out = int(np.count_nonzero(events >= LEAST_EVENTS))
    whole = len(events) - held_out
    return report.then(
        "split", **sizes, users_held_out=held_out, users_kept_whole=whole, users_without_training=0
    )
