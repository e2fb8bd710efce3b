"""Which tastes somebody has: categories by nearness, how strong, how sure, and by which items."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.analysis.result import Analysis
from transcf.analysis.spaces import Space
from transcf.data.ids import UNKNOWN, Id, Rows
from transcf.data.interactions import Interactions
from transcf.errors import DataError, UnknownIdError
from transcf.kernels import Array
from transcf.pages import Drawing
from transcf.pages.figures import BASELINE, BEST, bars

#: Items of each category that distances are measured to, and users to compare with; both drawn.
_ITEMS, _PEOPLE = 50, 200
#: Draws of items with replacement, for the interval of a strength.
_DRAWS = 200
#: Items of the history that are named for each category, and categories that a figure shows.
_NAMED, _SHOWN = 3, 12


def tastes(
    space: Space, log: Interactions, user: Id, *, top: int | None = None, random_state: int = 0
) -> Analysis:
    """Say how near somebody is to each category after translation.

    The distance of a category is the mean squared distance of up to 50 drawn items of it. Its
    strength is the percentage of 200 drawn users who are farther from the same items, with a 95 %
    interval over which items were drawn.

    Args:
        space: Of a model.
        log: Says which categories items have.
        user: Id of a user with training interactions.
        top: Categories to keep, nearest first; None keeps all.
        random_state: Of the draws.

    Raises:
        DataError: The log has no categories of items that the model knows.
        UnknownIdError: The user is unknown or has no training interactions.

    Example:
        >>> from transcf import TransCF, synthesize
        >>> from transcf.analysis import space_of
        >>> log = synthesize(users=100, items=60, interactions=1500)
        >>> found = tastes(space_of(TransCF(dim=8, epochs=3).fit(log)), log, "u001", top=2)
        >>> found.frame.columns[:4]
        ['category', 'distance', 'strength_percent', 'low']
    """
    row = int(space.known.users.require([user], "user")[0])
    if not space.known.active[row]:
        raise UnknownIdError(f"user {user!r} has no training interactions, so no place.")
    names, members = _members(space, log)
    generator = np.random.default_rng(random_state)
    drawn = [_draw(own, _ITEMS, generator) for own in members]
    active = np.flatnonzero(space.known.active)
    others = _draw(active[active != row], _PEOPLE, generator)
    history = space.known.histories[row]
    rows = []
    for name, own, some in zip(names, members, drawn, strict=True):
        away = _away(space, np.append(others, row), some)
        strength, low, high = _strength(away, generator)
        behind = history[np.isin(history, own)]
        rows.append(
            {
                "category": name,
                "distance": float(away[-1].mean()),
                "strength_percent": strength,
                "low": low,
                "high": high,
                "items": len(behind),
                "behind": ", ".join(map(str, _nearest(space, row, behind))),
            }
        )
    frame = pl.DataFrame(rows).sort("distance", "category").head(top or len(rows))
    facts: dict[str, Any] = {"user_id": user, "model": space.name, "history": len(history)}
    notes = (
        "distance: mean squared distance after translation to drawn items of the category. "
        "strength: per cent of other users who are farther from the same items; low and high: 95 % "
        "interval over which items were drawn. items: how many of the category the user has; "
        "behind: the nearest of them.",
    )
    title = f"Tastes of user {user} by {space.name}"
    return Analysis("tastes", title, frame, lambda: [_figure(title, frame)], facts, notes)


def _members(space: Space, log: Interactions) -> tuple[list[str], list[Rows]]:
    """Return categories and the model's rows of their items, those without any left out."""
    if log.categories is None:
        raise DataError("This data has no categories of items: give some with --categories.")
    items = space.known.items.rows(log.items.series)
    trained = space.known.item_counts > 0
    of_items = log.item_categories
    names, members = [], []
    for place, name in enumerate(log.category_names):
        rows = items[of_items.entry_rows[of_items.indices == place]]
        rows = rows[rows != UNKNOWN]
        rows = np.unique(rows[trained[rows]]).astype(np.int32)
        if len(rows):
            names.append(name)
            members.append(rows)
    if not names:
        raise DataError(f"{space.name} knows none of the items that this data has categories of.")
    return names, members


def _draw(rows: npt.NDArray[Any], number: int, generator: np.random.Generator) -> Rows:
    few = len(rows) <= number
    drawn = rows if few else np.sort(generator.choice(rows, number, replace=False))
    return drawn.astype(np.int32)


def _away(space: Space, users: npt.NDArray[Any], items: Rows) -> Array:
    """Squared distances of users from items after translation, (n_users, n_items)."""
    people = np.repeat(users.astype(np.int32), len(items))
    found = space.nearness(people, np.tile(items, len(users)))
    return found.reshape(len(users), len(items))


def _strength(away: Array, generator: np.random.Generator) -> tuple[float, float, float]:
    """Share of the first rows that are farther than the last on average, with its interval."""
    n = away.shape[1]
    if len(away) < 2:
        return 50.0, 0.0, 100.0
    draws = generator.multinomial(n, np.full(n, 1 / n), size=_DRAWS) / n
    means = away @ np.vstack([np.full(n, 1 / n), draws]).T
    farther = 100 * (means[:-1] > means[-1]).mean(axis=0)
    low, high = np.percentile(farther[1:], [2.5, 97.5])
    return float(farther[0]), float(low), float(high)


def _nearest(space: Space, user: int, items: Rows) -> list[Id]:
    """Ids of the nearest of some items."""
    away = space.nearness(np.full(len(items), user, np.int32), items)
    nearest = items[np.argsort(away, kind="stable")[:_NAMED]]
    found: list[Id] = space.known.items.ids(nearest).to_list()
    return found


def _figure(title: str, frame: pl.DataFrame) -> Drawing:
    shown = frame.head(_SHOWN)
    strengths = shown["strength_percent"].to_list()
    half = ((shown["high"] - shown["low"]) / 2).to_list()
    groups = ["has items of it" if items else "has none" for items in shown["items"].to_list()]
    return bars(
        shown["category"].to_list(),
        {"strength": strengths},
        errors={"strength": half},
        title=f"{title}, nearest category first",
        axis="strength: % of other users who are farther",
        groups=groups,
        colors={"has items of it": BEST, "has none": BASELINE},
        digits=0,
    )
