"""Vectors of pairs by category: t-SNE maps, and mean cosines between categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from transcf.errors import DataError, MissingExtraError
from transcf.experiments.figures import SERIES, SURFACE, Drawing, canvas, finish, heat_map
from transcf.kernels import Array
from transcf.paper.analysis import Analysis
from transcf.paper.classes import Labels, frequent_categories
from transcf.paper.spaces import Mask, Pairs, Space
from transcf.parallel import thread_count

_EACH = 200  # pairs of each category
_PERPLEXITY = 30.0


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
    placed, rows = {}, []
    for name, space in spaces.items():
        vectors = space.vectors(some.users, some.items)
        placed[name] = _tsne(vectors, random_state)
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

    def draw() -> list[Drawing]:
        return [
            _map_chart(
                [places[labels == number] for number in range(len(names))],
                names,
                f"{row['model']}: map of {row['vectors']} by category",
            )
            for row, places in zip(rows, placed.values(), strict=True)
        ]

    sizes = np.bincount(labels)
    facts = {"categories": names, "pairs": len(some), "perplexity": _perplexity(len(some))}
    notes = (
        f"{len(some):,} pairs, {sizes.min():,} to {sizes.max():,} of each category. Shares: the "
        "nearest neighbour is of the same category, among all vectors, on the map, and among "
        "vectors of pairs with another user and another item.",
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
    own, others = np.diag(scaled), scaled[~np.eye(len(names), dtype=bool)]
    largest_own = int((scaled.argmax(axis=1) == np.arange(len(names))).sum())
    facts = {
        "largest_mean_cosine": float(means.max()),
        "within_a_category": float(own.mean()),
        "between_categories": float(others.mean()),
        "rows_with_the_largest_on_the_diagonal": largest_own,
        "categories": len(names),
    }
    frame = pl.DataFrame({"category": names} | dict(zip(names, scaled.T.tolist(), strict=True)))
    vectors = "translations" if space.has_translations else "a-b"
    title = f"{space.name}: how alike {vectors} of two categories are"

    def draw() -> list[Drawing]:
        columns = [str(number) for number in range(1, len(names) + 1)]
        short = [name if len(name) <= 18 else f"{name[:17]}…" for name in names]
        rows = [f"{number}  {name}" for name, number in zip(short, columns, strict=True)]
        return [
            heat_map(
                rows, columns, scaled.tolist(), title=title, row_axis="", digits=2,
                column_axis="category, by its number",
            )
        ]  # fmt: skip

    notes = (
        f"Mean cosine between vectors of two pairs, divided by the largest, {means.max():.3f}. "
        f"Rows with the largest value on the diagonal: {largest_own} of {len(names)}.",
    )
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


def _perplexity(number: int) -> float:
    return min(_PERPLEXITY, max(1.0, (number - 1) / 3))


def _tsne(vectors: Array, seed: int) -> Array:
    """Map vectors to a plane, (n, 2)."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise MissingExtraError("Maps of vectors", "plots") from error
    # Lengths of a thousandth would be lost in the tolerances of the method.
    scaled = vectors / max(float(vectors.std()), 1e-30)
    method = TSNE(
        perplexity=_perplexity(len(vectors)), init="pca", random_state=seed, n_jobs=thread_count()
    )
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


def _map_chart(groups: Sequence[Array], names: Sequence[str], title: str) -> Drawing:
    """Draw groups of points, each named at the median of its points.

    Groups beyond the number of colours have open triangles.
    """
    with canvas(5.0) as (figure, axes):
        for number, places in enumerate(groups):
            color, is_repeat = SERIES[number % len(SERIES)], number >= len(SERIES)
            axes.plot(
                *places.T, "^" if is_repeat else "o", ms=2.6 if is_repeat else 2.2,
                mfc="none" if is_repeat else color, mec=color, mew=0.5 if is_repeat else 0.0,
                label=names[number],
            )  # fmt: skip
        for number, places in enumerate(groups):
            x, y = np.median(places, axis=0)
            axes.text(
                x, y, names[number], ha="center", va="center", fontsize=7,
                fontweight="bold",
                color=SERIES[number % len(SERIES)],
                bbox={"facecolor": SURFACE, "alpha": 0.75, "linewidth": 0, "pad": 0.8},
            )  # fmt: skip
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        figure.legend(loc="outside lower center", ncols=3, markerscale=1.8)
        sizes = sum(map(len, groups))
        alt = f"{title}: {sizes} points on a plane, of {len(names)} groups: {', '.join(names)}."
        return finish(figure, title, alt)
