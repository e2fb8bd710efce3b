"""How many different ratings and categories users have: intensity and heterogeneity in the data."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.analysis.result import Analysis
from transcf.data.interactions import Interactions
from transcf.errors import DataError
from transcf.pages import Drawing
from transcf.pages.figures import bars

#: Numbers that have a bar of their own; all above share the last one.
_BARS = 12


def variety(log: Interactions) -> Analysis:
    """Count different ratings and categories of each user.

    A user with several ratings tells likes from loves though all of them are events alike; one with
    several categories has more than one taste.

    Args:
        log: A log with ratings, categories or both.

    Raises:
        DataError: It has neither.

    Example:
        >>> import polars as pl
        >>> from transcf import read_interactions
        >>> log = read_interactions(pl.DataFrame({
        ...     "user": ["ann", "ann", "bob"], "item": [1, 2, 2], "rating": [4, 5, 3]}))
        >>> variety(log).facts["users_with_two_or_more_ratings_percent"]
        50.0
    """
    counts: dict[str, npt.NDArray[np.int64]] = {}
    if log.ratings is not None:
        counts["ratings"] = _different_ratings(log)
    if log.categories is not None:
        counts["categories"] = _different_categories(log)
    if not counts:
        raise DataError("This log has neither ratings nor categories: there is nothing to count.")
    facts: dict[str, object] = {"users": int((log.by_user.counts > 0).sum())}
    if "ratings" in counts:
        facts["users_with_two_or_more_ratings_percent"] = _percent(counts["ratings"] >= 2)
    if "categories" in counts:
        facts["users_with_a_single_category_percent"] = _percent(counts["categories"] == 1)
    frame = pl.concat([_distribution(what, numbers) for what, numbers in counts.items()])

    def draw() -> list[Drawing]:
        return [_figure(what, numbers) for what, numbers in counts.items()]

    title = "Different ratings and categories of a user"
    note = "Categories: of the users with an item whose category is known."
    notes = (note,) if len(counts) > 1 else ()
    return Analysis("variety", title, frame, draw, facts, notes)


def _different_ratings(log: Interactions) -> npt.NDArray[np.int64]:
    """Number of different ratings of each user with events."""
    assert log.ratings is not None, "checked"
    values, codes = np.unique(log.ratings, return_inverse=True)
    keys = np.unique(log.user_rows.astype(np.int64) * len(values) + codes)
    found = np.bincount(keys // len(values), minlength=log.n_users)
    return found[log.by_user.counts > 0]


def _different_categories(log: Interactions) -> npt.NDArray[np.int64]:
    """Number of different categories of each user with an item that has one."""
    shelves = log.by_user.to_scipy() @ log.item_categories.to_scipy()
    found: npt.NDArray[np.int64] = np.diff(shelves.tocsr().indptr).astype(np.int64)
    return found[found > 0]


def _percent(is_so: npt.NDArray[np.bool_]) -> float:
    return round(100 * float(is_so.mean()), 4)


def _distribution(what: str, numbers: npt.NDArray[np.int64]) -> pl.DataFrame:
    times = np.bincount(numbers)
    some = np.flatnonzero(times)
    return pl.DataFrame(
        {
            "what": [what] * len(some),
            "different": some,
            "users": times[some],
            "users_percent": 100 * times[some] / len(numbers),
        }
    )


def _figure(what: str, numbers: npt.NDArray[np.int64]) -> Drawing:
    last = min(int(numbers.max()), _BARS)
    times = np.bincount(np.minimum(numbers, last), minlength=last + 1)[1:]
    names = [str(number) for number in range(1, last + 1)]
    if numbers.max() > last:
        names[-1] += " or more"
    shares = (100 * times / len(numbers)).tolist()
    title = f"Different {what} of a user"
    return bars(names, {"users": shares}, title=title, axis="% of the users", digits=1)
