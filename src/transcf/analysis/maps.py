"""Vectors of pairs by category: maps of them (t-SNE), and how alike those of two categories are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.analysis.classes import frequent_categories
from transcf.analysis.figures import map_of_groups
from transcf.analysis.pairs import Pairs
from transcf.analysis.result import Analysis
from transcf.analysis.spaces import Space
from transcf.errors import DataError, MissingExtraError
from transcf.kernels import Array
from transcf.pages import Drawing
from transcf.pages.figures import heat_map
from transcf.parallel import thread_count

#: Pairs of each category.
EACH = 200
#: Of t-SNE: about how many neighbours count as near.
PERPLEXITY = 30.0


def by_category(
    pairs: Pairs, generator: np.random.Generator, each: int = EACH
) -> tuple[list[str], Pairs, npt.NDArray[np.int64]]:
    """Draw pairs of the most frequent categories, as many of each, or all where there are fewer.

    Returns:
        Names of the categories, the pairs, and for each of them the number of its category.

    Raises:
        DataError: There are fewer than two categories.
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
    spaces: Mapping[str, Space], pairs: Pairs, *, each: int = EACH, random_state: int = 0
) -> Analysis:
    """Lay vectors of pairs out on a plane by t-SNE, one map for each model.

    How well a map keeps categories together is given by a number: the share of pairs whose nearest
    neighbour is of the same category, in all dimensions and on the map. Neighbours that are pairs
    of the same item or of the same user are also looked at left out: such pairs share a vector.

    Args:
        spaces: Models with the same ids by name.
        pairs: Observed ones with categories, in the rows that all models share.
        each: Pairs of each category.
        random_state: Of the draw and of the maps.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    names, some, labels = by_category(pairs, np.random.default_rng(random_state), each)
    placed = {}
    rows = []
    for name, space in spaces.items():
        vectors = space.vectors(some.users, some.items)
        placed[name] = _tsne(vectors, random_state)
        strange = _strangers(some)
        rows.append(
            {
                "model": name,
                "vectors": "r" if space.has_translations else "a-b",
                "same_category_percent": _same_neighbor(vectors, labels),
                "same_on_the_map_percent": _same_neighbor(placed[name], labels),
                "same_among_strangers_percent": _same_neighbor(vectors, labels, strange),
            }
        )

    def draw() -> list[Drawing]:
        return [
            map_of_groups(
                [places[labels == number] for number in range(len(names))],
                names,
                title=f"{row['model']}: map of {row['vectors']} by category",
            )
            for row, places in zip(rows, placed.values(), strict=True)
        ]

    sizes = np.bincount(labels)
    facts = {"categories": names, "pairs": len(some), "perplexity": _perplexity(len(some))}
    notes = (
        f"{len(some):,} pairs, {sizes.min():,} to {sizes.max():,} of each category. Shares are of "
        "pairs whose nearest neighbour is of the same category: among all vectors, on the map, and "
        "among vectors of pairs with another user and another item.",
    )
    title = "Vectors of pairs by category"
    return Analysis("map", title, pl.DataFrame(rows), draw, facts, notes)


def likeness(space: Space, pairs: Pairs, *, each: int = EACH, random_state: int = 0) -> Analysis:
    """Work out how alike vectors of two categories are: their mean cosine, by the largest one.

    Args:
        space: Of a model; its translations, or a-b where it has none.
        pairs: Observed ones with categories.
        each: Pairs of each category, the same as those of `maps` for the same seed.
        random_state: Of the draw.
    """
    names, some, labels = by_category(pairs, np.random.default_rng(random_state), each)
    means = mean_cosines(space.vectors(some.users, some.items), labels, len(names))
    scaled = means / max(float(means.max()), 1e-12)
    own, others = np.diag(scaled), scaled[~np.eye(len(names), dtype=bool)]
    first_in_row = int((scaled.argmax(axis=1) == np.arange(len(names))).sum())
    facts = {
        "largest_mean_cosine": float(means.max()),
        "within_a_category": float(own.mean()),
        "between_categories": float(others.mean()),
        "rows_with_the_largest_on_the_diagonal": first_in_row,
        "categories": len(names),
    }
    frame = pl.DataFrame({"category": names} | dict(zip(names, scaled.T.tolist(), strict=True)))
    vectors = "translations" if space.has_translations else "a-b"
    title = f"{space.name}: how alike {vectors} of two categories are"

    def draw() -> list[Drawing]:
        short = [_short(name) for name in names]
        columns = [str(number) for number in range(1, len(names) + 1)]
        rows = [f"{number}  {name}" for name, number in zip(short, columns, strict=True)]
        return [
            heat_map(
                rows, columns, scaled.tolist(), title=title, row_axis="", digits=2,
                column_axis="category, by its number",
            )
        ]  # fmt: skip

    notes = (
        f"Mean cosine between vectors of two pairs, divided by the largest, {means.max():.3f}. "
        f"{first_in_row} of {len(names)} categories are most like themselves.",
    )
    return Analysis("likeness", title, frame, draw, facts, notes)


def mean_cosines(vectors: Array, labels: npt.NDArray[np.int64], number: int) -> Array:
    """Return the mean cosine between vectors of two classes, (number, number) float64.

    Within a class a vector is not compared with itself.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    units = vectors / np.maximum(lengths, 1e-30)
    sums = np.array([units[labels == label].sum(axis=0) for label in range(number)])
    sizes = np.bincount(labels, minlength=number).astype(np.float64)
    cosines: Array = sums @ sums.T
    compared = np.outer(sizes, sizes)
    own = np.diag_indices(number)
    cosines[own] -= [np.square(units[labels == label]).sum() for label in range(number)]
    compared[own] -= sizes
    means: Array = cosines / np.maximum(compared, 1)
    return means


def _perplexity(number: int) -> float:
    """That of the paper, or what so few points allow."""
    return min(PERPLEXITY, max(1.0, (number - 1) / 3))


def _tsne(vectors: Array, seed: int) -> Array:
    """Lay vectors out on a plane, (n, 2)."""
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


def _strangers(pairs: Pairs) -> npt.NDArray[np.bool_]:
    """Tell which two pairs have neither the user nor the item in common, (n, n)."""
    same: npt.NDArray[np.bool_] = (pairs.users[:, None] == pairs.users) | (
        pairs.items[:, None] == pairs.items
    )
    return ~same


def _same_neighbor(
    vectors: Array, labels: npt.NDArray[np.int64], allowed: npt.NDArray[np.bool_] | None = None
) -> float:
    """Share of vectors whose nearest other one has the same label, in per cent."""
    values = vectors.astype(np.float64)
    squares = np.square(values).sum(axis=1)
    away = squares[:, None] + squares - 2 * values @ values.T
    np.fill_diagonal(away, np.inf)
    if allowed is not None:
        away[~allowed] = np.inf
    return 100 * float((labels[away.argmin(axis=1)] == labels).mean())


def _short(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:17]}…"
