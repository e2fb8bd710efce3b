"""`prepare_parts`: a folder of Parquet files filtered and split while no process holds all events.

The steps, whose tasks whoever runs them may share out:

1. ids are counted, piece by piece of the files, and numbered in ascending order, as everywhere;
2. events are numbered and dealt out to partitions: neighbouring users with about as many events;
3. each partition is put in order, repeated pairs are merged, and disliked events left out;
4. users and items with too few events are left out by rounds: users in their partition, items by
   counts that are added up over all of them;
5. each partition holds out two events of each user, and is written.

All of them do what the readers, filters and splits of one process do, and so the result is theirs.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from transcf.data.atomic import atomic_write_dir
from transcf.data.filters import check_core, check_min_rating, has_ratings
from transcf.data.partitioned.chunks import PIECE_ROWS, find_chunks
from transcf.data.partitioned.executor import Run, one_by_one
from transcf.data.partitioned.filtering import by_k_core, by_paper
from transcf.data.partitioned.log import PartitionedLog, is_partitioned, open_parts
from transcf.data.partitioned.manifest import Manifest
from transcf.data.partitioned.shuffle import forget_numbers
from transcf.data.partitioned.steps import Steps
from transcf.data.paths import user_path
from transcf.data.splitters import Order, leaving_out
from transcf.data.validate import Column, RatingRule, Role, check_rule
from transcf.errors import DataError, ParameterError, shown
from transcf.parallel import check_unforked


def prepare_parts(
    source: Any,
    folder: str | Path,
    *,
    partitions: int = 16,
    k_core: int | None = None,
    paper_filter: bool = False,
    by: Order = "auto",
    seed: int = 0,
    user: Column = None,
    item: Column = None,
    rating: Column = None,
    timestamp: Column = None,
    category: Column = None,
    ratings: RatingRule = "any",
    min_rating: float | None = None,
    run: Run = one_by_one,
    piece_rows: int = PIECE_ROWS,
) -> PartitionedLog:
    """Read, filter and split Parquet files, and write the log to a folder by partitions of users.

    Rows and split are those of `leave_one_out(k_core(read_interactions(source)))`. A process holds
    the ids, and a piece of the files or a partition at a time.

    Args:
        source: A folder of Parquet files, a file, a pattern, or a list of them.
        folder: Where the log goes, whole or not at all; one that is there is replaced.
        partitions: How many there are at most.
        k_core: Fewest events of users and items; see `transcf.k_core`. None keeps all.
        paper_filter: Whether to filter as `transcf.paper_filter` does.
        by: What is held out; see `leave_one_out`.
        seed: Of the random order.
        user: Column of users; this and the columns below as for `read_interactions`.
        item: Column of items.
        rating: Column of ratings; there may be none.
        timestamp: Column of times; there may be none.
        category: Column of item categories; there may be none.
        ratings: What ratings have to be.
        min_rating: The lowest rating of events that stay.
        run: Who does the tasks.
        piece_rows: Rows of a file that are read at once.

    Raises:
        DataError: One sentence about the first thing that is wrong.

    Example:
        >>> from transcf import synthesize
        >>> synthesize().to_frame().write_parquet("events.parquet")
        >>> prepare_parts("events.parquet", "prepared", partitions=4, k_core=5).how
        'the newest event of each user for test, the one before it for validation'
    """
    check_unforked("read a log")
    target = _check_target(folder)
    _check_numbers(partitions, piece_rows, k_core, paper_filter)
    check_min_rating(min_rating)
    given: dict[Role, Column] = {
        "user": user,
        "item": item,
        "rating": rating,
        "timestamp": timestamp,
        "category": category,
    }
    roles, pieces = find_chunks(source, given, piece_rows)
    check_rule(ratings, roles, str(pieces[0].path))
    has_ratings(min_rating, rated="rating" in roles)
    order, recipe = leaving_out(by, seed, timed="timestamp" in roles)
    with atomic_write_dir(target) as unfinished:
        scratch = unfinished / "scratch"
        scratch.mkdir()
        try:
            work = Steps(run, roles, pieces, scratch)
            work.number(partitions)
            work.deal(ratings)
            left, report = work.merge(min_rating)
            if k_core is not None:
                left, report = by_k_core(run, work.shares, k_core, left, report)
            elif paper_filter:
                left, report = by_paper(run, work.shares, left, report)
            starts, files, whole = work.write(unfinished, left, order, seed, report)
        finally:
            forget_numbers()
        shutil.rmtree(scratch)
        Manifest(
            recipe=recipe,
            report=whole.to_list(),
            log_report=report.to_list(),
            timed="timestamp" in roles,
            times_are_dates=work.are_dates,
            rated="rating" in roles,
            starts=starts,
            files=files,
        ).write(unfinished)
    return open_parts(target)


def _check_target(folder: str | Path) -> Path:
    target = user_path(folder)
    is_used = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if is_used and not is_partitioned(target):
        raise DataError(
            f"{target} exists and is not a log in parts: choose another folder or remove it."
        )
    return target


def _check_numbers(
    partitions: int, piece_rows: int, k_core: int | None, paper_filter: bool
) -> None:
    for name, value in (("partitions", partitions), ("piece_rows", piece_rows)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ParameterError(f"{name}={shown(value)} is not allowed; give a number from 1 on.")
    if k_core is not None:
        check_core("k_core", k_core)
        if paper_filter:
            raise ParameterError("k_core and paper_filter are two filters: give one of them.")
