"""Categories that a user is near to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import UNKNOWN, Id, Rows
from transcf.data.interactions import Interactions
from transcf.errors import DataError, UnknownIdError
from transcf.experiments.figures import BASELINE, BEST, Drawing, bars
from transcf.kernels import Array
from transcf.paper.analysis import Analysis
from transcf.paper.spaces import Space

_ITEMS, _USERS = 50, 200  # drawn items of a category, and users to compare with
_DRAWS = 200  # bootstrap samples of the items, for the interval of a strength
_NAMED, _SHOWN = 3, 12  # items named per category, and categories in the chart


def tastes(space: Space, log: Interactions, user: Id, *, random_state: int = 0) -> Analysis:
    """Rank categories by their distance from a user after translation.

    The distance of a category is the mean squared distance of up to 50 drawn items of it. Its
    strength is the percentage of 200 drawn users who are farther from the same items, with a 95 %
    interval over which items were drawn.

    Example:
        >>> from transcf import TransCF, synthesize
        >>> from transcf.paper import space_of
        >>> log = synthesize(users=100, items=60, interactions=1500)
        >>> found = tastes(space_of(TransCF(dim=8, epochs=3).fit(log)), log, "u001")
        >>> found.frame.columns[:4]
        ['category', 'distance', 'strength_percent', 'low']
    """
    row = int(space.known.users.require([user], "user")[0])
    if not space.known.active[row]:
        raise UnknownIdError(f"user {user!r} has no training interactions, so no place.")
    names, members = _category_items(space, log)
    generator = np.random.default_rng(random_state)
    drawn = [_draw(own, _ITEMS, generator) for own in members]
    active = np.flatnonzero(space.known.active)
    others = _draw(active[active != row], _USERS, generator)
    history = space.known.histories[row]
    rows = []
    for name, own, some in zip(names, members, drawn, strict=True):
        users = np.append(others, row).astype(np.int32)
        away = space.nearness(np.repeat(users, len(some)), np.tile(some, len(users)))
        away = away.reshape(len(users), len(some))
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
    frame = pl.DataFrame(rows).sort("distance", "category")
    facts: dict[str, Any] = {"user_id": user, "model": space.name, "history": len(history)}
    notes = (
        "distance: mean squared distance after translation to drawn items of the category. "
        "strength: per cent of other users who are farther from the same items; low and high: 95 % "
        "interval over which items were drawn. items: how many of the category the user has; "
        "behind: the nearest of them.",
    )
    title = f"Tastes of user {user} by {space.name}"
    return Analysis("tastes", title, frame, lambda: [_tastes_chart(title, frame)], facts, notes)


def _category_items(space: Space, log: Interactions) -> tuple[list[str], list[Rows]]:
    """Return the categories and the model's rows of their items; empty categories are left out."""
    if log.categories is None:
        raise DataError(
            "This data has no categories of items: give some with --read categories=FILE."
        )
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


def _strength(away: Array, generator: np.random.Generator) -> tuple[float, float, float]:
    """Return the share of rows that are farther than the last on average, with its interval."""
    n = away.shape[1]
    if len(away) < 2:
        return 50.0, 0.0, 100.0
    draws = generator.multinomial(n, np.full(n, 1 / n), size=_DRAWS) / n
    means = away @ np.vstack([np.full(n, 1 / n), draws]).T
    farther = 100 * (means[:-1] > means[-1]).mean(axis=0)
    low, high = np.percentile(farther[1:], [2.5, 97.5])
    return float(farther[0]), float(low), float(high)


def _nearest(space: Space, user: int, items: Rows) -> list[Id]:
    away = space.nearness(np.full(len(items), user, np.int32), items)
    nearest = items[np.argsort(away, kind="stable")[:_NAMED]]
    found: list[Id] = space.known.items.ids(nearest).to_list()
    return found


def _tastes_chart(title: str, frame: pl.DataFrame) -> Drawing:
    top = frame.head(_SHOWN)
    return bars(
        top["category"].to_list(),
        {"strength": top["strength_percent"].to_list()},
        errors={"strength": ((top["high"] - top["low"]) / 2).to_list()},
        title=f"{title}, nearest category first",
        axis="strength: % of other users who are farther",
        groups=["has items of it" if items else "has none" for items in top["items"].to_list()],
        colors={"has items of it": BEST, "has none": BASELINE},
        digits=0,
    )
