"""Analyses of categories: of users, of vectors of pairs, and those that a user is near to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import UNKNOWN, Id, Rows
from transcf.data.interactions import Interactions
from transcf.errors import DataError, UnknownIdError, needs_extra
from transcf.experiments import pages
from transcf.kernels import Array
from transcf.paper.pairs import Labels, frequent_categories
from transcf.paper.spaces import Analysis, Mask, Pairs, Space
from transcf.parallel import thread_count

_EACH = 200  # pairs of each category
_PERPLEXITY = 30.0
_MAX_BARS = 12  # of the chart of variety
_ITEMS, _USERS = 50, 200  # drawn items of a category, and users to compare with
_SHOWN = 12  # categories in the chart of tastes


# -- variety of users --------------------------------------------------------------------------


def variety(log: Interactions) -> Analysis:
    """Count the different ratings and categories of each user; a log without both is an error."""
    events = pl.DataFrame({"user": log.user_rows, "item": log.item_rows})
    counted: dict[str, pl.Series] = {}
    facts: dict[str, object] = {"users": events["user"].n_unique()}
    if log.ratings is not None:
        found = counted["ratings"] = _different(events.with_columns(value=log.ratings))
        several = 100 * float((found.to_numpy() >= 2).mean())
        facts["users_with_two_or_more_ratings_percent"] = round(several, 4)
    if log.categories is not None:
        items = log.items.rows(log.categories["item_id"])
        of_items = pl.DataFrame({"item": items, "value": log.categories["category"]})
        found = counted["categories"] = _different(events.join(of_items, on="item"))
        single = 100 * float((found.to_numpy() == 1).mean())
        facts["users_with_a_single_category_percent"] = round(single, 4)
    if not counted:
        raise DataError("This log has neither ratings nor categories: there is nothing to count.")
    frames = {what: _distribution(what, found) for what, found in counted.items()}
    return Analysis(
        "variety",
        "Different ratings and categories of a user",
        pl.concat(frames.values()),
        lambda: [_variety_chart(what, frame) for what, frame in frames.items()],
        facts,
        ("Categories: of the users with an item whose category is known.",),
    )


def _different(values: pl.DataFrame) -> pl.Series:
    """Return the number of different values of each user."""
    return values.group_by("user").agg(different=pl.col("value").n_unique())["different"]


def _distribution(what: str, different: pl.Series) -> pl.DataFrame:
    users = different.value_counts(name="users").sort("different")
    percent = 100 * pl.col("users") / len(different)
    return users.select(pl.lit(what).alias("what"), "different", "users", users_percent=percent)


def _variety_chart(what: str, frame: pl.DataFrame) -> pages.Drawing:
    top = frame.head(_MAX_BARS)
    shares = {"users": top["users_percent"].to_list()}
    names = top["different"].cast(pl.String).to_list()
    title = f"Different {what} of a user (up to {names[-1]})"
    return pages.bars(names, shares, title=title, axis="% of the users", digits=1)


# -- vectors of pairs ---------------------------------------------------------------------------


def by_category(
    pairs: Pairs, generator: np.random.Generator, each: int = _EACH
) -> tuple[list[str], Pairs, Labels]:
    """Draw up to `each` pairs of each of the most frequent categories.

    Returns names of the categories, the pairs, and the index of the category of each pair.
    """
    names = frequent_categories(pairs)
    if len(names) < 2:
        raise DataError("These pairs have fewer than two categories: there is nothing to map.")
    drawn, labels = [], []
    for place, name in enumerate(names):
        own = np.flatnonzero(pairs.labels == pairs.names.index(name))
        drawn.append(generator.choice(own, min(each, len(own)), replace=False))
        labels.append(np.full(len(drawn[-1]), place))
    return names, pairs.take(np.concatenate(drawn)), np.concatenate(labels)


def maps(
    spaces: Mapping[str, Space], pairs: Pairs, *, each: int = _EACH, random_state: int = 0
) -> Analysis:
    """Map vectors of pairs to a plane by t-SNE, one map per model.

    The table has the share of pairs whose nearest neighbour is of the same category: among all
    vectors, on the map, and among pairs with another user and another item. Up to `each` pairs of
    each category are used. Needs scikit-learn.
    """
    names, some, labels = by_category(pairs, np.random.default_rng(random_state), each)
    has_common_user, has_common_item = (rows[:, None] == rows for rows in (some.users, some.items))
    perplexity = min(_PERPLEXITY, max(1.0, (len(some) - 1) / 3))
    placed, rows = {}, []
    for name, space in spaces.items():
        vectors = space.vectors(some.users, some.items)
        placed[name] = _tsne(vectors, perplexity, random_state)
        strangers = ~(has_common_user | has_common_item)
        rows.append(
            {
                "model": name,
                "vectors": "r" if space.has_translations else "a-b",
                "same_category_percent": _same_neighbor(vectors, labels),
                "same_on_the_map_percent": _same_neighbor(placed[name], labels),
                "same_among_strangers_percent": _same_neighbor(vectors, labels, strangers),
            }
        )

    def draw() -> list[pages.Drawing]:
        return [
            _map_chart(
                places, labels, names, f"{row['model']}: map of {row['vectors']} by category"
            )
            for row, places in zip(rows, placed.values(), strict=True)
        ]

    facts = {"categories": names, "pairs": len(some), "perplexity": perplexity}
    notes = (
        f"Up to {each} pairs of each category. Shares: the nearest neighbour is of the same "
        "category, among all vectors, on the map, and among vectors of pairs with another user and "
        "another item.",
    )
    title = "Vectors of pairs by category"
    return Analysis("map", title, pl.DataFrame(rows), draw, facts, notes)


def likeness(space: Space, pairs: Pairs, *, each: int = _EACH, random_state: int = 0) -> Analysis:
    """Compute the mean cosine between vectors of two categories, divided by the largest mean.

    Pairs are those of `maps`; vectors are translations, or a-b for a model without translations.
    """
    names, some, labels = by_category(pairs, np.random.default_rng(random_state), each)
    means = mean_cosines(space.vectors(some.users, some.items), labels, len(names))
    scaled = means / max(float(means.max()), 1e-12)
    is_own = np.eye(len(names), dtype=bool)
    facts = {
        "largest_mean_cosine": float(means.max()),
        "within_a_category": float(scaled[is_own].mean()),
        "between_categories": float(scaled[~is_own].mean()),
        "rows_with_the_largest_on_the_diagonal": int(is_own[scaled.argmax(axis=1)].trace()),
        "categories": len(names),
    }
    frame = pl.DataFrame({"category": names} | dict(zip(names, scaled.T.tolist(), strict=True)))
    vectors = "translations" if space.has_translations else "a-b"
    title = f"{space.name}: how alike {vectors} of two categories are"

    def draw() -> list[pages.Drawing]:
        columns = [str(number) for number in range(1, len(names) + 1)]
        rows = [f"{number}  {name[:18]}" for name, number in zip(names, columns, strict=True)]
        axes = {"row_axis": "", "column_axis": "category, by its number"}
        return [pages.heat_map(rows, columns, scaled.tolist(), title=title, digits=2, **axes)]

    notes = ("Mean cosine between vectors of two pairs, divided by the largest.",)
    return Analysis("likeness", title, frame, draw, facts, notes)


def mean_cosines(vectors: Array, labels: Labels, number: int) -> Array:
    """Return the mean cosine between vectors of two classes, (number, number) float64.

    Within a class, a vector is not compared with itself.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    units = vectors / np.maximum(lengths, 1e-30)
    belongs = np.eye(number)[labels]  # (n, number)
    sums, sizes = belongs.T @ units, belongs.sum(axis=0)
    cosines: Array = sums @ sums.T - np.diag(belongs.T @ np.square(units).sum(axis=1))
    means: Array = cosines / np.maximum(np.outer(sizes, sizes) - np.diag(sizes), 1)
    return means


def _tsne(vectors: Array, perplexity: float, seed: int) -> Array:
    """Map vectors to a plane, (n, 2)."""
    with needs_extra("Maps of vectors", "plots"):
        from sklearn.manifold import TSNE
    # Lengths of a thousandth would be lost in the tolerances of the method.
    scaled = vectors / max(float(vectors.std()), 1e-30)
    method = TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=thread_count())
    placed: Array = method.fit_transform(scaled.astype(np.float32))
    return placed


def _same_neighbor(vectors: Array, labels: Labels, allowed: Mask | None = None) -> float:
    """Return the share of vectors whose nearest other one has the same label, in per cent."""
    values = vectors.astype(np.float64)
    squares = np.square(values).sum(axis=1)
    away = squares[:, None] + squares - 2 * values @ values.T
    np.fill_diagonal(away, np.inf)
    if allowed is not None:
        away[~allowed] = np.inf
    return 100 * float((labels[away.argmin(axis=1)] == labels).mean())


def _map_chart(places: Array, labels: Labels, names: Sequence[str], title: str) -> pages.Drawing:
    """Draw points by category; categories beyond the number of colours have open triangles."""
    with pages.canvas(5.0) as (figure, axes):
        for number, name in enumerate(names):
            marker, fill = ("^", "none") if number >= len(pages.SERIES) else ("o", "full")
            some = places[labels == number]
            axes.plot(*some.T, marker, ms=3, fillstyle=fill, mew=0.5, label=name)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        return pages.finish(figure, title)


# -- tastes of a user ---------------------------------------------------------------------------


def tastes(space: Space, log: Interactions, user: Id, *, random_state: int = 0) -> Analysis:
    """Rank categories by their distance from a user after translation.

    The distance of a category is the mean squared distance of up to 50 drawn items of it. Its
    strength is the percentage of 200 drawn users who are farther from the same items.

    Example:
        >>> from transcf import TransCF, synthesize
        >>> from transcf.paper import space_of
        >>> log = synthesize(users=100, items=60, interactions=1500)
        >>> found = tastes(space_of(TransCF(dim=8, epochs=3).fit(log)), log, "u001")
        >>> found.frame.columns
        ['category', 'distance', 'strength_percent', 'items']
    """
    row = int(space.known.users.require([user], "user")[0])
    if not space.known.active[row]:
        raise UnknownIdError(f"user {user!r} has no training interactions, so no place.")
    members = _category_items(space, log)
    generator = np.random.default_rng(random_state)
    drawn = {name: _draw(own, _ITEMS, generator) for name, own in members.items()}
    active = np.flatnonzero(space.known.active)
    others = _draw(active[active != row], _USERS, generator)
    history = space.known.histories[row]
    rows = []
    for name, some in drawn.items():
        users = np.append(others, row).astype(np.int32)
        away = space.nearness(np.repeat(users, len(some)), np.tile(some, len(users)))
        means = away.reshape(len(users), len(some)).mean(axis=1)
        farther = (means[:-1] > means[-1]).mean() if len(others) else 0.5
        items = int(np.isin(history, members[name]).sum())
        rows.append((name, float(means[-1]), 100 * float(farther), items))
    columns = ["category", "distance", "strength_percent", "items"]
    frame = pl.DataFrame(rows, columns, orient="row").sort("distance", "category")
    facts: dict[str, Any] = {"user_id": user, "model": space.name, "history": len(history)}
    notes = (
        "distance: mean squared distance after translation to drawn items of the category. "
        "strength: per cent of other users who are farther from the same items. items: how many of "
        "the category the user has.",
    )
    title = f"Tastes of user {user} by {space.name}"
    return Analysis("tastes", title, frame, lambda: [_tastes_chart(title, frame)], facts, notes)


def _category_items(space: Space, log: Interactions) -> dict[str, Rows]:
    """Return the model's rows of the items of each category; empty categories are left out."""
    if log.categories is None:
        raise DataError(
            "This data has no categories of items: give some with --read categories=FILE."
        )
    rows = space.known.items.rows(log.categories["item_id"])
    trained = (rows != UNKNOWN) & (space.known.item_counts[rows] > 0)
    rows, names = rows[trained], log.categories["category"].to_numpy()[trained]
    if not len(rows):
        raise DataError(f"{space.name} knows none of the items that this data has categories of.")
    return {name: np.unique(rows[names == name]) for name in sorted(set(names))}


def _draw(rows: npt.NDArray[Any], number: int, generator: np.random.Generator) -> Rows:
    few = len(rows) <= number
    drawn = rows if few else np.sort(generator.choice(rows, number, replace=False))
    return drawn.astype(np.int32)


def _tastes_chart(title: str, frame: pl.DataFrame) -> pages.Drawing:
    top = frame.head(_SHOWN)
    return pages.bars(
        top["category"].to_list(),
        {"strength": top["strength_percent"].to_list()},
        title=f"{title}, nearest category first",
        axis="strength: % of other users who are farther",
        groups=["has items of it" if items else "has none" for items in top["items"]],
        colors={"has items of it": pages.BEST, "has none": pages.BASELINE},
        digits=0,
    )
