"""`prepare_parts`: filter and split Parquet files that are larger than memory.

Rows, filters and split are those of `read_interactions`, `k_core` and `leave_one_out`. polars'
streaming engine numbers ids, counts for the filters and distributes events to partitions of users;
values are checked by chunks of files, and repeated pairs are merged by partition.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Unpack, cast

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from transcf.data.atomic import atomic_write_dir
from transcf.data.csr import offsets
from transcf.data.files import (
    PARQUET,
    check_kinds,
    check_names,
    file_source,
    files_of,
    parquet_schema,
    unreadable,
    user_path,
)
from transcf.data.filters import (
    check_core,
    check_min_rating,
    drop_low_ratings,
    has_ratings,
    meets_min_rating,
    nothing_left,
)
from transcf.data.ordering import order_by_user
from transcf.data.partitioned import (
    CATEGORIES,
    ITEMS,
    MANIFEST,
    PARTS,
    USERS,
    VERSION,
    Counts,
    PartitionedLog,
    digest_of,
    is_partitioned,
    open_parts,
    partition_name,
)
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

#: Rows that are checked at once.
CHUNK_ROWS = 1 << 21
#: Options of `read_interactions` that apply to partitions.
READING = (*ROLES, "ratings", "min_rating")


def prepare_parts(
    source: Any,
    folder: str | Path,
    *,
    partitions: int = 16,
    k_core: int | None = None,
    paper_filter: bool = False,
    by: Order = "auto",
    seed: int = 0,
    progress: Callable[[str], object] = lambda step: None,
    chunk_rows: int = CHUNK_ROWS,
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
        paper_filter: Whether to filter as `transcf.paper_filter` does.
        by: What is held out; see `leave_one_out`.
        seed: Seed of the random order.
        progress: Called with the name of each step.
        chunk_rows: Rows that are checked at once.
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
    _check_arguments(target, partitions, chunk_rows, k_core, paper_filter, reading)
    rule, min_rating = reading.get("ratings", "any"), reading.get("min_rating")
    paths, roles = _find_files(source, cast("Any", reading))
    check_rule(rule, roles, str(paths[0]))
    has_ratings(min_rating, rated="rating" in roles)
    order, recipe = leaving_out(by, seed, timed="timestamp" in roles)
    with atomic_write_dir(target) as unfinished:
        scratch = unfinished / "scratch"
        progress("checking events")
        checked = _check_events(paths, roles, rule, chunk_rows, scratch / "events")
        progress("distributing events to partitions")
        users, items, bounds = _distribute(scratch, partitions)
        progress("merging repeats")
        sums = _merge_all(scratch, bounds, len(items), min_rating)
        events, n_merged = _scan(scratch / "merged"), int(sums[0] - sums[1])
        left = _with_enough(events, 1, 1)
        missing = {"without_rating": checked.unrated} if checked.unrated else {}
        report = Report().then("read", rows=int(sums[0]), **missing)
        report = with_unused_columns(report, parquet_schema(paths[0]), roles)
        report = report.then("merge repeats", events=int(sums[0]), repeats=int(sums[1]))
        if sums[2]:
            report = drop_low_ratings(
                report,
                min_rating,
                of=n_merged,
                interactions=int(sums[2]),
                without_rating=int(sums[3]),
                users=len(users) - len(left.users),
                items=len(items) - len(left.items),
            )
        progress("filtering and splitting")
        if k_core is not None or paper_filter:
            left, report = _filtered(events, left, k_core, report)
        starts = np.searchsorted(left.users, bounds).tolist()
        ranks = _ranks(events, left, items) if order == "paper" else np.empty(0, np.int64)
        names = [partition_name(number) for number in range(len(starts) - 1)]
        for number, (first, end) in enumerate(pairwise(starts)):
            merged = pl.read_parquet(_file(scratch / "merged", number), glob=False)
            own = left._replace(users=left.users[first:end])
            _split(merged, own, first, order, seed, ranks).write_parquet(unfinished / names[number])
        shutil.rmtree(scratch)
        written = pl.scan_parquet([unfinished / name for name in names], glob=False)
        tables = {
            USERS: _counts(written, "user", users.gather(pl.Series(left.users))),
            ITEMS: _counts(written, "item", items.gather(pl.Series(left.items))),
        }
        if "category" in roles:
            known = pl.col("item_id").is_in(tables[ITEMS]["id"].implode())
            tables[CATEGORIES] = checked.categories.filter(known)
        for name, table in tables.items():
            table.write_parquet(unfinished / name)
        manifest = {
            "version": VERSION,
            "recipe": recipe,
            "report": _with_split(report, tables[USERS]).to_list(),
            "log_report": report.to_list(),
            "timed": "timestamp" in roles,
            "times_are_dates": checked.are_dates,
            "starts": starts,
            "files": {name: digest_of(unfinished / name) for name in (*names, *tables)},
        }
        text = json.dumps(manifest, indent=1) + "\n"
        (unfinished / MANIFEST).write_text(text, encoding="utf-8")
    return open_parts(target)


def _check_arguments(
    target: Path,
    partitions: int,
    chunk_rows: int,
    k_core: int | None,
    paper_filter: bool,
    reading: Reading,
) -> None:
    is_used = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if is_used and not is_partitioned(target):
        raise DataError(
            f"{target} exists and is not a log in parts: choose another folder or remove it."
        )
    for name, value in (("partitions", partitions), ("chunk_rows", chunk_rows)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ParameterError(f"{name}={shown(value)} is not allowed; give a number from 1 on.")
    if k_core is not None:
        check_core("k_core", k_core)
        if paper_filter:
            raise ParameterError("k_core and paper_filter are two filters: give one of them.")
    if other := next((name for name in reading if name not in READING), None):
        raise ParameterError(
            f"{other} does not go with partitions, which are prepared from Parquet files alone: "
            "leave one out."
        )
    check_min_rating(reading.get("min_rating"))


def _find_files(source: Any, given: dict[Role, Column]) -> tuple[list[Path], Roles]:
    """Return Parquet files in the order of the log, and the column of each role.

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
    if not pl.scan_parquet(paths, glob=False).select(pl.len()).collect().item():
        raise DataError(f"{sources[0].label} is empty: it has columns but no rows.")
    return paths, roles


class _Checked(NamedTuple):
    """Categories of items, the number of missing ratings, and whether times are dates."""

    categories: pl.DataFrame
    unrated: int
    are_dates: bool


def _check_events(
    paths: Sequence[Path], roles: Roles, rule: RatingRule, chunk_rows: int, target: Path
) -> _Checked:
    """Check values as the readers do, and write them in plain types, a chunk at a time."""
    target.mkdir(parents=True)
    categories, unrated, are_dates, before = list[pl.DataFrame](), 0, set[bool](), 0
    for path in paths:
        first = 0
        try:
            lazy = pl.scan_parquet(path, glob=False).select(roles.values())
            for chunk in lazy.collect_batches(chunk_size=chunk_rows, maintain_order=True):
                frame = by_role(chunk, roles)
                places = {role: _place(path, roles[role], first) for role in roles}
                columns: dict[str, Any] = {
                    role: plain_ids(frame[role], places[role]) for role in ("user", "item")
                }
                for role in ("user", "item"):
                    if columns[role].dtype == pl.String:
                        check_blanks(columns[role].unique(), columns[role], places[role])
                columns["position"] = pl.int_range(before, before + len(frame), eager=True)
                if "rating" in roles:
                    columns["rating"] = to_ratings(frame["rating"], places["rating"], rule)
                    unrated += int(np.isnan(columns["rating"]).sum())
                if "timestamp" in roles:
                    times, dated = to_times(frame["timestamp"], places["timestamp"])
                    columns["timestamp"] = times
                    are_dates.add(dated)
                if "category" in roles:
                    found = to_categories(columns["item"], frame["category"], places["category"])
                    categories.append(found)
                pl.DataFrame(columns).write_parquet(target / f"{before:012}.parquet")
                first, before = first + len(frame), before + len(frame)
        except (PolarsError, PanicException, OSError) as problem:
            raise unreadable(path, "Parquet", problem) from problem
    if len(are_dates) > 1:
        raise DataError(
            f"Column {roles['timestamp']!r} holds dates in some rows and numbers in others: "
            "write all of its times in one way."
        )
    table = pl.concat(categories).unique().sort("item_id", "category") if categories else None
    return _Checked(pl.DataFrame() if table is None else table, unrated, are_dates == {True})


def _place(path: Path, column: str, first: int) -> Place:
    return Place(str(path), column, lambda row: f"{path}: row {first + row + 1:,}")


def _distribute(scratch: Path, partitions: int) -> tuple[pl.Series, pl.Series, list[int]]:
    """Number the ids in ascending order, and write the events by partitions of users.

    Partitions are ranges of users with about as many events each.

    Returns:
        Ids of users and items, and the first user of each partition.
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
    return users["id"], items["id"], bounds.tolist()


def _merge_all(
    scratch: Path, bounds: Sequence[int], n_items: int, min_rating: float | None
) -> Counts:
    """Order the events of each partition, merge repeated pairs, and drop low ratings.

    As `Interactions.from_rows` and `filter_min_rating` do it for a whole log.

    Returns:
        Number of events, repeats, dropped events, and dropped ones without a rating.
    """
    sums = np.zeros(4, np.int64)
    (scratch / "merged").mkdir()
    for number, (first, end) in enumerate(pairwise(bounds)):
        source = scratch / "partitions" / f"partition={number}"
        frame = _scan(source).sort("position").collect()
        shutil.rmtree(source)
        users, ratings = _array(frame, "user") - np.int32(first), _array(frame, "rating")
        items, times = _array(frame, "item"), _array(frame, "timestamp")
        ordered = order_by_user(users, items, end - first, n_items, ratings, times)
        merged = frame[ordered.positions]
        sums[:2] += len(frame), len(frame) - len(merged)
        if ordered.ratings is not None and has_ratings(min_rating, rated=True):
            kept = meets_min_rating(ordered.ratings, min_rating)
            sums[2:] += (~kept).sum(), np.isnan(ordered.ratings[~kept]).sum()
            merged = merged.filter(pl.Series(kept))
        merged.write_parquet(_file(scratch / "merged", number))
    return sums


def _split(
    frame: pl.DataFrame, left: _Left, first: int, order: Order, seed: int, ranks: Counts
) -> pl.DataFrame:
    """Hold out two events of each user of a partition, and return its table.

    `left` has the old rows of the partition's users and of all items; the new row of the first
    user is `first`. `order`, `seed` and `ranks` (the places of items in the order of the paper)
    say which events are held out, as in `leave_one_out`.
    """
    from transcf.kernels.splitting import event_keys, last_two

    for name, rows, start in (("user", left.users, first), ("item", left.items, 0)):
        new = np.arange(start, start + len(rows), dtype=np.int32)
        frame = frame.join(pl.DataFrame({name: rows, "new": new}), on=name, maintain_order="left")
        frame = frame.with_columns(pl.col("new").alias(name)).drop("new")
    indptr = offsets(np.bincount(_array(frame, "user") - first, minlength=len(left.users)))
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
    return frame.select("user", "item", pl.Series("part", parts), *others)


def _array(frame: pl.DataFrame, name: str) -> Any:
    return frame[name].to_numpy().copy() if name in frame.columns else None


def _scan(folder: Path) -> pl.LazyFrame:
    return pl.scan_parquet(sorted(folder.iterdir()), glob=False, hive_partitioning=False)


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.parquet"


class _Left(NamedTuple):
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


def _ranks(events: pl.LazyFrame, left: _Left, items: pl.Series) -> Counts:
    """(n_items,) place of each item that is left in the order of the paper."""
    if items.dtype != pl.String:
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
