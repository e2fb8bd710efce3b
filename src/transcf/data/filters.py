"""Filters: events with low ratings, and users and items with too few events."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.ids import Rows
from transcf.data.interactions import Interactions, Mask
from transcf.data.report import LOW_RATINGS, Report
from transcf.data.validate import naming
from transcf.errors import DataError, ParameterError, check_integer, is_word, shown

#: Gives rows of users and of items, a piece of the log at a time.
Events: TypeAlias = Callable[[], Iterable[tuple[Rows, Rows]]]
#: Users and items that are kept, by row.
Kept: TypeAlias = tuple[Mask, Mask]

#: A bound that every rating meets, missing ones included.
ANY_RATING = -math.inf


def filter_of(name: str) -> tuple[int | None, bool]:
    """Parse the name of a filter: "none", "paper", or a number with "-core".

    Returns:
        The number of a k-core, None for the others, and whether it is `paper_filter`.
    """
    number, core, rest = name.partition("-core") if isinstance(name, str) else ("", "", "")
    if core and not rest and number.isascii() and number.isdigit():
        return int(number), False
    if not is_word(name, ("none", "paper")):
        raise ParameterError(
            f"filter={shown(name)} is not known: use none, paper, or a number with -core."
        )
    return None, name == "paper"


def filtered(log: Interactions, name: str) -> Interactions:
    """Apply the filter of a name, see `filter_of`."""
    least, is_paper = filter_of(name)
    if is_paper:
        return paper_filter(log)
    return log if least is None else k_core(log, least, least)


def k_core(log: Any, users: int = 5, items: int = 5) -> Interactions:
    """Keep the largest part in which all users and items have enough events.

    Users and items below the bounds are removed repeatedly until none are left to remove.

    Args:
        log: A log, or anything that `read_interactions` takes.
        users: Least number of events of a user.
        items: Least number of events of an item.

    Example:
        >>> from transcf import synthesize
        >>> log = k_core(synthesize(users=200, items=100, interactions=2000), users=5, items=5)
        >>> bool(log.by_user.counts.min() >= 5 and log.by_item.counts.min() >= 5)
        True
    """
    from transcf.data.readers import as_interactions

    log = as_interactions(log)
    users, items = check_integer("users", users), check_integer("items", items)
    kept = np.ones(log.n_users, bool), np.ones(log.n_items, bool)
    rounds = drop_to_core(lambda: [(log.user_rows, log.item_rows)], kept, users, items)
    return _keep(log, kept, "k-core", rounds=rounds, least_users=users, least_items=items)


def drop_to_core(events: Events, kept: Kept, users: int, items: int) -> int:
    """Drop users and items with too few events until none are left to drop; return the rounds."""
    rounds, before = -1, -1
    while (left := int(kept[0].sum() + kept[1].sum())) != before:
        rounds, before = rounds + 1, left
        drop_rare(events, kept, 0, users)
        drop_rare(events, kept, 1, items)
    return rounds


def drop_rare(events: Events, kept: Kept, side: int, least: int) -> None:
    """Drop the users (side 0) or items (1) that have too few events with those that are kept."""
    counts = np.zeros(len(kept[side]), np.int64)
    for rows in events():
        counts += np.bincount(rows[side][kept_events(rows, kept)], minlength=len(counts))
    kept[side][counts < least] = False


def kept_events(rows: tuple[Rows, Rows], kept: Kept) -> Mask:
    """(n,) which events have a user and an item that are kept."""
    return kept[0][rows[0]] & kept[1][rows[1]]


def paper_filter(log: Any) -> Interactions:
    """Filter in one pass as the authors of TransCF did.

    Users with at least 5 events stay, then items with at least 5, then users with at least 3, so
    that training, validation and test get one each. Items may end up below 5.

    Args:
        log: A log, or anything that `read_interactions` takes.
    """
    from transcf.data.readers import as_interactions

    log = as_interactions(log)
    kept = np.ones(log.n_users, bool), np.ones(log.n_items, bool)
    for side, least in ((0, 5), (1, 5), (0, 3)):
        drop_rare(lambda: [(log.user_rows, log.item_rows)], kept, side, least)
    return _keep(log, kept, "paper filter")


def filter_min_rating(log: Interactions, min_rating: float | None = None) -> Interactions:
    """Keep the events whose rating counts as positive feedback.

    Of a repeated pair, the rating of the newest event counts. Users and items that lose all their
    events are removed as well; the report counts what was left out. Ratings stay, for models that
    weigh events by them.

    Args:
        log: Any log; without ratings it stays as it is, unless a bound is given.
        min_rating: The lowest rating that stays; events without a rating are left out. None
            leaves out ratings of 0 and below only, and `-inf` nothing.

    Example:
        >>> import polars as pl
        >>> from transcf import read_interactions
        >>> frame = pl.DataFrame({"user": [1, 1, 2], "item": [7, 8, 7], "rating": [0, 2, 5]})
        >>> print(read_interactions(frame, min_rating=3).report)
        read: rows 3
        merge repeats: events 3, repeats 0
        leave out ratings below 3: interactions 2, users 1, items 1
    """
    check_min_rating(min_rating)
    if not has_ratings(min_rating, rated=log.ratings is not None):
        return log
    assert log.ratings is not None  # `has_ratings` has checked it
    kept = meets_min_rating(log.ratings, min_rating)
    if kept.all():
        return log
    fewer = log.select(kept, drop_ids=True)
    unrated = int(np.isnan(log.ratings[~kept]).sum())
    counts = {"interactions": len(log) - len(fewer), "without_rating": unrated}
    counts |= {"users": log.n_users - fewer.n_users, "items": log.n_items - fewer.n_items}
    return fewer.with_report(report_low_ratings(log.report, min_rating, len(log), counts))


def check_min_rating(min_rating: float | None) -> None:
    """Raise a `ParameterError` unless the bound is None or a number."""
    is_number = isinstance(min_rating, int | float | np.number) and not isinstance(min_rating, bool)
    try:
        bound = float(min_rating) if is_number else math.nan  # type: ignore[arg-type]
    except (OverflowError, TypeError):
        bound = math.nan
    if min_rating is not None and math.isnan(bound):
        raise ParameterError(f"min_rating={shown(min_rating)} is not allowed; it must be a number.")


def has_ratings(min_rating: float | None, *, rated: bool) -> bool:
    """Return whether events are filtered by rating; raise a `DataError` if ratings are missing."""
    if not rated and min_rating not in (None, ANY_RATING):
        raise DataError(
            f"The log has no ratings, so min_rating={min_rating:g} cannot be met: "
            f"{naming('rating')}."
        )
    return rated and min_rating != ANY_RATING


def meets_min_rating(ratings: npt.NDArray[np.float32], min_rating: float | None) -> Mask:
    """(n,) which ratings count as positive feedback."""
    kept: Mask = ~(ratings <= 0) if min_rating is None else ratings >= min_rating
    return kept


def report_low_ratings(
    report: Report, min_rating: float | None, n_events: int, dropped: dict[str, int]
) -> Report:
    """Report what was left out of so many events; raise a `DataError` if it was all of them."""
    bound = "of 0 or below" if min_rating is None else f"below {min_rating:g}"
    if dropped["interactions"] == n_events:
        raise DataError(
            f"All {n_events:,} ratings are {bound.removeprefix('of ')}, so nothing is left: choose "
            "another min_rating (in a shell: --min-rating), -inf to keep all."
        )
    counts = {name: n for name, n in dropped.items() if n or name != "without_rating"}
    return report.then(LOW_RATINGS + bound, **counts)


def _keep(log: Interactions, kept: Kept, step: str, **settings: int) -> Interactions:
    """Select events and report how many users, items and interactions were left out."""
    smaller = log.select(kept_events((log.user_rows, log.item_rows), kept), drop_ids=True)
    dropped = log.n_users - smaller.n_users, log.n_items - smaller.n_items
    n_events = len(log), len(smaller)
    return smaller.with_report(report_filter(log.report, step, dropped, n_events, **settings))


def report_filter(
    report: Report, step: str, dropped: tuple[int, int], n_events: tuple[int, int], **settings: int
) -> Report:
    """Report dropped users and items, and events before and after; raise if none is left."""
    users, items = dropped
    before, after = n_events
    if not after:
        raise DataError(
            f"The {step} leaves nothing of {before:,} interactions: choose a lower bar or "
            "give more data."
        )
    return report.then(step, **settings, users=users, items=items, interactions=before - after)
