"""`PartitionedLog`: a split log larger than memory, in Parquet files by ranges of users.

`prepare_parts` (`data.partitioning`) writes the folder. Its manifest is written last, and the
folder is renamed into place after that, so that a log is complete or absent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PanicException, PolarsError

from transcf.data.csr import offsets
from transcf.data.files import user_path
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.data.report import Report, counted
from transcf.data.split import Split
from transcf.errors import DataError

Counts: TypeAlias = npt.NDArray[np.int64]

MANIFEST = "parted.json"
VERSION = 1
#: Tables `id, train, validation, test`: events in each part of the split.
USERS, ITEMS = "users.parquet", "items.parquet"
#: Table `item_id, category`, where the log had some.
CATEGORIES = "categories.parquet"
#: Parts of the split, by their numbers in the tables of events.
PARTS = ("train", "validation", "test")
_KEYS = {"recipe", "report", "log_report", "timed", "times_are_dates", "starts", "files"}


def is_partitioned(folder: Path) -> bool:
    """Whether `prepare_parts` wrote this folder."""
    return (folder / MANIFEST).is_file()


def open_parts(folder: str | PathLike[str], parts: tuple[str, ...] = PARTS) -> PartitionedLog:
    """Open a folder that `prepare_parts` wrote, or some parts of its split; no event is read yet.

    Raises:
        DataError: It is none, or its manifest is damaged or of another version.
    """
    path = user_path(folder).absolute()
    if not is_partitioned(path):
        raise DataError(f"{path} holds no log in parts: it has no {MANIFEST}.")
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        version, is_whole = manifest["version"], manifest.keys() >= _KEYS
    except (OSError, KeyError, ValueError, TypeError) as problem:
        raise _damaged(path / MANIFEST) from problem
    if version != VERSION:
        raise DataError(
            f"{path} is a log in parts of version {version}, this library reads {VERSION}: "
            "prepare it again."
        )
    if not is_whole:
        raise _damaged(path / MANIFEST)
    return PartitionedLog(path, manifest, parts, {})


class PartitionedLog:
    """A log on disk, or some parts of its split. It keeps ids and counts in memory.

    Models that train in rounds learn from it on a cluster, each worker from its own users. All
    others use `read()`, which returns all of its events in memory.

    Attributes:
        n_users: Number of users of all parts.
        n_partitions: Number of partitions of the users.
        timed: Whether events have times.
        report: What was merged or left out.
        whole_report: The same, and the sizes of the parts of the split.
        how: How it was split, in words.

    Example:
        >>> from transcf import synthesize
        >>> from transcf.data import prepare_parts
        >>> synthesize().to_frame().write_parquet("events.parquet")
        >>> log = prepare_parts("events.parquet", "prepared", partitions=4)
        >>> len(log), len(log.train)
        (20000, 18000)
    """

    def __init__(
        self,
        folder: Path,
        manifest: Mapping[str, Any],
        parts: tuple[str, ...],
        ids: dict[str, IdMap],
    ) -> None:
        self.folder, self.parts, self._manifest, self._ids = folder, parts, manifest, ids
        self._starts: list[int] = manifest["starts"]
        self.n_users, self.n_partitions = self._starts[-1], len(self._starts) - 1
        self.timed = bool(manifest["timed"])
        self.report = Report.from_list(manifest["log_report"])
        self.whole_report = Report.from_list(manifest["report"])
        self.how = str(manifest["recipe"]["how"])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path alone: workers read what they need."""
        return open_parts, (self.folder, self.parts)

    def __len__(self) -> int:
        return int(self.user_counts.sum())

    def __repr__(self) -> str:
        sizes = ((self.n_users, "user"), (self.n_items, "item"), (len(self), "interaction"))
        what = ", ".join(counted(*size) for size in sizes)
        return f"PartitionedLog({self.folder}: {' + '.join(self.parts)}, {what})"

    @property
    def users(self) -> IdMap:
        """User ids."""
        return self._read_ids(USERS)

    @property
    def items(self) -> IdMap:
        """Item ids."""
        return self._read_ids(ITEMS)

    @property
    def n_items(self) -> int:
        """Number of items of all parts."""
        return len(self.item_counts)

    @cached_property
    def user_counts(self) -> Counts:
        """(n_users,) events of each user."""
        return self._counts(USERS)

    @cached_property
    def item_counts(self) -> Counts:
        """(n_items,) events of each item."""
        return self._counts(ITEMS)

    @property
    def digest(self) -> str:
        """SHA-256 that tells it from other logs."""
        content = (self.folder / MANIFEST).read_bytes() + " ".join(self.parts).encode()
        return hashlib.sha256(content).hexdigest()

    def only(self, *parts: str) -> PartitionedLog:
        """Return some parts of the split."""
        return PartitionedLog(self.folder, self._manifest, parts, self._ids)

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
        recipe = self._manifest["recipe"]
        return Split(train, validation, test, recipe=recipe, report=self.whole_report)

    def read(self) -> Interactions:
        """Return the log with all of its events in memory."""
        events = pl.concat([table for *_, table in self._events(0, self.n_users)])
        has_categories = CATEGORIES in self._manifest["files"]
        categories = self._table(CATEGORIES) if has_categories else None
        return self._interactions(
            events, self.users, self.items, categories=categories, report=self.report
        )

    def partitions(self, first: int = 0, end: int | None = None) -> Iterator[Interactions]:
        """Read the events of the users first..end-1, a partition at a time.

        The ids of users and items are their rows, so that workers need not read the ids.
        """
        items = IdMap(pl.int_range(self.n_items, dtype=pl.Int64, eager=True))
        for begin, stop, events in self._events(first, self.n_users if end is None else end):
            users = IdMap(pl.int_range(begin, stop, dtype=pl.Int64, eager=True))
            yield self._interactions(events, users, items, first=begin)

    def item_lists(
        self, first: int = 0, end: int | None = None, *, in_order: bool = False
    ) -> tuple[Counts, Rows]:
        """Return where the items of the users first..end-1 begin, and the rows of the items.

        The items of a user are in the order of rows, or in that of events with `in_order`.
        """
        indptr, at = offsets(self.user_counts[first:end]), 0
        items = np.empty(int(indptr[-1]), np.int32)
        for part in self.partitions(first, end):
            items[at : at + len(part)] = part.histories.items if in_order else part.item_rows
            at += len(part)
        return indptr, items

    def _events(self, first: int, end: int) -> Iterator[tuple[int, int, pl.DataFrame]]:
        """Yield the users first..end-1 of each partition, from and to, and the events of them."""
        wanted = pl.col("part").is_in([PARTS.index(part) for part in self.parts])
        for number, (start, stop) in enumerate(pairwise(self._starts)):
            begin, until = max(first, start), min(end, stop)
            if begin < until:
                in_range = pl.col("user").is_between(begin, until - 1)
                yield begin, until, self._table(partition_name(number)).filter(wanted & in_range)

    def _interactions(
        self, events: pl.DataFrame, users: IdMap, items: IdMap, first: int = 0, **more: Any
    ) -> Interactions:
        """Return events of users whose rows begin with `first`."""
        rows = array_of(events, "user") - np.int32(first), array_of(events, "item")
        dates = self._manifest["times_are_dates"]
        return Interactions.from_frame(events, users, items, rows, times_are_dates=dates, **more)

    def _read_ids(self, name: str) -> IdMap:
        if name not in self._ids:
            self._ids[name] = IdMap(self._table(name)["id"])
        return self._ids[name]

    def _counts(self, name: str) -> Counts:
        counts = self._table(name).select(pl.sum_horizontal(self.parts).cast(pl.Int64))
        return counts.to_series().to_numpy()

    def _table(self, name: str) -> pl.DataFrame:
        """Read a table of the folder after checking its checksum."""
        path = self.folder / name
        try:
            if self._manifest["files"][name] != digest_of(path):
                raise _damaged(path)
            return pl.read_parquet(path, glob=False)
        except (PolarsError, PanicException, OSError, KeyError) as problem:
            raise _damaged(path) from problem


def array_of(frame: pl.DataFrame, name: str) -> Any:
    """Return a copy of a column as an array; None if there is no such column."""
    return frame[name].to_numpy().copy() if name in frame.columns else None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def partition_name(number: int) -> str:
    """Return the file name of a partition."""
    return f"part-{number:05}.parquet"


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} is missing or damaged: prepare {path.parent} again.")
