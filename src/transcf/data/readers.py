"""`read_interactions`: an event log from a file, a table, a dataset name or a folder."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import polars as pl

from transcf.data import validate
from transcf.data.csv_dialect import Dialect
from transcf.data.files import files_of, files_source
from transcf.data.filters import check_min_rating, filter_min_rating, filter_of, filtered
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.data.report import Report, with_unused_columns
from transcf.data.tables import TableSource, pairs_source, table_source
from transcf.data.validate import ROLES, Column, RatingRule, Role, find_columns
from transcf.errors import DataError, ParameterError
from transcf.parallel import check_unforked

if TYPE_CHECKING:
    from transcf.data.partitioned import PartitionedLog


class Reading(TypedDict, total=False):
    """Options of `read_interactions`."""

    user: Column
    item: Column
    rating: Column
    timestamp: Column
    category: Column
    ratings: RatingRule
    min_rating: float | None
    filter: str
    links: Any
    categories: Any
    header: bool
    separator: str | None
    encoding: str


def read_interactions(
    source: Any,
    *,
    user: Column = None,
    item: Column = None,
    rating: Column = None,
    timestamp: Column = None,
    category: Column = None,
    ratings: RatingRule = "any",
    min_rating: float | None = None,
    filter: str = "none",
    links: Any = None,
    categories: Any = None,
    header: bool = True,
    separator: str | None = None,
    encoding: str = "utf-8",
) -> Interactions:
    """Read an event log.

    Ids are integers or text. In files without types (CSV and the like) a column of ids is
    integer if all of it is written as plain integers; a single "007" or "12a" keeps the whole
    column as text, so that no zero is lost. Typed tables keep their type; floats are accepted if
    all are whole numbers. Repeated pairs are merged, see `Interactions.from_rows`.

    Integer timestamps stay as they are; dates and ISO text become microseconds since 1970.

    Events with a rating of 0 or below are left out unless `min_rating` says otherwise, and the
    report counts them. Blank lines are skipped.

    Args:
        source: A path (CSV, TSV, DAT, JSON Lines, Parquet; plain or .gz), with `~` and patterns
            such as `logs/*.csv`, a folder of such files, or a list of paths; a table of polars,
            pandas or pyarrow; anything with the Arrow interface; a list of (user, item) pairs; or
            a scipy sparse matrix, whose row and column numbers become the ids and whose values,
            unless all are one, the ratings. Also a dataset: "synthetic", a name of the catalog, or
            a folder with its published files, with the authors' prepared files, or written by
            `Split.save` or `prepare_parts`; these take no options but `min_rating` and `filter`,
            and keep all events unless `min_rating` is given. An existing path takes precedence
            over a name of the same spelling, with a warning; `./name` is always a path.
        user: Name of the column of users, or its number from 1; None finds it among the usual
            names.
        item: Column of items.
        rating: Column of ratings; optional.
        timestamp: Column of times; optional.
        category: Column of item categories; optional.
        ratings: What ratings have to be: "any" (finite or missing), "present" (none missing or
            NaN) or "nonnegative" (present, and none below zero).
        min_rating: The lowest rating of events that stay; see `filter_min_rating`. None leaves
            out ratings of 0 and below, `-inf` nothing.
        filter: "5-core" (or another number) keeps users and items with at least 5 events, repeated
            until it holds (`k_core`); "paper" is `paper_filter`.
        links: Links between users: a table `user_id, friend_id` in any form that `source` has.
            Links hold in both directions. Ids that are not users of the log are left out and
            counted. A text file has the header, separator and encoding of the log.
        categories: Categories of items: a table `item_id, category`, instead of a column of the
            log. An item has a row for each category, or one row with all of them, separated by
            "|" or, in typed tables, in a list. Items that are not in the log are left out and
            counted. Files as for `links`.
        header: Whether the first line of a text file names the columns. If not, they are called
            by their numbers, and users are in the first and items in the second unless given.
        separator: What separates the columns of a text file, such as "|" or "::"; None finds it.
        encoding: Encoding of a text file.

    Raises:
        DataError: One sentence about the first thing that is wrong, with its line or row.

    Example:
        >>> read_interactions(pl.DataFrame({"user": ["ann", "bob"], "item": [7, 9]}))
        Interactions(2 users, 2 items, 2 interactions, density 50 %)
    """
    check_min_rating(min_rating)
    filter_of(filter)
    dialect = Dialect(header, separator, encoding)
    columns: dict[Role, Column] = {
        "user": user,
        "item": item,
        "rating": rating,
        "timestamp": timestamp,
        "category": category,
    }
    if isinstance(source, str | PathLike):
        from transcf.data.datasets import resolve

        source = resolve(source)  # here, so that a warning about the path names the caller's line
    if (dataset := _read_dataset(source)) is not None:
        options: dict[str, Any] = {"links": links, "categories": categories, "separator": separator}
        given = [name for name, value in (*columns.items(), *options.items()) if value is not None]
        words = (
            ("ratings", ratings, "any"),
            ("header", header, True),
            ("encoding", encoding, "utf-8"),
        )
        given += [name for name, value, default in words if value != default]
        if given:
            raise ParameterError(
                f"{source} is no file: how to read it ({', '.join(given)}) can only be said of a "
                "file."
            )
        if min_rating is not None:
            dataset = filter_min_rating(dataset, min_rating)
        return filtered(dataset, filter)
    if category is not None and categories is not None:
        raise ParameterError(
            "Categories come from a column of the log or from a table of their own: give either "
            "category or categories."
        )
    log = read_source(_open(source, dialect), columns, ratings)
    if links is not None or categories is not None:
        from transcf.data.side import read_categories, read_links
    if links is not None:
        table, report = read_links(_open_side(links, dialect), log.users, log.report)
        log = log.with_links(table).with_report(report)
    if categories is not None:
        table, report = read_categories(_open_side(categories, dialect), log.items, log.report)
        log = log.with_categories(table).with_report(report)
    return filtered(filter_min_rating(log, min_rating), filter)


#: The name under which the first page of the documentation introduces it.
open_data = read_interactions


def as_interactions(data: Any) -> Interactions:
    """Return a log as it is, and anything else as `read_interactions` reads it."""
    return data if isinstance(data, Interactions) else read_interactions(data)


def as_partitioned(data: Any) -> PartitionedLog | None:
    """Return a partitioned log, or the one at a path, without reading events; else None."""
    from transcf.data.datasets import resolve
    from transcf.data.partitioned import PartitionedLog, is_partitioned, open_parts

    if isinstance(data, PartitionedLog):
        return data
    path = resolve(data) if isinstance(data, str | PathLike) else None
    return open_parts(path) if isinstance(path, Path) and is_partitioned(path) else None


def pair_columns(pairs: Any) -> tuple[pl.Series, pl.Series]:
    """Return the user ids and the item ids of some pairs, (n,) each, in their order.

    Args:
        pairs: A list of (user id, item id) tuples, or a file or table as for `read_interactions`.

    Example:
        >>> users, items = pair_columns([("ann", 7), ("bob", 9)])
        >>> users.to_list(), items.to_list()
        (['ann', 'bob'], [7, 9])
    """
    source = _open(pairs, Dialect())
    roles = find_columns(source.columns, {}, source.label, ("user", "item"))
    frame = source.read(roles)
    columns = [frame["user"], frame["item"]]
    if len(frame) and source.is_text:
        columns = [ids.ids(rows) for ids, rows in _pair_ids(frame, roles, source)]
    elif len(frame):
        places = (source.place(roles["user"]), source.place(roles["item"]))
        columns = [validate.plain_ids(*column) for column in zip(columns, places, strict=True)]
    return columns[0].alias("user_id"), columns[1].alias("item_id")


def read_source(
    source: TableSource,
    columns: Mapping[Role, Column],
    rule: RatingRule = "any",
) -> Interactions:
    """Read all events of an opened source."""
    check_unforked("read a log")
    roles = find_columns(source.columns, columns, source.label, ROLES, has_header=source.has_header)
    validate.check_rule(rule, roles, source.label)
    frame = source.read(roles)
    if not len(frame):
        raise DataError(f"{source.label} is empty: it has columns but no rows.")
    (users, user_rows), (items, item_rows) = _pair_ids(frame, roles, source)
    counts = {"rows": len(frame)}
    places = {role: source.place(column) for role, column in roles.items()}
    item_ids = items.ids(item_rows) if "category" in roles else items.series
    values = validate.checked_values(frame, places, rule, item_ids)
    if missing := int(np.isnan(values.get("ratings", 0)).sum()):
        counts["without_rating"] = missing
    report = with_unused_columns(Report().then("read", **counts), source.columns, roles)
    return Interactions.from_rows(users, items, user_rows, item_rows, report=report, **values)


def _read_dataset(source: Any) -> Interactions | None:
    """Return the log of a dataset or of an object of this library; None for files and tables."""
    from transcf.data.datasets import read_dataset
    from transcf.data.partitioned import PartitionedLog
    from transcf.data.split import Split

    if isinstance(source, Interactions):
        return source
    if isinstance(source, PartitionedLog):
        return source.read()
    if isinstance(source, Split):
        raise DataError(
            "A split is no event log: give one of its parts, such as split.train, or what "
            "`read_interactions` takes."
        )
    return read_dataset(source) if isinstance(source, str | Path) else None


def _open(source: Any, dialect: Dialect) -> TableSource:
    """Find the columns of a file, a table or a list of pairs; nothing is read yet."""
    is_list = isinstance(source, list | tuple)
    if _are_files(source):
        check_unforked("read a file")
        specs: Any = source if is_list else [source]
        return files_source([path for spec in specs for path in files_of(spec)], dialect)
    if dialect != Dialect():
        raise ParameterError("header, separator and encoding can only be given for files of text.")
    return pairs_source(source) if is_list else table_source(source)


def _open_side(source: Any, dialect: Dialect) -> TableSource:
    """Open a side table; text files have the dialect of the log."""
    return _open(source, dialect if _are_files(source) else Dialect())


def _are_files(source: Any) -> bool:
    values = source if isinstance(source, list | tuple) else [source]
    return bool(values) and all(isinstance(value, str | PathLike) for value in values)


def _pair_ids(
    frame: pl.DataFrame, roles: Mapping[Role, str], source: TableSource
) -> tuple[tuple[IdMap, Rows], tuple[IdMap, Rows]]:
    """Number users and items in two threads; most of the work releases the GIL."""

    def number(role: Role) -> tuple[IdMap, Rows]:
        place = source.place(roles[role])
        values = validate.plain_ids(frame[role], place)
        ids, rows = IdMap.encode(values, parse_integers=source.is_text)
        if ids.is_text and not source.keep_blanks:
            validate.check_blanks(ids.series, values, place)
        return ids, rows

    with ThreadPoolExecutor(max_workers=1) as other:
        items = other.submit(number, "item")
        return number("user"), items.result()
