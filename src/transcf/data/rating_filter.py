"""Which events are a sign of liking, by their ratings."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from transcf.data.columns import naming
from transcf.data.interactions import Interactions
from transcf.data.report import Report, counted
from transcf.errors import DataError, ParameterError, shown

#: A bar for ratings that everything meets, missing ratings too.
ANY_RATING = -math.inf
#: What reports call it, before the bar.
_STEP = "leave out ratings "


def filter_min_rating(log: Interactions, min_rating: float | None = None) -> Interactions:
    """Keep the events whose rating is a sign of liking.

    Of a repeated pair it is the rating of the event that was kept, the newest, that counts. Users
    and items that lose all their events go too; the report counts what was left out. Ratings
    stay, for models that weigh events by them.

    Args:
        log: Any log; without ratings it stays as it is, unless a bar is given.
        min_rating: The lowest rating that stays; events without a rating go, for they do not
            meet it. None leaves out ratings of 0 and below only, and `-inf` nothing.

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
    assert log.ratings is not None  # `has_ratings` has seen to it
    kept = meets_min_rating(log.ratings, min_rating)
    if kept.all():
        return log
    fewer = log.select(kept, drop_ids=True)
    report = drop_low_ratings(
        log.report,
        min_rating,
        of=len(log),
        interactions=len(log) - len(fewer),
        without_rating=int(np.isnan(log.ratings[~kept]).sum()),
        users=log.n_users - fewer.n_users,
        items=log.n_items - fewer.n_items,
    )
    return fewer.with_report(report)


def has_ratings(min_rating: float | None, *, rated: bool) -> bool:
    """Whether ratings decide over events; raise a `DataError` where they should and are not there.

    Args:
        min_rating: As for `filter_min_rating`.
        rated: Whether events have ratings.
    """
    if min_rating == ANY_RATING or (min_rating is None and not rated):
        return False
    if not rated:
        raise DataError(
            f"The log has no ratings, so min_rating={min_rating:g} cannot be met: "
            f"{naming('rating')}."
        )
    return True


def meets_min_rating(
    ratings: npt.NDArray[np.float32], min_rating: float | None
) -> npt.NDArray[np.bool_]:
    """(n,) which ratings are a sign of liking."""
    kept: npt.NDArray[np.bool_] = ~(ratings <= 0) if min_rating is None else ratings >= min_rating
    return kept


def drop_low_ratings(
    report: Report,
    min_rating: float | None,
    *,
    of: int,
    interactions: int,
    without_rating: int,
    users: int,
    items: int,
) -> Report:
    """Note what was left out of so many events; raise a `DataError` if it was all of them."""
    bar = "of 0 or below" if min_rating is None else f"below {min_rating:g}"
    if interactions == of:
        raise DataError(
            f"All {of:,} ratings are {bar.removeprefix('of ')}, so nothing is left: choose "
            f"another min_rating (in a shell: --min-rating), -inf to keep all."
        )
    missing = {"without_rating": without_rating} if without_rating else {}
    counts = {"interactions": interactions, **missing, "users": users, "items": items}
    return report.then(_STEP + bar, **counts)


def left_out(report: Report) -> str:
    """Say how many events were left out for their ratings on the way; empty if none were.

    Example:
        >>> left_out(Report().then("leave out ratings below 3", interactions=2))
        '2 events with ratings below 3 left out'
    """
    counts = {
        step.name.removeprefix(_STEP): step.counts["interactions"]
        for step in report.steps
        if step.name.startswith(_STEP)
    }
    said = (f"{counted(n, 'event')} with ratings {bar} left out" for bar, n in counts.items())
    return "; ".join(said)


def check_min_rating(min_rating: float | None) -> None:
    """Refuse a bar that is no number."""
    if min_rating is None:
        return
    is_number = isinstance(min_rating, int | float | np.number) and not isinstance(min_rating, bool)
    try:
        bar = float(min_rating) if is_number else math.nan
    except (OverflowError, TypeError):
        bar = math.nan
    if math.isnan(bar):
        raise ParameterError(f"min_rating={shown(min_rating)} is not allowed; it must be a number.")
