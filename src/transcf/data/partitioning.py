"""`prepare_parts`: filter and split Parquet files that are larger than memory.

Rows, filters and split are those of `read_interactions`, `k_core` and `leave_one_out`. polars'
streaming engine numbers ids, counts for the filter and distributes events to partitions of users;
values are checked by chunks of files, and repeated pairs are merged by partition.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Unpack, cast

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from transcf.data import files, filters, validate
from transcf.data import partitioned as parts
from transcf.data.atomic import atomic_write_dir, check_free
from transcf.data.csr import offsets, order_by_user
from transcf.data.readers import Reading
from transcf.data.report import Report, with_unused_columns
from transcf.data.splitters import LEAST_EVENTS, Order, leaving_out
from transcf.data.tables import by_role
from transcf.errors import DataError, ParameterError, shown
from transcf.parallel import check_unforked

#: Rows that are checked at once.
CHUNK_ROWS = 1 << 21


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
) -> parts.PartitionedLog:
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
    target = files.user_path(folder)
    _check_arguments(target, partitions, k_core, by, reading)
    rule, min_rating = reading.get("ratings", "any"), reading.get("min_rating")
    paths, roles = _find_files(source, reading)
    validate.check_rule(rule, roles, str(paths[0]))
    filters.has_ratings(min_rating, rated="rating" in roles)
    order, recipe = leaving_out(by, seed, timed="timestamp" in roles)
    with atomic_write_dir(target) as unfinished:
        scratch = unfinished / "scratch"
        progress("checking events")
        categories, unrated, are_dates = _check_events(paths, roles, rule, scratch / "events")
        progress("distributing events to partitions")
        users, items, bounds = _distribute(scratch, partitions)
        progress("merging repeats")
        sums = _merge_all(scratch, bounds, len(items), min_rating)
        progress("filtering and splitting")
        events = _scan(scratch / "merged")
        left = _with_enough(events, 1)
        missing = {"without_rating": unrated} if unrated else {}
        report = Report().then("read", rows=sums["rows"], **missing)
        report = with_unused_columns(report, files.parquet_schema(paths[0]), roles)
        report = report.then("merge repeats", events=sums["rows"], repeats=sums["repeats"])
        if sums["interactions"]:
            dropped = {name: sums[name] for name in ("interactions", "without_rating")}
            dropped["users"] = len(users) - len(left.users)
            dropped["items"] = len(items) - len(left.items)
            n_merged = sums["rows"] - sums["repeats"]
            report = filters.drop_low_ratings(report, min_rating, n_merged, dropped)
        if k_core is not None:
            left, report = _k_core(events, left, k_core, report)
        starts = np.searchsorted(left.users, bounds).tolist()
        names = [parts.partition_name(number) for number in range(len(starts) - 1)]
        for number, (first, end) in enumerate(pairwise(starts)):
            merged = pl.read_parquet(_file(scratch / "merged", number), glob=False)
            own = left._replace(users=left.users[first:end])
            _split(merged, own, first, order, seed).write_parquet(unfinished / names[number])
        shutil.rmtree(scratch)
        written = pl.scan_parquet([unfinished / name for name in names], glob=False)
        tables = {
            parts.USERS: _counts(written, "user", users.gather(pl.Series(left.users))),
            parts.ITEMS: _counts(written, "item", items.gather(pl.Series(left.items))),
        }
        if "category" in roles:
            known = pl.col("item_id").is_in(tables[parts.ITEMS]["id"].implode())
            tables[parts.CATEGORIES] = categories.filter(known)
        for name, table in tables.items():
            table.write_parquet(unfinished / name)
        manifest = {
            "version": parts.VERSION,
            "recipe": recipe,
            "report": _with_split(report, tables[parts.USERS]).to_list(),
            "log_report": report.to_list(),
            "timed": "timestamp" in roles,
            "times_are_dates": are_dates,
            "starts": starts,
            "files": {name: parts.digest_of(unfinished / name) for name in (*names, *tables)},
        }
        text = json.dumps(manifest, indent=1) + "\n"
        (unfinished / parts.MANIFEST).write_text(text, encoding="utf-8")
    return parts.open_parts(target)


def _check_arguments(
    target: Path, partitions: int, k_core: int | None, by: Order, reading: Reading
) -> None:
    check_free(target, parts.is_partitioned, "a log in parts")
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise ParameterError(
            f"partitions={shown(partitions)} is not allowed; give a number from 1 on."
        )
    if k_core is not None:
        filters.check_core("k_core", k_core)
    if by == "paper":
        raise ParameterError("by='paper' looks at all events at once: prepare without partitions.")
    other = next((n for n in reading if n not in (*validate.ROLES, "ratings", "min_rating")), None)
    if other is not None:
        raise ParameterError(
            f"{other} does not go with partitions, which are prepared from Parquet files alone: "
            "leave one out."
        )
    filters.check_min_rating(reading.get("min_rating"))


def _find_files(source: Any, given: Reading) -> tuple[list[Path], validate.Roles]:
    """Return Parquet files in the order of the log, and the column of each role."""
    specs = [source] if isinstance(source, str | PathLike) else list(source)
    paths = [path for spec in specs for path in files.files_of(spec)]
    other = next((path for path in paths if path.suffix.lower() not in files.PARQUET), None)
    if other is not None and other.exists():
        raise DataError(
            f"{other} is no Parquet file: only Parquet is prepared in parts; write the log as "
            "Parquet, or prepare it without partitions."
        )
    sources = [files.file_source(path) for path in paths]
    first = sources[0]
    roles = validate.find_columns(first.columns, cast("Any", given), first.label, validate.ROLES)
    files.check_names(sources, roles)
    schemas = [files.parquet_schema(path) for path in paths]
    for column in roles.values():
        files.check_kinds(column, [schema[column] for schema in schemas], sources)
    if not pl.scan_parquet(paths, glob=False).select(pl.len()).collect().item():
        raise DataError(f"{first.label} is empty: it has columns but no rows.")
    return paths, roles


def _check_events(
    paths: Sequence[Path], roles: validate.Roles, rule: validate.RatingRule, target: Path
) -> tuple[pl.DataFrame, int, bool]:
    """Check values as the readers do, and write them in plain types, a chunk at a time.

    Return categories of items, the number of missing ratings, and whether times are dates.
    """
    target.mkdir(parents=True)
    categories, unrated, are_dates, before = list[pl.DataFrame](), 0, set[bool](), 0
    for path in paths:
        first = 0
        try:
            lazy = pl.scan_parquet(path, glob=False).select(roles.values())
            for chunk in lazy.collect_batches(chunk_size=CHUNK_ROWS, maintain_order=True):
                frame = by_role(chunk, roles)
                where = partial(_name_row, path, first)
                places = {role: validate.Place(str(path), c, where) for role, c in roles.items()}
                columns: dict[str, Any] = {}
                for role in ("user", "item"):
                    columns[role] = validate.plain_ids(frame[role], places[role])
                    if columns[role].dtype == pl.String:
                        validate.check_blanks(columns[role].unique(), columns[role], places[role])
                columns["position"] = pl.int_range(before, before + len(frame), eager=True)
                if "rating" in roles:
                    columns["rating"] = validate.to_ratings(frame["rating"], places["rating"], rule)
                    unrated += int(np.isnan(columns["rating"]).sum())
                if "timestamp" in roles:
                    times, dated = validate.to_times(frame["timestamp"], places["timestamp"])
                    columns["timestamp"] = times
                    are_dates.add(dated)
                if "category" in roles:
                    found = validate.to_categories(
                        columns["item"], frame["category"], places["category"]
                    )
                    categories.append(found)
                pl.DataFrame(columns).write_parquet(target / f"{before:012}.parquet")
                first, before = first + len(frame), before + len(frame)
        except (PolarsError, PanicException, OSError) as problem:
            raise files.unreadable(path, "Parquet", problem) from problem
    if len(are_dates) > 1:
        raise DataError(
            f"Column {roles['timestamp']!r} holds dates in some rows and numbers in others: "
            "write all of its times in one way."
        )
    table = pl.concat(categories).unique().sort("item_id", "category") if categories else None
    return pl.DataFrame() if table is None else table, unrated, are_dates == {True}


def _name_row(path: Path, first: int, row: int) -> str:
    return f"{path}: row {first + row + 1:,}"


def _distribute(scratch: Path, partitions: int) -> tuple[pl.Series, pl.Series, list[int]]:
    """Number the ids in ascending order, and write the events by ranges of users.

    Return the ids of users and items, and the first user of each partition.
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
) -> dict[str, int]:
    """Order events, merge repeated pairs and drop low ratings by partition; return counts."""
    sums = np.zeros(4, np.int64)
    (scratch / "merged").mkdir()
    for number, (first, end) in enumerate(pairwise(bounds)):
        source = scratch / "partitions" / f"partition={number}"
        frame = _scan(source).sort("position").collect()
        shutil.rmtree(source)
        users, items = (
            parts.array_of(frame, "user") - np.int32(first),
            parts.array_of(frame, "item"),
        )
        values = parts.array_of(frame, "rating"), parts.array_of(frame, "timestamp")
        ordered = order_by_user(users, items, end - first, n_items, *values)
        merged = frame[ordered.positions]
        sums[:2] += len(frame), len(frame) - len(merged)
        if ordered.ratings is not None and filters.has_ratings(min_rating, rated=True):
            kept = filters.meets_min_rating(ordered.ratings, min_rating)
            sums[2:] += (~kept).sum(), np.isnan(ordered.ratings[~kept]).sum()
            merged = merged.filter(pl.Series(kept))
        merged.write_parquet(_file(scratch / "merged", number))
    names = ("rows", "repeats", "interactions", "without_rating")
    return dict(zip(names, sums.tolist(), strict=True))


class _Left(NamedTuple):
    """Users and items that are left, by their rows in ascending order, and their events."""

    users: parts.Counts
    items: parts.Counts
    n_events: int


def _with_enough(events: pl.LazyFrame, least: int) -> _Left:
    """Return users with enough events, and items with enough events of these."""

    def enough(some: pl.LazyFrame, name: str) -> pl.DataFrame:
        counted = some.group_by(name).len().filter(pl.col("len") >= least)
        return counted.sort(name).collect(engine="streaming")

    users = enough(events, "user").select("user")
    items = enough(events.join(users.lazy(), on="user", how="semi"), "item")
    return _Left(users["user"].to_numpy(), items["item"].to_numpy(), int(items["len"].sum()))


def _k_core(events: pl.LazyFrame, left: _Left, least: int, report: Report) -> tuple[_Left, Report]:
    """Filter as `k_core` does."""
    before, rounds, n_before = left, -1, -1
    while len(left.users) + len(left.items) != n_before:
        rounds, n_before = rounds + 1, len(left.users) + len(left.items)
        some = events
        for name, rows in (("user", left.users), ("item", left.items)):
            some = some.join(pl.LazyFrame({name: rows}), on=name, how="semi")
        left = _with_enough(some, least)
    if not left.n_events:
        raise filters.nothing_left("k-core", before.n_events)
    return left, report.then(
        "k-core",
        rounds=rounds,
        least_users=least,
        least_items=least,
        users=len(before.users) - len(left.users),
        items=len(before.items) - len(left.items),
        interactions=before.n_events - left.n_events,
    )


def _split(frame: pl.DataFrame, left: _Left, first: int, order: Order, seed: int) -> pl.DataFrame:
    """Hold out two events of each user of a partition as `leave_one_out` does; return its table.

    `left` has the old rows of the partition's users and of all items; the new row of the first
    user is `first`.
    """
    from transcf.kernels.splitting import event_keys, last_two

    for name, rows, start in (("user", left.users, first), ("item", left.items, 0)):
        new = np.arange(start, start + len(rows), dtype=np.int32)
        frame = frame.join(pl.DataFrame({name: rows, "new": new}), on=name, maintain_order="left")
        frame = frame.with_columns(pl.col("new").alias(name)).drop("new")
    indptr = offsets(np.bincount(parts.array_of(frame, "user") - first, minlength=len(left.users)))
    if order == "random":
        keys: parts.Counts = event_keys(indptr, parts.array_of(frame, "item"), seed, first)
    else:
        keys = parts.array_of(frame, "timestamp" if order == "time" else "position")
    test, validation = last_two(indptr, keys, LEAST_EVENTS)
    held_out = np.zeros(len(frame), np.uint8)
    held_out[validation] = parts.PARTS.index("validation")
    held_out[test] = parts.PARTS.index("test")
    others = [name for name in ("position", "rating", "timestamp") if name in frame.columns]
    return frame.select("user", "item", pl.Series("part", held_out), *others)


def _scan(folder: Path) -> pl.LazyFrame:
    return pl.scan_parquet(sorted(folder.iterdir()), glob=False, hive_partitioning=False)


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.parquet"


def _counts(written: pl.LazyFrame, name: str, ids: pl.Series) -> pl.DataFrame:
    """Table `id, train, validation, test` with the events in each part of the split."""
    in_part = {
        part: (pl.col("part") == number).sum().cast(pl.Int32)
        for number, part in enumerate(parts.PARTS)
    }
    counted = written.group_by(name).agg(**in_part).sort(name).collect(engine="streaming")
    return counted.select(ids.alias("id"), *parts.PARTS)


def _with_split(report: Report, users: pl.DataFrame) -> Report:
    """Report the sizes of the parts, as `leave_one_out` does."""
    events = users.select(pl.sum_horizontal(parts.PARTS)).to_series()
    held_out = int((events >= LEAST_EVENTS).sum())
    return report.then(
        "split",
        **{part: int(users[part].sum()) for part in parts.PARTS},
        users_held_out=held_out,
        users_kept_whole=len(events) - held_out,
        users_without_training=0,
    )
