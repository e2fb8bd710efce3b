"""Logs larger than memory: Parquet files by ranges of users, and their preparation.

Rows, filters and split are those of `read_interactions`, `k_core` and `leave_one_out`. polars'
streaming engine numbers ids, counts for the filter and distributes events to partitions of users;
values are checked by chunks of files, and repeated pairs are merged by partition. The manifest is
written last, and the folder is renamed into place after that: a log is complete or absent.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, Unpack, cast

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PanicException, PolarsError

from transcf.data import files, filters, validate
from transcf.data.atomic import atomic_write_dir, check_free
from transcf.data.csr import Csr, Histories, offsets
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.data.readers import Reading
from transcf.data.report import Report, counted, with_unused_columns
from transcf.data.split import Split
from transcf.data.splitters import LEAST_EVENTS, Order, leaving_out
from transcf.data.tables import by_role
from transcf.errors import DataError, ParameterError, check_integer
from transcf.parallel import check_unforked

Counts: TypeAlias = npt.NDArray[np.int64]

#: Rows that are checked at once.
CHUNK_ROWS = 1 << 21
_MANIFEST, _VERSION = "parted.json", 1
#: Tables `id, train, validation, test` (events in each part of the split), and `item_id, category`.
_USERS, _ITEMS, _CATEGORIES = "users.parquet", "items.parquet", "categories.parquet"
#: Table `user, item, part, position`, and `rating` and `timestamp` where known.
_PARTITION = "part-{:05}.parquet"
#: Parts of the split, by their numbers in the tables of events.
_PARTS = ("train", "validation", "test")
_IDS: tuple[validate.Role, ...] = ("user", "item")


def is_partitioned(folder: Path) -> bool:
    """Whether `prepare_parts` wrote this folder."""
    return (folder / _MANIFEST).is_file()


def open_parts(folder: str | PathLike[str]) -> PartitionedLog:
    """Open a folder that `prepare_parts` wrote; no event is read yet.

    Raises:
        DataError: It is none, or its manifest is damaged or of another version.
    """
    path = files.user_path(folder).absolute()
    if not is_partitioned(path):
        raise DataError(f"{path} holds no log in parts: it has no {_MANIFEST}.")
    try:
        manifest = json.loads((path / _MANIFEST).read_bytes())
        if manifest["version"] == _VERSION:
            return PartitionedLog(path, manifest, _PARTS)
    except (OSError, KeyError, ValueError, TypeError) as problem:
        raise _damaged(path / _MANIFEST) from problem
    raise DataError(
        f"{path} is a log in parts of version {manifest['version']}, this library reads "
        f"{_VERSION}: prepare it again."
    )


class PartitionedLog:
    """A log on disk, or some parts of its split. It keeps ids and counts in memory.

    Models that train in rounds learn on a cluster from `by_user` or `histories`. All others use
    `read()`, which returns all of its events in memory.

    Example:
        >>> from transcf import synthesize
        >>> from transcf.data import prepare_parts
        >>> synthesize().to_frame().write_parquet("events.parquet")
        >>> log = prepare_parts("events.parquet", "prepared", partitions=4)
        >>> len(log), len(log.train)
        (20000, 18000)
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any], parts: tuple[str, ...]) -> None:
        self.folder, self.parts, self._manifest = folder, parts, manifest
        self._starts: list[int] = manifest["starts"]
        self.n_users, self.n_partitions = self._starts[-1], len(self._starts) - 1
        self.timed = bool(manifest["timed"])  # whether events have times
        self.report = Report.from_list(manifest["log_report"])  # what was merged or left out
        self.whole_report = Report.from_list(manifest["report"])  # and the sizes of the parts
        self.how = str(manifest["recipe"]["how"])  # it was split, in words
        self._files, self._times_are_dates = manifest["files"], bool(manifest["times_are_dates"])

    def __len__(self) -> int:
        return int(self.user_counts.sum())

    def __repr__(self) -> str:
        sizes = ((self.n_users, "user"), (self.n_items, "item"), (len(self), "interaction"))
        what = ", ".join(counted(*size) for size in sizes)
        return f"PartitionedLog({self.folder}: {' + '.join(self.parts)}, {what})"

    @cached_property
    def users(self) -> IdMap:
        """User ids."""
        return IdMap(self._table(_USERS)["id"])

    @cached_property
    def items(self) -> IdMap:
        """Item ids."""
        return IdMap(self._table(_ITEMS)["id"])

    @property
    def n_items(self) -> int:
        """Number of items of all parts."""
        return len(self.item_counts)

    @cached_property
    def user_counts(self) -> Counts:
        """(n_users,) events of each user."""
        return self._counts(_USERS)

    @cached_property
    def item_counts(self) -> Counts:
        """(n_items,) events of each item."""
        return self._counts(_ITEMS)

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest, which has checksums of all files, and of the chosen parts."""
        content = (self.folder / _MANIFEST).read_bytes() + " ".join(self.parts).encode()
        return hashlib.sha256(content).hexdigest()

    def only(self, *parts: str) -> PartitionedLog:
        """Return some parts of the split."""
        return PartitionedLog(self.folder, self._manifest, parts)

    @property
    def train(self) -> PartitionedLog:
        """Training data."""
        return self.only("train")

    @property
    def validation(self) -> PartitionedLog:
        """Data that epochs are chosen on."""
        return self.only("validation")

    @property
    def before_test(self) -> PartitionedLog:
        """Train and validation together."""
        return self.only("train", "validation")

    def split(self) -> Split:
        """Return the split with all of its events in memory."""
        train, validation, test = (self.only(part).read() for part in _PARTS)
        recipe = self._manifest["recipe"]
        return Split(train, validation, test, recipe=recipe, report=self.whole_report)

    @cached_property
    def by_user(self) -> Csr:
        """Items of each user, 4 bytes per event."""
        items = np.concatenate([part.item_rows for part in self.partitions()])
        return Csr(offsets(self.user_counts), items, self.n_items)

    @cached_property
    def histories(self) -> Histories:
        """Items of each user, oldest first, 4 bytes per event."""
        items = np.concatenate([part.histories.items for part in self.partitions()])
        return Histories(offsets(self.user_counts), items, self.n_items)

    def partitions(self) -> Iterator[Interactions]:
        """Read the events a partition at a time; ids are the rows of users and items."""
        items = IdMap(pl.int_range(self.n_items, dtype=pl.Int64, eager=True))
        for (first, end), events in zip(pairwise(self._starts), self._tables(), strict=True):
            users = IdMap(pl.int_range(first, end, dtype=pl.Int64, eager=True))
            yield self._interactions(events, users, items, first=first)

    def read(self) -> Interactions:
        """Return the log with all of its events in memory."""
        categories = self._table(_CATEGORIES) if _CATEGORIES in self._files else None
        more: dict[str, Any] = {"report": self.report, "categories": categories}
        return self._interactions(pl.concat(self._tables()), self.users, self.items, **more)

    def _tables(self) -> Iterator[pl.DataFrame]:
        """Read the events of the chosen parts of each partition."""
        wanted = pl.col("part").is_in([_PARTS.index(part) for part in self.parts])
        for number in range(self.n_partitions):
            yield self._table(_PARTITION.format(number)).filter(wanted)

    def _interactions(
        self, events: pl.DataFrame, users: IdMap, items: IdMap, first: int = 0, **more: Any
    ) -> Interactions:
        """Return events of users whose rows begin with `first`."""
        rows = events["user"].to_numpy() - np.int32(first), events["item"].to_numpy().copy()
        more["times_are_dates"] = self._times_are_dates
        return Interactions.from_frame(events, users, items, rows, **more)

    def _counts(self, name: str) -> Counts:
        counts = self._table(name).select(pl.sum_horizontal(self.parts).cast(pl.Int64))
        return counts.to_series().to_numpy()

    def _table(self, name: str) -> pl.DataFrame:
        """Read a table of the folder after checking its checksum."""
        path = self.folder / name
        try:
            content = path.read_bytes()
            if self._files[name] != hashlib.sha256(content).hexdigest():
                raise _damaged(path)
            return pl.read_parquet(content)
        except (PolarsError, PanicException, OSError, KeyError) as problem:
            raise _damaged(path) from problem


def prepare_parts(
    source: Any,
    folder: str | Path,
    *,
    partitions: int = 16,
    k_core: int | None = None,
    by: Order = "auto",
    seed: int = 0,
    progress: Callable[[str], object] = lambda step: None,
    **reading: Unpack[Reading],
) -> PartitionedLog:
    """Read, filter and split Parquet files, and write the log to a folder by partitions of users.

    Rows and split are those of `leave_one_out(k_core(read_interactions(source)))`. The process
    holds the ids, and a chunk of the files or a partition at a time.

    Args:
        source: A folder of Parquet files, a file, a pattern, or a list of them.
        folder: Where the log is written, whole or not at all; an older one is replaced.
        partitions: Largest number of partitions.
        k_core: Fewest events of users and items; see `transcf.k_core`. None keeps all.
        by: What is held out: "auto", "time", "position" or "random"; see `leave_one_out`.
        seed: Seed of the random order.
        progress: Called with the name of each step.
        reading: Columns (`user`, `item`, `rating`, `timestamp`, `category`) and `min_rating`,
            as for `read_interactions`.

    Raises:
        DataError: One sentence about the first thing that is wrong.

    Example:
        >>> from transcf import synthesize
        >>> synthesize().to_frame().write_parquet("events.parquet")
        >>> prepare_parts("events.parquet", "prepared", partitions=4, k_core=5).how
        'the newest event of each user for test, the one before it for validation'
    """
    check_unforked("read a log")
    target = files.user_path(folder)
    _check_arguments(target, partitions, k_core, by, reading)
    min_rating = reading.get("min_rating")
    paths, roles = _find_files(source, reading)
    filters.has_ratings(min_rating, rated="rating" in roles)
    order, recipe = leaving_out(by, seed, timed="timestamp" in roles)
    with atomic_write_dir(target) as unfinished:
        scratch = unfinished / "scratch"
        (scratch / "events").mkdir(parents=True)
        progress("checking events")
        categories, unrated, are_dates = _check_events(paths, roles, scratch / "events")
        progress("distributing events to partitions")
        users, items, bounds = _distribute(scratch, partitions)
        names = [_PARTITION.format(number) for number in range(len(bounds) - 1)]
        progress("merging repeats")
        sums = _merge_all(scratch, names, min_rating)
        progress("filtering and splitting")
        kept = np.ones(len(users), bool), np.ones(len(items), bool)
        pairs = partial(_read_pairs, [scratch / name for name in names])
        for side in (0, 1):
            filters.drop_rare(pairs, kept, side, 1)
        missing = {"without_rating": unrated} if unrated else {}
        report = Report().then("read", rows=sums["rows"], **missing)
        report = with_unused_columns(report, files.parquet_schema(paths[0]), roles)
        report = report.then("merge repeats", events=sums["rows"], repeats=sums["repeats"])
        n_events = sums["rows"] - sums["repeats"]
        if low := sums["interactions"]:
            dropped = {"interactions": low, "without_rating": sums["without_rating"]}
            dropped |= {"users": int((~kept[0]).sum()), "items": int((~kept[1]).sum())}
            report = filters.report_low_ratings(report, min_rating, n_events, dropped)
        if k_core is not None:
            report = _k_core(pairs, kept, k_core, report, n_events - low)
        new_rows = offsets(kept[0]), offsets(kept[1])
        starts = new_rows[0][bounds].tolist()
        for name, (first, end), rows in zip(names, pairwise(starts), pairs(), strict=True):
            frame = pl.read_parquet(scratch / name, glob=False)
            frame = frame.filter(pl.Series(filters.kept_events(rows, kept)))
            _split(frame, new_rows, first, end, order, seed).write_parquet(unfinished / name)
        shutil.rmtree(scratch)
        written = pl.scan_parquet([unfinished / name for name in names], glob=False)
        tables = {
            _USERS: _counts(written, "user", users.filter(pl.Series(kept[0]))),
            _ITEMS: _counts(written, "item", items.filter(pl.Series(kept[1]))),
        }
        if "category" in roles:
            known = pl.col("item_id").is_in(tables[_ITEMS]["id"].implode())
            table = pl.concat(categories).filter(known).unique()
            tables[_CATEGORIES] = table.sort("item_id", "category")
        for name, table in tables.items():
            table.write_parquet(unfinished / name)
        manifest = {
            "version": _VERSION,
            "recipe": recipe,
            "report": _with_split(report, tables[_USERS]).to_list(),
            "log_report": report.to_list(),
            "timed": "timestamp" in roles,
            "times_are_dates": are_dates,
            "starts": starts,
            "files": {
                name: hashlib.sha256((unfinished / name).read_bytes()).hexdigest()
                for name in (*names, *tables)
            },
        }
        text = json.dumps(manifest, indent=1) + "\n"
        (unfinished / _MANIFEST).write_text(text, encoding="utf-8")
    return open_parts(target)


def _check_arguments(
    target: Path, partitions: int, k_core: int | None, by: Order, reading: Reading
) -> None:
    check_free(target, is_partitioned, "a log in parts")
    check_integer("partitions", partitions, 1)
    if k_core is not None:
        check_integer("k_core", k_core)
    if by == "paper":
        raise ParameterError("by='paper' looks at all events at once: prepare without partitions.")
    if others := [n for n in reading if n not in (*validate.ROLES, "min_rating")]:
        raise ParameterError(
            f"{others[0]} does not go with partitions, which are prepared from Parquet files "
            "alone: leave one out."
        )
    filters.check_min_rating(reading.get("min_rating"))


def _find_files(source: Any, given: Reading) -> tuple[list[Path], validate.Roles]:
    """Return Parquet files in the order of the log, and the column of each role."""
    specs = [source] if isinstance(source, str | PathLike) else list(source)
    paths = [path for spec in specs for path in files.files_of(spec)]
    others = [path for path in paths if path.suffix.lower() not in files.PARQUET]
    if others and others[0].exists():
        raise DataError(
            f"{others[0]} is no Parquet file: only Parquet is prepared in parts; write the log as "
            "Parquet, or prepare it without partitions."
        )
    sources = [files.file_source(path) for path in paths]
    first = sources[0]
    roles = validate.find_columns(first.columns, cast("Any", given), first.label, validate.ROLES)
    files.check_names(sources, roles)
    schemas = [files.parquet_schema(path) for path in paths]
    for column in roles.values():
        files.check_kinds(column, [schema[column] for schema in schemas], sources)
    return paths, roles


def _check_events(
    paths: Sequence[Path], roles: validate.Roles, target: Path
) -> tuple[list[pl.DataFrame], int, bool]:
    """Write checked values; return categories, missing ratings, and whether times are dates."""
    categories, unrated, are_dates, before = list[pl.DataFrame](), 0, set[bool](), 0
    for path in paths:
        first = 0
        with files.reading(path, "Parquet"):
            lazy = pl.scan_parquet(path, glob=False).select(roles.values())
            for chunk in lazy.collect_batches(chunk_size=CHUNK_ROWS, maintain_order=True):
                frame = by_role(chunk, roles)
                locate = partial(_name_row, path, first)
                places = {role: validate.Place(str(path), c, locate) for role, c in roles.items()}
                columns: dict[str, Any] = {
                    role: validate.checked_ids(frame[role], places[role]) for role in _IDS
                }
                values = validate.checked_values(frame, places, columns["item"])
                columns["position"] = pl.int_range(before, before + len(frame), eager=True)
                for name, column in (("rating", "ratings"), ("timestamp", "timestamps")):
                    if column in values:
                        columns[name] = values[column]
                unrated += int(np.isnan(values.get("ratings", 0)).sum())
                are_dates.add(values.get("times_are_dates", False))
                if "categories" in values:
                    categories.append(values["categories"])
                pl.DataFrame(columns).write_parquet(target / f"{before:012}.parquet")
                first, before = first + len(frame), before + len(frame)
    if not before:
        raise DataError(f"{paths[0]} is empty: it has columns but no rows.")
    if len(are_dates) > 1:
        raise DataError(
            f"Column {roles['timestamp']!r} holds dates in some rows and numbers in others: "
            "write all of its times in one way."
        )
    return categories, unrated, are_dates == {True}


def _distribute(scratch: Path, partitions: int) -> tuple[pl.Series, pl.Series, list[int]]:
    """Write events by ranges of users; return all ids, and the first user of each partition."""
    events = _scan(scratch / "events")
    users, items = (
        events.group_by(id=name).len().sort("id").collect(engine="streaming").with_row_index("row")
        for name in _IDS
    )
    ends = users["len"].cast(pl.Int64).cum_sum().to_numpy()
    wanted = np.arange(1, partitions) * ends[-1] / partitions
    bounds = np.unique([0, *(np.searchsorted(ends, wanted) + 1), len(ends)])
    partition = np.searchsorted(bounds, users["row"].to_numpy(), side="right") - 1
    for name, ids in (("user", users.with_columns(partition=partition)), ("item", items)):
        row = pl.col("row").cast(pl.Int32).alias(name)
        numbers = ids.lazy().drop("len")
        events = events.join(numbers, left_on=name, right_on="id").with_columns(row).drop("row")
    by_partition = pl.PartitionBy(scratch / "partitions", key="partition", include_key=False)
    events.sink_parquet(by_partition, mkdir=True, maintain_order=False, engine="streaming")
    shutil.rmtree(scratch / "events")
    return users["id"], items["id"], bounds.tolist()


def _merge_all(scratch: Path, names: Sequence[str], min_rating: float | None) -> Counter[str]:
    """Order events, merge repeated pairs and drop low ratings by partition; return counts."""
    sums = Counter[str]()
    for number, name in enumerate(names):
        source = scratch / "partitions" / f"partition={number}"
        frame = _scan(source).collect()
        shutil.rmtree(source)
        # The last of a pair is the one that `Interactions.from_rows` keeps.
        keys = {"timestamp": pl.col("timestamp"), "rating": pl.col("rating").fill_nan(None)}
        order = [key for column, key in keys.items() if column in frame.columns]
        merged = frame.sort("user", "item", *order, "position")
        merged = merged.unique(["user", "item"], keep="last", maintain_order=True)
        sums.update(rows=len(frame), repeats=len(frame) - len(merged))
        if "rating" in frame.columns and filters.has_ratings(min_rating, rated=True):
            ratings = merged["rating"].to_numpy()
            kept = filters.meets_min_rating(ratings, min_rating)
            unrated = int(np.isnan(ratings[~kept]).sum())
            sums.update(interactions=int((~kept).sum()), without_rating=unrated)
            merged = merged.filter(pl.Series(kept))
        merged.write_parquet(scratch / name)
    return sums


def _read_pairs(paths: Sequence[Path]) -> Iterator[tuple[Rows, Rows]]:
    """Yield the rows of users and items of each partition."""
    for path in paths:
        frame = pl.read_parquet(path, columns=["user", "item"], glob=False)
        yield frame["user"].to_numpy(), frame["item"].to_numpy()


def _k_core(
    pairs: filters.Events, kept: filters.Kept, least: int, report: Report, n_events: int
) -> Report:
    """Filter as `k_core` does."""
    before = [int(side.sum()) for side in kept]
    rounds = filters.drop_to_core(pairs, kept, least, least)
    left = sum(int(filters.kept_events(rows, kept).sum()) for rows in pairs())
    dropped = before[0] - int(kept[0].sum()), before[1] - int(kept[1].sum())
    settings = {"rounds": rounds, "least_users": least, "least_items": least}
    return filters.report_filter(report, "k-core", dropped, (n_events, left), **settings)


def _split(
    frame: pl.DataFrame, new_rows: Sequence[Counts], first: int, end: int, order: Order, seed: int
) -> pl.DataFrame:
    """Renumber users first..end-1 and items, and hold out events as `leave_one_out` does."""
    from transcf.kernels.evaluation import event_keys, last_two

    users, items = (
        new[frame[name].to_numpy()].astype(np.int32)
        for new, name in zip(new_rows, _IDS, strict=True)
    )
    indptr = offsets(np.bincount(users - first, minlength=end - first))
    if order == "random":
        keys: Counts = event_keys(indptr, items, seed, first)
    else:
        keys = frame["timestamp" if order == "time" else "position"].to_numpy().copy()
    test, validation = last_two(indptr, keys, LEAST_EVENTS)
    held_out = np.zeros(len(frame), np.uint8)
    held_out[validation] = _PARTS.index("validation")
    held_out[test] = _PARTS.index("test")
    numbers = pl.DataFrame({"user": users, "item": items, "part": held_out})
    return numbers.hstack(frame.drop("user", "item"))


def _counts(written: pl.LazyFrame, name: str, ids: pl.Series) -> pl.DataFrame:
    """Table `id, train, validation, test` with the events in each part of the split."""
    in_part = {part: (pl.col("part") == n).sum().cast(pl.Int32) for n, part in enumerate(_PARTS)}
    counted = written.group_by(name).agg(**in_part).sort(name).collect(engine="streaming")
    return counted.select(ids.alias("id"), *_PARTS)


def _with_split(report: Report, users: pl.DataFrame) -> Report:
    """Report the sizes of the parts, as `leave_one_out` does."""
    events = users.select(pl.sum_horizontal(_PARTS)).to_series()
    sizes, held_out = {part: users[part].sum() for part in _PARTS}, (events >= LEAST_EVENTS).sum()
    counts = {"users_held_out": held_out, "users_kept_whole": len(events) - held_out}
    return report.then("split", **sizes, **counts, users_without_training=0)


def _name_row(path: Path, first: int, row: int) -> str:
    return f"{path}: row {first + row + 1:,}"


def _scan(folder: Path) -> pl.LazyFrame:
    return pl.scan_parquet(sorted(folder.iterdir()), glob=False, hive_partitioning=False)


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} is missing or damaged: prepare {path.parent} again.")
