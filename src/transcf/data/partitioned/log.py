"""`PartitionedLog`: a log that lies on disk by partitions of users, read by whoever has these."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.csr import Csr
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.data.partitioned.manifest import (
    CATEGORIES,
    ITEMS,
    NAME,
    PARTS,
    USERS,
    Counts,
    Manifest,
    partition_name,
)
from transcf.data.paths import user_path
from transcf.data.report import Report, counted
from transcf.data.split import Split


def is_partitioned(folder: Path) -> bool:
    """Whether `prepare_parts` wrote this folder."""
    return (folder / NAME).is_file()


def open_parts(folder: str | PathLike[str]) -> PartitionedLog:
    """Open a folder that `prepare_parts` wrote; no event is read yet.

    Raises:
        DataError: It is none, or its list is damaged.
    """
    path = user_path(folder).absolute()
    return PartitionedLog(_Folder(path, Manifest.read(path)))


@dataclass(frozen=True, eq=False)
class _Folder:
    """Where a log lies, and what all of its parts have in common."""

    path: Path
    manifest: Manifest

    @cached_property
    def ids(self) -> tuple[IdMap, IdMap]:
        """Ids of users and items."""
        tables = (self.manifest.table(self.path, name, ["id"]) for name in (USERS, ITEMS))
        users, items = (IdMap(table["id"]) for table in tables)
        return users, items

    @cached_property
    def counts(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Events of users and items in each part of the split; workers do without ids."""
        users, items = (self.manifest.table(self.path, name, PARTS) for name in (USERS, ITEMS))
        return users, items

    @cached_property
    def categories(self) -> pl.DataFrame | None:
        """Categories of the items, where the log had some."""
        has_some = CATEGORIES in self.manifest.files
        return self.manifest.table(self.path, CATEGORIES) if has_some else None


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedLog:
    """A log on disk, or one part of its split; what it keeps in memory are ids and counts.

    Models that train in rounds learn from it on a cluster, each worker from its own users; all
    else takes `read()`, all of its events in memory.

    Args:
        source: The folder; `open_parts` opens it.
        parts: Which parts of the split it stands for.

    Example:
        >>> from transcf import synthesize
        >>> from transcf.data import prepare_parts
        >>> synthesize().to_frame().write_parquet("events.parquet")
        >>> log = prepare_parts("events.parquet", "prepared", partitions=4)
        >>> len(log), len(log.train)
        (20000, 18000)
    """

    source: _Folder
    parts: tuple[str, ...] = PARTS

    def __len__(self) -> int:
        """Return the number of events."""
        return int(self.user_counts.sum())

    def __repr__(self) -> str:
        """Sizes, and what it stands for."""
        sizes = ((self.n_users, "user"), (self.n_items, "item"), (len(self), "interaction"))
        what = ", ".join(counted(*size) for size in sizes)
        return f"PartitionedLog({self.folder}: {' + '.join(self.parts)}, {what})"

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.source.path

    @property
    def users(self) -> IdMap:
        """User ids."""
        return self.source.ids[0]

    @property
    def items(self) -> IdMap:
        """Item ids."""
        return self.source.ids[1]

    @property
    def n_users(self) -> int:
        """Number of users, of all parts."""
        return self.source.manifest.starts[-1]

    @property
    def n_items(self) -> int:
        """Number of items, of all parts."""
        return len(self.source.counts[1])

    @property
    def n_partitions(self) -> int:
        """Number of partitions of the users."""
        return len(self.source.manifest.starts) - 1

    @cached_property
    def user_counts(self) -> Counts:
        """(n_users,) events of each user."""
        return _summed(self.source.counts[0], self.parts)

    @cached_property
    def item_counts(self) -> Counts:
        """(n_items,) events of each item."""
        return _summed(self.source.counts[1], self.parts)

    @property
    def timed(self) -> bool:
        """Whether events have times."""
        return self.source.manifest.timed

    @property
    def report(self) -> Report:
        """What was merged or left out on the way here."""
        return Report.from_list(self.source.manifest.log_report)

    @property
    def whole_report(self) -> Report:
        """The same, and how large the parts of the split are."""
        return Report.from_list(self.source.manifest.report)

    @property
    def how(self) -> str:
        """How it was split, in words."""
        return str(self.source.manifest.recipe["how"])

    @property
    def digest(self) -> str:
        """What tells it from other logs."""
        digest = hashlib.sha256((self.folder / NAME).read_bytes())
        digest.update(" ".join(self.parts).encode())
        return digest.hexdigest()

    # -- parts of the split --------------------------------------------------------------------

    def only(self, *parts: str) -> PartitionedLog:
        """Return some parts of the split."""
        return replace(self, parts=parts)

    @property
    def train(self) -> PartitionedLog:
        """What models learn from."""
        return self.only("train")

    @property
    def validation(self) -> PartitionedLog:
        """What epochs are chosen on."""
        return self.only("validation")

    @property
    def before_test(self) -> PartitionedLog:
        """Train and validation together."""
        return self.only("train", "validation")

    def split(self) -> Split:
        """Return the split with all of its events in memory."""
        train, validation, test = (self.only(part).read() for part in PARTS)
        recipe = self.source.manifest.recipe
        return Split(train, validation, test, recipe=recipe, report=self.whole_report)

    # -- events ----------------------------------------------------------------------------------

    def read(self) -> Interactions:
        """Return the log with all of its events in memory."""
        found = list(self.partitions())
        about, first = self.source.manifest, found[0]

        def together(column: str) -> Any:
            if getattr(first, column) is None:
                return None
            return np.concatenate([getattr(part, column) for part in found])

        return Interactions(
            users=self.users,
            items=self.items,
            by_user=Csr(offsets(self.user_counts), together("item_rows"), self.n_items),
            positions=together("positions"),
            ratings=together("ratings"),
            timestamps=together("timestamps"),
            times_are_dates=about.times_are_dates,
            categories=self.source.categories,
            report=self.report,
        )

    def partitions(self, first: int = 0, end: int | None = None) -> Iterator[Interactions]:
        """Read the events of the users first..end-1, a partition at a time.

        Users and items are called by their rows, whatever their ids are: workers do without ids.
        """
        about = self.source.manifest
        end = self.n_users if end is None else end
        items = IdMap(pl.int_range(self.n_items, dtype=pl.Int64, eager=True))
        for number, (start, stop) in enumerate(pairwise(about.starts)):
            begin, until = max(first, start), min(end, stop)
            if begin < until:
                yield self._partition(number, begin, until, items)

    def _partition(self, number: int, first: int, end: int, items: IdMap) -> Interactions:
        """Read the events of some users of one partition."""
        table = self.source.manifest.table(self.folder, partition_name(number))
        wanted = pl.col("part").is_in([PARTS.index(part) for part in self.parts])
        table = table.filter(wanted & pl.col("user").is_between(first, end - 1))
        counts = np.bincount(table["user"].to_numpy() - first, minlength=end - first)

        def column(name: str) -> Any:
            return table[name].to_numpy().copy() if name in table.columns else None

        return Interactions(
            users=IdMap(pl.int_range(first, end, dtype=pl.Int64, eager=True)),
            items=items,
            by_user=Csr(offsets(counts), column("item"), self.n_items),
            positions=column("position"),
            ratings=column("rating"),
            timestamps=column("timestamp"),
            times_are_dates=self.source.manifest.times_are_dates,
        )


def offsets(counts: npt.NDArray[np.integer]) -> Counts:
    """Return where each row begins, and where the last one ends, (n + 1,).

    Example:
        >>> offsets(np.array([2, 0, 3])).tolist()
        [0, 2, 2, 5]
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def _summed(table: pl.DataFrame, parts: tuple[str, ...]) -> Counts:
    return table.select(pl.sum_horizontal(parts).cast(pl.Int64)).to_series().to_numpy()
