"""`read_interactions`: an event log from a file, a table, a dataset name or a folder."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import polars as pl

from transcf.data import validate
from transcf.data.csv_dialect import Dialect
from transcf.data.files import files_of, files_source
from transcf.data.filters import check_min_rating, filter_min_rating, filter_of, filtered
from transcf.data.ids import UNKNOWN, IdMap, Rows, plain_integers
from transcf.data.interactions import Interactions
from transcf.data.report import Report, with_unused_columns
from transcf.data.tables import TableSource, pairs_source, table_source
from transcf.data.validate import ROLES, Column, Role, Roles, find_columns
from transcf.errors import DataError, ParameterError, shown
from transcf.parallel import check_unforked

if TYPE_CHECKING:
    from transcf.data.partitioned import PartitionedLog


#: Roles of a table of categories.
_CATEGORY_ROLES: tuple[Role, ...] = ("item", "category")


class Reading(TypedDict, total=False):
    """Options of `read_interactions`."""

    user: Column
    item: Column
    rating: Column
    timestamp: Column
    category: Column
    min_rating: float | None
    filter: str
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
    min_rating: float | None = None,
    filter: str = "none",
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
        min_rating: The lowest rating of events that stay; see `filter_min_rating`. None leaves
            out ratings of 0 and below, `-inf` nothing.
        filter: "5-core" (or another number) keeps users and items with at least 5 events, repeated
            until it holds (`k_core`); "paper" is `paper_filter`.
        categories: Categories of items: a table `item_id, category` in any form that `source`
            has, instead of a column of the log. An item has a row for each category, or one row
            with all of them, separated by "|" or, in typed tables, in a list. Items that are not
            in the log are left out and counted. A text file has the header, separator and
            encoding of the log.
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
    columns: dict[Role, Column] = {"user": user, "item": item, "rating": rating}
    columns |= {"timestamp": timestamp, "category": category}
    if isinstance(source, str | PathLike):
        from transcf.data.datasets import resolve

        source = resolve(source)  # here, so that a warning about the path names the caller's line
    if (dataset := _read_dataset(source)) is not None:
        more: dict[str, Any] = {"categories": categories, "separator": separator}
        given = [name for name, value in (*columns.items(), *more.items()) if value is not None]
        usual = {"header": header, "encoding": encoding == "utf-8"}
        given += [name for name, is_usual in usual.items() if not is_usual]
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
    if dialect != Dialect() and not _are_files(source):
        raise ParameterError("header, separator and encoding can only be given for files of text.")
    log = read_source(_open(source, dialect), columns)
    if categories is not None:
        log = _with_categories(log, _open(categories, dialect))
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


def read_source(source: TableSource, columns: Mapping[Role, Column]) -> Interactions:
    """Read all events of an opened source."""
    check_unforked("read a log")
    roles = find_columns(source.columns, columns, source.label, ROLES, has_header=source.has_header)
    frame = source.read(roles)
    if not len(frame):
        raise DataError(f"{source.label} is empty: it has columns but no rows.")
    (users, user_rows), (items, item_rows) = _pair_ids(frame, roles, source)
    counts = {"rows": len(frame)}
    places = {role: source.place(column) for role, column in roles.items()}
    item_ids = items.ids(item_rows) if "category" in roles else items.series
    values = validate.checked_values(frame, places, item_ids)
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
    """Find the columns of files, a table or a list of pairs; nothing is read yet."""
    is_list = isinstance(source, list | tuple)
    if _are_files(source):
        check_unforked("read a file")
        specs: Any = source if is_list else [source]
        return files_source([path for spec in specs for path in files_of(spec)], dialect)
    return pairs_source(source) if is_list else table_source(source)


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


def _with_categories(log: Interactions, source: TableSource) -> Interactions:
    """Add categories of items; items that are not in the log are left out and counted."""
    items, columns = log.items, _category_columns(source, log.items)
    frame = source.read(columns)
    if not len(frame):
        raise DataError(f"{source.label} is empty: it has columns but no rows.")
    ids = validate.checked_ids(frame["item"], source.place(columns["item"]))
    table = validate.to_categories(ids, frame["category"], source.place(columns["category"]))
    if not len(table):
        raise DataError(
            f"{source.label} has no category in it: column {columns['category']!r} is empty."
        )
    ids = table["item_id"]
    if source.is_text and not items.is_text and ids.dtype == pl.String:
        ids = plain_integers(ids)  # null, and so unknown, where it is none
    rows = items.rows_of_column(ids)
    known = rows != UNKNOWN
    if not known.any():
        kind = "text" if items.is_text else "integers"
        example = f", such as {shown(items.series[0])}" if len(items) else ""
        raise DataError(
            f"{source.label} has no item of the log, whose item ids are {kind}{example}: give the "
            "same ids."
        )
    unknown = table["item_id"].filter(pl.Series(~known)).n_unique()
    kept = table.filter(pl.Series(known)).with_columns(item_id=items.ids(rows[known]))
    counts = {"rows": len(table), "unknown_items": unknown}
    if n_empty := frame["category"].null_count():
        counts["without_category"] = n_empty
    report = log.report.then("categories", **counts)
    return replace(log, categories=kept.sort("item_id", "category"), report=report)


def _category_columns(source: TableSource, items: IdMap) -> Roles:
    """Find the columns of items and categories by their usual names.

    In a table of two columns, a column without a usual name has the role that is left; two such
    columns are in order, unless the names are values of a first row.
    """
    names = source.columns
    usual = validate.usual_roles(names if source.has_header else [""] * len(names))
    chosen: Roles = {}
    for role in _CATEGORY_ROLES:
        if usual.count(role) > 1:
            raise _wrong_columns(source, f"has several columns that could be the {role}")
        if role in usual:
            chosen[role] = names[usual.index(role)]
    missing = [role for role in _CATEGORY_ROLES if role not in chosen]
    others = [name for name, role in zip(names, usual, strict=True) if role is None]
    if len(names) == len(_CATEGORY_ROLES) and len(others) == len(missing):
        if not chosen and source.has_header and source.is_text:
            for name, row in zip(names, items.rows(names), strict=True):
                if validate.looks_like_data(name) or row != UNKNOWN:
                    raise _wrong_columns(source, f"has {name!r} in the place of a name")
        return chosen | dict(zip(missing, others, strict=True))
    if missing:
        raise _wrong_columns(source, f"has no {missing[0]} column")
    return chosen


def _wrong_columns(source: TableSource, what: str) -> DataError:
    return DataError(f"{source.label} {what}: give a table with columns item_id and category.")
