"""`read_interactions`: anybody's event log, from a file or a table."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.columns import ROLES, Role, find_columns
from transcf.data.files import file_source
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.data.report import Report
from transcf.data.tables import Source, pairs_source, table_source
from transcf.data.values import Place, RatingRule, to_categories, to_ids, to_ratings, to_times
from transcf.errors import DataError, ParameterError

_RATING_RULES = ("any", "present", "nonnegative")


class Reading(TypedDict, total=False):
    """What `read_interactions` may be told about a source."""

    user: str | None
    item: str | None
    rating: str | None
    timestamp: str | None
    category: str | None
    ratings: RatingRule


def read_interactions(
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    timestamp: str | None = None,
    category: str | None = None,
    ratings: RatingRule = "any",
) -> Interactions:
    """Read an event log.

    Ids are integers or text. In files without types (CSV and the like) a column of ids is
    integer if all of it is written as plain integers; a single "007" or "12a" keeps the whole
    column as text, so that no zero is lost. Typed tables keep their type; floats are taken if
    all are whole. Repeated pairs are merged, see `Interactions.from_rows`.

    Integer timestamps stay as they are; dates and ISO text become microseconds since 1970.

    Args:
        source: A path (CSV, TSV, DAT, JSON Lines, Parquet; plain or .gz), a table of polars,
            pandas or pyarrow, anything with the Arrow interface, or a scipy sparse matrix, whose
            row and column numbers become the ids and whose values, unless all are one, the
            ratings.
        user: Name of the column; None finds it among the usual names. So for the others.
        item: Column of items.
        rating: Column of ratings; there may be none.
        timestamp: Column of times; there may be none.
        category: Column of item categories; there may be none.
        ratings: What ratings have to be: "any", "present" (none missing or NaN) or
            "nonnegative" (present, finite, and none below zero).

    Raises:
        DataError: One sentence about the first thing that is wrong, with its row.

    Example:
        >>> read_interactions(pl.DataFrame({"user": ["ann", "bob"], "item": [7, 9]}))
        Interactions(2 users, 2 items, 2 interactions, density 50 %)
    """
    given: dict[Role, str | None] = {
        "user": user,
        "item": item,
        "rating": rating,
        "timestamp": timestamp,
        "category": category,
    }
    return read_source(_open(source), given, ratings)


def read_source(
    source: Source, given: Mapping[Role, str | None], ratings: RatingRule = "any"
) -> Interactions:
    """Read an opened source; `read_interactions` is the way in for callers."""
    if ratings not in _RATING_RULES:
        raise ParameterError(f"ratings={ratings!r} is not one of {', '.join(_RATING_RULES)}.")
    roles = find_columns(source.columns, given, source.label, ROLES)
    frame = source.read(roles)
    if not len(frame):
        raise DataError(f"{source.label} is empty: it has columns but no rows.")
    places = {role: Place(source.label, column) for role, column in roles.items()}
    return _build(frame, places, source, ratings)


def pair_columns(pairs: Any) -> tuple[pl.Series, pl.Series]:
    """Return the user ids and the item ids of some pairs, (n,) each, in their order.

    Args:
        pairs: A list of (user id, item id) tuples, or whatever `read_interactions` takes.

    Example:
        >>> users, items = pair_columns([("ann", 7), ("bob", 9)])
        >>> users.to_list(), items.to_list()
        (['ann', 'bob'], [7, 9])
    """
    opened = pairs_source(pairs) if isinstance(pairs, list | tuple) else _open(pairs)
    roles = find_columns(opened.columns, {}, opened.label, ("user", "item"))
    frame = opened.read(roles)
    if not len(frame):
        return frame["user"], frame["item"]
    places: dict[Role, Place] = {
        role: Place(opened.label, column) for role, column in roles.items()
    }
    (users, user_rows), (items, item_rows) = _pair_ids(frame, places, opened)
    return users.ids(user_rows).alias("user_id"), items.ids(item_rows).alias("item_id")


def _open(source: Any) -> Source:
    if isinstance(source, str | PathLike):
        return file_source(Path(source))
    return table_source(source)


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


def _build(
    frame: pl.DataFrame, places: dict[Role, Place], source: Source, rule: RatingRule
) -> Interactions:
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
        categories = to_categories(items.ids(item_rows), frame["category"])
    return Interactions.from_rows(
        users,
        items,
        user_rows,
        item_rows,
        ratings=ratings,
        timestamps=timestamps,
        times_are_dates=times_are_dates,
        categories=categories,
        report=Report().then("read", **counts),
    )
