"""`prepare_parts`: filter and split Parquet files that are larger than memory.

Rows, filters and split are those of `read_interactions`, `k_core` and `leave_one_out`. Ids are
numbered, events distributed to partitions and filters counted by polars' streaming engine. Chunks
of the files and partitions of users are independent tasks, which a cluster may run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar, Unpack, cast

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from transcf.data.atomic import atomic_write_dir
from transcf.data.files import check_kinds, check_names, file_source, parquet_schema, unreadable
from transcf.data.filters import (
    check_core,
    check_min_rating,
    drop_low_ratings,
    has_ratings,
    meets_min_rating,
    nothing_left,
)
from transcf.data.ordering import order_by_user
from transcf.data.partitioned.log import (
    CATEGORIES,
    ITEMS,
    PARTS,
    USERS,
    Counts,
    PartitionedLog,
    digest_of,
    is_partitioned,
    offsets,
    open_parts,
    partition_name,
    write_manifest,
)
from transcf.data.paths import PARQUET, files_of, user_path
from transcf.data.readers import Reading
from transcf.data.report import Report, with_unused_columns
from transcf.data.splitters import LEAST_EVENTS, Order, leaving_out
from transcf.data.tables import by_role
from transcf.data.validate import (
    ROLES,
    Column,
    Place,
    RatingRule,
    Role,
    Roles,
    check_blanks,
    check_rule,
    find_columns,
    plain_ids,
    to_categories,
    to_ratings,
    to_times,
)
from transcf.errors import DataError, ParameterError, shown
from transcf.parallel import check_unforked

T = TypeVar("T")
#: Rows that are read at once.
PIECE_ROWS = 1 << 21
#: Options of `read_interactions` that apply to partitions.
READING = (*ROLES, "ratings", "min_rating")
#: Calls a function with each of some tasks, which share nothing but files, and returns the results
#: in their order. The first argument is a title for a progress bar.
Run: TypeAlias = Callable[[str, Callable[..., Any], Sequence[tuple[Any, ...]]], Iterable[Any]]


def one_by_one(title: str, work: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> Iterator[T]:
    """Run one task after the other in this process."""
    for task in tasks:
        yield work(*task)


def prepare_parts(
    source: Any,
    folder: str | Path,
    *,
    partitions: int = 16,
    k_core: int | None = None,
    paper_filter: bool = False,
    by: Order = "auto",
    seed: int = 0,
    run: Run = one_by_one,
    piece_rows: int = PIECE_ROWS,
    **reading: Unpack[Reading],
) -> PartitionedLog:
    """Read, filter and split Parquet files, and write the log to a folder by partitions of users.

    Rows and split are those of `leave_one_out(k_core(read_interactions(source)))`. A process holds
    the ids, and a chunk of the files or a partition at a time.

    Args:
        source: A folder of Parquet files, a file, a pattern, or a list of them.
        folder: Where the log is written, whole or not at all; an older one is replaced.
        partitions: Largest number of partitions.
        k_core: Fewest events of users and items; see `transcf.k_core`. None keeps all.
        paper_filter: Whether to filter as `transcf.paper_filter` does.
        by: What is held out; see `leave_one_out`.
        seed: Seed of the random order.
        run: Runs the tasks; see `transcf.distributed.cluster.ClusterTasks`.
        piece_rows: Rows of a file that are read at once.
        reading: Columns (`user`, `item`, `rating`, `timestamp`, `category`), `ratings` and
            `min_rating`, as for `read_interactions`.

    Raises:
        DataError: One sentence about the first thing that is wrong.

    Example:
        >>> from transcf import synthesize
        >>> synthesize().to_frame().write_parquet("events.parquet")
        >>> prepare_parts("events.parquet", "prepared", partitions=4, k_core=5).how
        'the newest event of each user for test, the one before it for validation'
    """
    check_unforked("read a log")
    target = user_path(folder)
    is_used = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if is_used and not is_partitioned(target):
        raise DataError(
            f"{target} exists and is not a log in parts: choose another folder or remove it."
        )
    for name, value in (("partitions", partitions), ("piece_rows", piece_rows)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ParameterError(f"{name}={shown(value)} is not allowed; give a number from 1 on.")
    if k_core is not None:
        check_core("k_core", k_core)
        if paper_filter:
            raise ParameterError("k_core and paper_filter are two filters: give one of them.")
    other = next((name for name in reading if name not in READING), None)
    if other is not None:
        raise ParameterError(
            f"{other} does not go with partitions, which are prepared from Parquet files alone: "
            "leave one out."
        )
    ratings, min_rating = reading.get("ratings", "any"), reading.get("min_rating")
    check_min_rating(min_rating)
    given = cast("dict[Role, Column]", {role: reading.get(role) for role in ROLES})
    roles, chunks = find_chunks(source, given, piece_rows)
    check_rule(ratings, roles, str(chunks[0].path))
    has_ratings(min_rating, rated="rating" in roles)
    order, recipe = leaving_out(by, seed, timed="timestamp" in roles)
    with atomic_write_dir(target) as unfinished:
        scratch = unfinished / "scratch"
        for name in ("events", "merged"):
            (scratch / name).mkdir(parents=True)
        checking = [(chunk, roles, ratings, scratch / "events") for chunk in chunks]
        checked = list(run("checking events", _check_events, checking))
        categories, unrated, are_dates = zip(*checked, strict=True)
        if len(set(are_dates)) > 1:
            raise DataError(
                f"Column {roles['timestamp']!r} holds dates in some rows and numbers in others: "
                "write all of its times in one way."
            )
        users, items, bounds = _distribute(scratch, partitions)
        merging = [
            (scratch, number, first, end, len(items), min_rating)
            for number, (first, end) in enumerate(pairwise(bounds))
        ]
        sums = np.sum(list(run("merging repeats", _merge, merging)), axis=0)
        shutil.rmtree(scratch / "partitions")
        events = _scan(scratch / "merged")
        left = _with_enough(events, 1, 1)
        missing = {"without_rating": sum(unrated)} if any(unrated) else {}
        report = Report().then("read", rows=int(sums[0]), **missing)
        report = with_unused_columns(report, parquet_schema(chunks[0].path), roles)
        report = _merge_report(report, sums, min_rating, len(users), len(items), left)
        if k_core is not None or paper_filter:
            left, report = _filtered(events, left, k_core, report)
        starts = np.searchsorted(left.users, bounds).tolist()
        ranks = _ranks(events, left, items) if order == "paper" else np.empty(0, np.int64)
        shared = left.items, unfinished, order, seed, ranks
        writing = [
            (scratch, number, left.users[first:end], first, *shared)
            for number, (first, end) in enumerate(pairwise(starts))
        ]
        names = [partition_name(number) for number in range(len(writing))]
        files = dict(zip(names, run("writing partitions", _write, writing), strict=True))
        written = pl.scan_parquet([unfinished / name for name in names], glob=False)
        tables = {
            USERS: _counts(written, "user", users["id"].gather(pl.Series(left.users))),
            ITEMS: _counts(written, "item", items["id"].gather(pl.Series(left.items))),
        }
        if "category" in roles:
            known = pl.col("item_id").is_in(tables[ITEMS]["id"].implode())
            table = pl.concat(categories).unique().sort("item_id", "category")
            tables[CATEGORIES] = table.filter(known)
        for name, table in tables.items():
            table.write_parquet(unfinished / name)
            files[name] = digest_of(unfinished / name)
        shutil.rmtree(scratch)
        write_manifest(
            unfinished,
            recipe=recipe,
            report=_with_split(report, tables[USERS]).to_list(),
            log_report=report.to_list(),
            timed="timestamp" in roles,
            times_are_dates=are_dates[0],
            starts=starts,
            files=files,
        )
    return open_parts(target)


# -- chunks of files -------------------------------------------------------------------------------


class Chunk(NamedTuple):
    """The rows first..first+rows-1 of a file; the log has other rows before them."""

    number: int
    path: Path
    first: int
    rows: int
    before: int

    def read(self, roles: Roles) -> pl.DataFrame:
        """Read the columns of some roles, and name them after these."""
        columns = list(roles.values())
        try:
            lazy = pl.scan_parquet(self.path, glob=False).select(columns)
            return by_role(lazy.slice(self.first, self.rows).collect(), roles)
        except (PolarsError, PanicException, OSError) as problem:
            raise unreadable(self.path, "Parquet", problem) from problem

    def place(self, column: str) -> Place:
        """Return the place of a column, for error messages."""
        first = self.first + 1
        return Place(str(self.path), column, lambda row: f"{self.path}: row {first + row:,}")


def find_chunks(
    source: Any, given: Mapping[Role, Column], piece_rows: int
) -> tuple[Roles, list[Chunk]]:
    """Return the column of each role, and the chunks of Parquet files in the order of the log.

    Raises:
        DataError: There are other files than Parquet, or their columns do not fit together.
    """
    specs = [source] if isinstance(source, str | PathLike) else list(source)
    paths = [path for spec in specs for path in files_of(spec)]
    other = next((path for path in paths if path.suffix.lower() not in PARQUET), None)
    if other is not None and other.exists():
        raise DataError(
            f"{other} is no Parquet file: only Parquet is prepared in parts; write the log as "
            f"Parquet, or prepare it without partitions."
        )
    sources = [file_source(path) for path in paths]
    roles = find_columns(sources[0].columns, given, sources[0].label, ROLES)
    check_names(sources, roles)
    schemas = [parquet_schema(path) for path in paths]
    for column in roles.values():
        check_kinds(column, [schema[column] for schema in schemas], sources)
    sizes = [pl.scan_parquet(path, glob=False).select(pl.len()).collect().item() for path in paths]
    if not sum(sizes):
        raise DataError(f"{sources[0].label} is empty: it has columns but no rows.")
    spans = [
        (path, first, min(piece_rows, size - first), before + first)
        for path, size, before in zip(paths, sizes, accumulate(sizes, initial=0), strict=False)
        for first in range(0, size, piece_rows)
    ]
    return roles, [Chunk(number, *span) for number, span in enumerate(spans)]


def _check_events(
    chunk: Chunk, roles: Roles, rule: RatingRule, target: Path
) -> tuple[pl.DataFrame | None, int, bool]:
    """Check the values of a chunk as the readers do, and write them in plain types.

    Returns:
        Categories of items, the number of missing ratings, and whether times are dates.
    """
    frame = chunk.read(roles)
    places = {role: chunk.place(column) for role, column in roles.items()}
    columns: dict[str, Any] = {}
    for role in ("user", "item"):
        columns[role] = plain_ids(frame[role], places[role])
        if columns[role].dtype == pl.String:
            check_blanks(columns[role].unique(), columns[role], places[role])
    columns["position"] = pl.int_range(chunk.before, chunk.before + len(frame), eager=True)
    categories, without_rating, are_dates = None, 0, False
    if "rating" in roles:
        columns["rating"] = to_ratings(frame["rating"], places["rating"], rule)
        without_rating = int(np.isnan(columns["rating"]).sum())
    if "timestamp" in roles:
        columns["timestamp"], are_dates = to_times(frame["timestamp"], places["timestamp"])
    if "category" in roles:
        categories = to_categories(columns["item"], frame["category"], places["category"])
    pl.DataFrame(columns).write_parquet(target / f"{chunk.number:06}.parquet")
    return categories, without_rating, are_dates


# -- partitions of users ---------------------------------------------------------------------------


def _distribute(scratch: Path, partitions: int) -> tuple[pl.DataFrame, pl.DataFrame, list[int]]:
    """Number the ids in ascending order, and write the events by partitions of users.

    Partitions are ranges of users with about as many events each.

    Returns:
        Tables with the ids of users and items, and the first user of each partition.
    """
    events = _scan(scratch / "events")
    users = events.group_by(id="user").len().sort("id").collect(engine="streaming")
    items = events.select(id="item").unique().sort("id").collect(engine="streaming")
    ends = users["len"].cast(pl.Int64).cum_sum().to_numpy()
    wanted = np.arange(1, partitions) * ends[-1] / partitions
    bounds = np.unique([0, *(np.searchsorted(ends, wanted) + 1), len(ends)])
    rows = np.arange(len(users), dtype=np.int32)
    numbered_users = users.select(
        pl.col("id"),
        user_row=pl.Series(rows),
        partition=pl.Series(np.searchsorted(bounds, rows, side="right") - 1),
    )
    numbered_items = items.with_row_index("item_row").cast({"item_row": pl.Int32})
    numbered = (
        events.join(numbered_users.lazy(), left_on="user", right_on="id")
        .join(numbered_items.lazy(), left_on="item", right_on="id")
        .drop("user", "item")
        .rename({"user_row": "user", "item_row": "item"})
    )
    by_partition = pl.PartitionBy(scratch / "partitions", key="partition", include_key=False)
    numbered.sink_parquet(by_partition, mkdir=True, maintain_order=False, engine="streaming")
    shutil.rmtree(scratch / "events")
    return users, items, bounds.tolist()


def _merge(
    scratch: Path, number: int, first: int, end: int, n_items: int, min_rating: float | None
) -> tuple[int, int, int, int]:
    """Order the events of a partition, merge repeated pairs, and drop low ratings.

    As `Interactions.from_rows` and `filter_min_rating` do it for a whole log.

    Returns:
        Number of events, repeats, dropped events, and dropped ones without a rating.
    """
    source = scratch / "partitions" / f"partition={number}"  # kept: a task may be repeated
    frame = _scan(source).sort("position").collect()
    ratings, times = _array(frame, "rating"), _array(frame, "timestamp")
    users = _array(frame, "user") - np.int32(first)
    items = _array(frame, "item")
    ordered = order_by_user(users, items, end - first, n_items, ratings, times)
    merged, low, unrated = frame[ordered.positions], 0, 0
    if has_ratings(min_rating, rated=ratings is not None) and ordered.ratings is not None:
        kept = meets_min_rating(ordered.ratings, min_rating)
        low, unrated = int((~kept).sum()), int(np.isnan(ordered.ratings[~kept]).sum())
        merged = merged.filter(pl.Series(kept))
    merged.write_parquet(_merged_file(scratch, number))
    return len(frame), len(frame) - len(ordered.positions), low, unrated


def _write(
    scratch: Path, number: int, users: Counts, first: int, items: Counts, target: Path,
    order: Order, seed: int, ranks: Counts,
) -> str:  # fmt: skip
    """Hold out two events of each user of a partition, write it, and return its SHA-256.

    `users` and `items` are the old rows of those that are left; the new row of the first user is
    `first`. `order`, `seed` and `ranks` (the places of items in the order of the paper) say which
    events are held out, as in `leave_one_out`.
    """
    from transcf.kernels.splitting import event_keys, last_two

    frame = pl.read_parquet(_merged_file(scratch, number), glob=False)
    for name, rows, start in (("user", users, first), ("item", items, 0)):
        new = np.arange(start, start + len(rows), dtype=np.int32)
        numbers = pl.DataFrame({name: rows, "new": new})
        frame = frame.join(numbers, on=name, maintain_order="left")
        frame = frame.with_columns(pl.col("new").alias(name)).drop("new")
    indptr = offsets(np.bincount(_array(frame, "user") - first, minlength=len(users)))
    if order == "random":
        keys: Counts = event_keys(indptr, _array(frame, "item"), seed, first)
    elif order == "paper":
        keys = ranks[_array(frame, "item")]
    else:
        keys = _array(frame, "timestamp" if order == "time" else "position")
    test, validation = last_two(indptr, keys, LEAST_EVENTS)
    parts = np.zeros(len(frame), np.uint8)
    parts[validation], parts[test] = PARTS.index("validation"), PARTS.index("test")
    others = [name for name in ("position", "rating", "timestamp") if name in frame.columns]
    table = frame.select("user", "item", pl.Series("part", parts), *others)
    table.write_parquet(target / partition_name(number))
    return digest_of(target / partition_name(number))


def _array(frame: pl.DataFrame, name: str) -> Any:
    return frame[name].to_numpy().copy() if name in frame.columns else None


def _scan(folder: Path) -> pl.LazyFrame:
    return pl.scan_parquet(sorted(folder.iterdir()), glob=False, hive_partitioning=False)


def _merged_file(scratch: Path, number: int) -> Path:
    return scratch / "merged" / f"{number:06}.parquet"


# -- filters and counts ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Left:
    """Users and items that are left, by their rows in ascending order, and their events."""

    users: Counts
    items: Counts
    n_events: int

    def of(self, events: pl.LazyFrame) -> pl.LazyFrame:
        """Return their events."""
        for name, rows in (("user", self.users), ("item", self.items)):
            events = events.join(pl.LazyFrame({name: rows}), on=name, how="semi")
        return events


def _with_enough(events: pl.LazyFrame, least_users: int, least_items: int) -> _Left:
    """Return users with enough events, and items with enough events of these."""

    def enough(some: pl.LazyFrame, name: str, least: int) -> pl.DataFrame:
        counted = some.group_by(name).len().filter(pl.col("len") >= least)
        return counted.sort(name).collect(engine="streaming")

    users = enough(events, "user", least_users).select("user")
    items = enough(events.join(users.lazy(), on="user", how="semi"), "item", least_items)
    return _Left(users["user"].to_numpy(), items["item"].to_numpy(), int(items["len"].sum()))


def _filtered(
    events: pl.LazyFrame, left: _Left, k_core: int | None, report: Report
) -> tuple[_Left, Report]:
    """Filter as `k_core` does, or as `paper_filter` does for None."""
    before, settings, step = left, dict[str, int](), "paper filter"
    if k_core is None:
        left = _with_enough(left.of(events), 5, 5)
        left = _with_enough(left.of(events), 3, 1)
    else:
        rounds, n_before, step = -1, -1, "k-core"
        while len(left.users) + len(left.items) != n_before:
            rounds, n_before = rounds + 1, len(left.users) + len(left.items)
            left = _with_enough(left.of(events), k_core, k_core)
        settings = {"rounds": rounds, "least_users": k_core, "least_items": k_core}
    if not left.n_events:
        raise nothing_left(step, before.n_events)
    return left, report.then(
        step,
        **settings,
        users=len(before.users) - len(left.users),
        items=len(before.items) - len(left.items),
        interactions=before.n_events - left.n_events,
    )


def _ranks(events: pl.LazyFrame, left: _Left, items: pl.DataFrame) -> Counts:
    """(n_items,) place of each item that is left in the order of the paper."""
    if items["id"].dtype != pl.String:
        return np.arange(len(left.items))
    first = left.of(events).group_by("item").agg(pl.col("position").min()).sort("item")
    return first.collect(engine="streaming")["position"].to_numpy().copy()


def _counts(written: pl.LazyFrame, name: str, ids: pl.Series) -> pl.DataFrame:
    """Table `id, train, validation, test` with the events in each part of the split."""
    in_part = {
        part: (pl.col("part") == number).sum().cast(pl.Int32) for number, part in enumerate(PARTS)
    }
    counted = written.group_by(name).agg(**in_part).sort(name).collect(engine="streaming")
    return counted.select(ids.alias("id"), *PARTS)


# -- reports ---------------------------------------------------------------------------------------


def _merge_report(
    report: Report, sums: Counts, min_rating: float | None, n_users: int, n_items: int, left: _Left
) -> Report:
    """Report what was merged, and dropped for its rating."""
    events, repeats, low, unrated = sums.tolist()
    report = report.then("merge repeats", events=events, repeats=repeats)
    if not low:
        return report
    return drop_low_ratings(
        report,
        min_rating,
        of=events - repeats,
        interactions=low,
        without_rating=unrated,
        users=n_users - len(left.users),
        items=n_items - len(left.items),
    )


def _with_split(report: Report, users: pl.DataFrame) -> Report:
    """Report the sizes of the parts, as `leave_one_out` does."""
    events = users.select(pl.sum_horizontal(PARTS)).to_series()
    held_out = int((events >= LEAST_EVENTS).sum())
    return report.then(
        "split",
        **{part: int(users[part].sum()) for part in PARTS},
        users_held_out=held_out,
        users_kept_whole=len(events) - held_out,
        users_without_training=0,
    )
