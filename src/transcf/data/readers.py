"""`read_interactions`: anybody's event log, from a file or a table."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.columns import ROLES, Column, Role, Roles, find_columns, naming
from transcf.data.delimited import Dialect
from transcf.data.files import files_source
from transcf.data.filters import filter_of, filtered
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.data.notes import with_unused_columns
from transcf.data.paths import are_paths, files_of
from transcf.data.rating_filter import check_min_rating, filter_min_rating
from transcf.data.report import Report
from transcf.data.side import read_categories, read_links
from transcf.data.tables import Source, pairs_source, table_source
from transcf.data.values import (
    Place,
    RatingRule,
    plain_ids,
    to_categories,
    to_ids,
    to_ratings,
    to_times,
)
from transcf.errors import DataError, ParameterError, is_word, shown
from transcf.parallel import check_unforked

_RATING_RULES = ("any", "present", "nonnegative")


class Reading(TypedDict, total=False):
    """What `read_interactions` may be told about a source."""

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
    column as text, so that no zero is lost. Typed tables keep their type; floats are taken if
    all are whole. Repeated pairs are merged, see `Interactions.from_rows`.

    Integer timestamps stay as they are; dates and ISO text become microseconds since 1970.

    A rating of 0 or below is no sign of liking: such events are left out unless `min_rating` says
    otherwise, and the report counts them. Lines with nothing on them are skipped.

    Args:
        source: A path (CSV, TSV, DAT, JSON Lines, Parquet; plain or .gz), with `~` and patterns
            such as `logs/*.csv`, a folder of such files, or a list of paths; a table of polars,
            pandas or pyarrow; anything with the Arrow interface; a list of (user, item) pairs; or
            a scipy sparse matrix, whose row and column numbers become the ids and whose values,
            unless all are one, the ratings.
        user: Name of the column, or its number from 1; None finds it among the usual names. So
            for the others.
        item: Column of items.
        rating: Column of ratings; there may be none.
        timestamp: Column of times; there may be none.
        category: Column of item categories; there may be none.
        ratings: What ratings have to be: "any" (finite or missing), "present" (none missing or
            NaN) or "nonnegative" (present, and none below zero).
        min_rating: The lowest rating of events that stay; see `filter_min_rating`. None leaves
            out ratings of 0 and below, `-inf` nothing.
        filter: "5-core" (or another number) keeps users and items with at least 5 events, repeated
            until it holds (`k_core`); "paper" is `paper_filter`.
        links: Which users are linked: a table `user_id, friend_id` in any form that `source` has.
            Links hold both ways. Ids that are not users of the log are left out and counted. A file
            of text is taken to be written as the log is (header, separator, encoding).
        categories: Which categories items have: a table `item_id, category`, in place of a column
            of the log. An item has a line for each category, or one line with all of them,
            separated by "|" or, in typed tables, in a list. Items that are not in
            the log are left out and counted. Files as for `links`.
        header: Whether the first line of a text file names the columns. If not, they are called
            by their numbers, and users are in the first and items in the second unless given.
        separator: What parts the columns of a text file, such as "|" or "::"; None finds it.
        encoding: Encoding of a text file.

    Raises:
        DataError: One sentence about the first thing that is wrong, with its line or row.

    Example:
        >>> read_interactions(pl.DataFrame({"user": ["ann", "bob"], "item": [7, 9]}))
        Interactions(2 users, 2 items, 2 interactions, density 50 %)
    """
    given: dict[Role, Column] = {
        "user": user,
        "item": item,
        "rating": rating,
        "timestamp": timestamp,
        "category": category,
    }
    check_min_rating(min_rating)
    filter_of(filter)
    if category is not None and categories is not None:
        raise ParameterError(
            "Categories come from a column of the log or from a table of their own: give either "
            "category or categories."
        )
    form = Dialect(header, separator, encoding)
    log = read_source(open_source(source, form), given, ratings)
    if links is not None:
        table, report = read_links(_open_beside(links, form), log.users, log.report)
        log = log.with_links(table).with_report(report)
    if categories is not None:
        table, report = read_categories(_open_beside(categories, form), log.items, log.report)
        log = log.with_categories(table).with_report(report)
    return filtered(filter_min_rating(log, min_rating), filter)


def read_source(
    source: Source, given: Mapping[Role, Column], ratings: RatingRule = "any"
) -> Interactions:
    """Read all events of an opened source; `read_interactions` is the way in for callers."""
    check_unforked("read a log")
    roles = find_columns(source.columns, given, source.label, ROLES, has_header=source.has_header)
    check_rule(ratings, roles, source.label)
    frame = source.read(roles)
    if not len(frame):
        raise DataError(f"{source.label} is empty: it has columns but no rows.")
    return _build(frame, roles, source, ratings)


def check_rule(ratings: RatingRule, roles: Roles, label: str) -> None:
    """Refuse a rule for ratings that is none, or that nothing can meet."""
    if not is_word(ratings, _RATING_RULES):
        raise ParameterError(f"ratings={shown(ratings)} is not one of {', '.join(_RATING_RULES)}.")
    if ratings != "any" and "rating" not in roles:
        raise DataError(
            f"{label} has no ratings, but they have to be {ratings}: {naming('rating')}."
        )


def pair_columns(pairs: Any) -> tuple[pl.Series, pl.Series]:
    """Return the user ids and the item ids of some pairs, (n,) each, in their order.

    Args:
        pairs: A list of (user id, item id) tuples, or whatever `read_interactions` takes.

    Example:
        >>> users, items = pair_columns([("ann", 7), ("bob", 9)])
        >>> users.to_list(), items.to_list()
        (['ann', 'bob'], [7, 9])
    """
    opened = open_source(pairs)
    roles = find_columns(opened.columns, {}, opened.label, ("user", "item"))
    frame, places = opened.read(roles), _places(roles, opened)
    if not len(frame):
        return frame["user"], frame["item"]
    if not opened.is_text:
        ids = (plain_ids(frame[role], places[role]) for role in ("user", "item"))
        user_ids, item_ids = ids
    else:
        (users, user_rows), (items, item_rows) = _pair_ids(frame, places, opened)
        user_ids, item_ids = users.ids(user_rows), items.ids(item_rows)
    return user_ids.alias("user_id"), item_ids.alias("item_id")


def open_source(source: Any, form: Dialect | None = None) -> Source:
    """Find the columns of a file, a table or a list of pairs; nothing is read yet."""
    form = form or Dialect()
    is_list = isinstance(source, list | tuple)
    if _are_files(source):
        check_unforked("read a file")
        specs: Any = source if is_list else [source]
        return files_source([path for spec in specs for path in files_of(spec)], form)
    if form != Dialect():
        raise ParameterError("header, separator and encoding can only be given for files of text.")
    return pairs_source(source) if is_list else table_source(source)


def _open_beside(source: Any, form: Dialect | None) -> Source:
    """Open what comes beside a log; files of text have the form of the log's."""
    return open_source(source, form if _are_files(source) else None)


def _are_files(source: Any) -> bool:
    is_list = isinstance(source, list | tuple)
    return isinstance(source, str | PathLike) or (is_list and bool(source) and are_paths(source))


def _places(roles: Roles, source: Source) -> dict[Role, Place]:
    return {role: Place(source.label, column, source.where) for role, column in roles.items()}


def _pair_ids(
    frame: pl.DataFrame, places: Mapping[Role, Place], source: Source
) -> tuple[tuple[IdMap, Rows], tuple[IdMap, Rows]]:
    """Number users and items, side by side: most of the work holds no lock."""

    def number(role: Role) -> tuple[IdMap, Rows]:
        return to_ids(
            frame[role],
            places[role],
            parse_integers=source.is_text,
            keep_blanks=source.keep_blanks,
        )

    with ThreadPoolExecutor(max_workers=1) as other:
        items = other.submit(number, "item")
        return number("user"), items.result()


def _build(frame: pl.DataFrame, roles: Roles, source: Source, rule: RatingRule) -> Interactions:
    places = _places(roles, source)
    (users, user_rows), (items, item_rows) = _pair_ids(frame, places, source)
    ratings: npt.NDArray[np.float32] | None = None
    timestamps: npt.NDArray[np.int64] | None = None
    times_are_dates, categories = False, None
    counts = {"rows": len(frame)}
    if "rating" in places:
        ratings = to_ratings(frame["rating"], places["rating"], rule)
        if missing := int(np.isnan(ratings).sum()):
            counts["without_rating"] = missing
    if "timestamp" in places:
        timestamps, times_are_dates = to_times(frame["timestamp"], places["timestamp"])
    if "category" in places:
        categories = to_categories(items.ids(item_rows), frame["category"], places["category"])
    return Interactions.from_rows(
        users,
        items,
        user_rows,
        item_rows,
        ratings=ratings,
        timestamps=timestamps,
        times_are_dates=times_are_dates,
        categories=categories,
        report=with_unused_columns(Report().then("read", **counts), source.columns, roles),
    )
