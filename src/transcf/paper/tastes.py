"""Categories that a user is near to, and an example of two dimensions on synthetic data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import UNKNOWN, Id, Rows
from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.errors import DataError, UnknownIdError
from transcf.experiments.figures import (
    BASELINE,
    BEST,
    INK,
    Drawing,
    bars,
    canvas,
    finish,
    series_color,
)
from transcf.kernels import Array
from transcf.models.cml import CML
from transcf.models.mixture import TransCFMixture
from transcf.models.mixture.fitted import Mixture
from transcf.paper.analysis import Analysis
from transcf.paper.spaces import Space

_ITEMS, _USERS = 50, 200  # drawn items of a category, and users to compare with
_DRAWS = 200  # bootstrap samples of the items, for the interval of a strength
_NAMED, _SHOWN = 3, 12  # items named per category, and categories in the chart

#: Categories of the example, and the two that each kind of user likes.
CATEGORIES = ("books", "films", "games")
_KINDS = ((0, 1), (0, 2), (1, 2))
_TOY_ITEMS, _TOY_USERS, _TOY_HISTORY = 12, 20, 5  # per category, per kind, per user and category


def tastes(
    space: Space, log: Interactions, user: Id, *, top: int | None = None, random_state: int = 0
) -> Analysis:
    """Rank categories by their distance from a user after translation.

    The distance of a category is the mean squared distance of up to 50 drawn items of it. Its
    strength is the percentage of 200 drawn users who are farther from the same items, with a 95 %
    interval over which items were drawn.

    Args:
        space: Of a model.
        log: Has the categories of items.
        user: Id of a user with training interactions.
        top: Number of categories to keep, nearest first; None keeps all.
        random_state: Seed of the draws.

    Raises:
        DataError: The log has no categories of items that the model was fitted on.
        UnknownIdError: The user is unknown or has no training interactions.

    Example:
        >>> from transcf import TransCF, synthesize
        >>> from transcf.paper import space_of
        >>> log = synthesize(users=100, items=60, interactions=1500)
        >>> found = tastes(space_of(TransCF(dim=8, epochs=3).fit(log)), log, "u001", top=2)
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
    frame = pl.DataFrame(rows).sort("distance", "category").head(top or len(rows))
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


def toy_log(seed: int = 0) -> Interactions:
    """Make a log: user "books + films 0" has five books and five films, and so on."""
    generator = np.random.default_rng(seed)
    users, items = [], []
    for kind in _KINDS:
        for number in range(_TOY_USERS):
            name = f"{' + '.join(CATEGORIES[taste] for taste in kind)} {number}"
            for taste in kind:
                chosen = np.sort(generator.choice(_TOY_ITEMS, _TOY_HISTORY, replace=False))
                users += [name] * _TOY_HISTORY
                items += [f"{CATEGORIES[taste]} {item:02}" for item in chosen]
    return read_interactions(pl.DataFrame({"user_id": users, "item_id": items}))


def toy(*, random_state: int = 0) -> Analysis:
    """Fit CML and TransCFMixture in two dimensions, and draw where a user of two tastes is.

    The table has the mean distance of that user from the items of each category: in CML, in the
    mixture before translation, and after it.
    """
    log = toy_log(random_state)
    cml = CML(
        dim=2, epochs=300, learning_rate=0.1, negatives=1, rank_weighting=False,
        random_state=random_state,
    ).fit(log)  # fmt: skip
    mixture = TransCFMixture(
        dim=2, epochs=200, learning_rate=0.02, shared_negatives=100, random_state=random_state
    ).fit(log)
    learned = mixture._own()
    assert isinstance(learned, Mixture)
    user = f"{CATEGORIES[0]} + {CATEGORIES[1]} 0"
    row = int(mixture.users_.rows([user])[0])
    kinds = [str(item).partition(" ")[0] for item in log.items.series.to_list()]
    history, own = learned.known.histories[row], learned.users[row]
    gain = learned.settings.tau / (learned.settings.tau + learned.settings.beta)
    moved = own + gain * (learned.history[history] - own)
    rows = []
    for taste in CATEGORIES:
        items = np.flatnonzero([kind == taste for kind in kinds]).astype(np.int32)
        r = learned.translations(np.full(len(items), row, np.int32), items)
        rows.append(
            {
                "taste": taste,
                "has": int(np.isin(history, items).sum()),
                "CML": _mean_distance(cml.user_vectors_[row], cml.item_vectors_[items]),
                "mixture_before": _mean_distance(own, learned.items[items]),
                "mixture_moved": _mean_distance(own + r, learned.items[items]),
            }
        )

    def draw() -> list[Drawing]:
        moving = "TransCFMixture: moved toward each item of the history"
        still = "CML: one point between both tastes"
        return [
            _plane(still, cml.item_vectors_, kinds, cml.user_vectors_[row], np.empty((0, 2))),
            _plane(moving, learned.items, kinds, own, moved),
        ]

    notes = (
        "Mean distance from the items of a category. The user has items of the first two. The "
        "published translation is too short to be seen.",
    )
    title = f"A user with two tastes ({CATEGORIES[0]}, {CATEGORIES[1]}) in two dimensions"
    return Analysis("toy", title, pl.DataFrame(rows), draw, {"user_id": user}, notes)


def _mean_distance(point: Array, items: Array) -> float:
    return float(np.linalg.norm(items - point, axis=1).mean())


def _plane(title: str, items: Array, kinds: Sequence[str], user: Array, moved: Array) -> Drawing:
    """Draw items (n, 2) by category, a user, and arrows to translated positions (m, 2)."""
    with canvas(3.9) as (figure, axes):
        for number, kind in enumerate(CATEGORIES):
            places = items[[own == kind for own in kinds]]
            color, marker = series_color(number), "osD"[number % 3]
            axes.plot(*places.T, marker, color=color, ms=5, alpha=0.85, label=kind)
        for place in moved:
            arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.8, "alpha": 0.7}
            axes.annotate("", tuple(place), tuple(user), arrowprops=arrow)
        if len(moved):
            axes.plot(*moved.T, "o", color=INK, markersize=3, label="moved")
        axes.plot(*user, "*", color=INK, markersize=13, label="user")
        axes.set_aspect("equal", adjustable="datalim")
        axes.margins(0.12)
        axes.grid()
        figure.legend(loc="outside lower center", ncols=5)
        alt = f"{title}: items of {', '.join(CATEGORIES)}, a user, and {len(moved)} arrows."
        return finish(figure, title, alt)
