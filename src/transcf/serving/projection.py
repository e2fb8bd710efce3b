"""Items and users in two dimensions, for the map of the explorer page."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import svds

from transcf.data.ids import UNKNOWN, Rows

if TYPE_CHECKING:
    from transcf.serving.model_version import ModelVersion
    from transcf.serving.ranking import ResolvedUser

Array = npt.NDArray[np.float64]

#: Past items whose translations are listed, those with the largest shares.
_MAX_TRANSLATIONS = 12
#: Decimals of coordinates.
_DIGITS = 5


class Projection2D:
    """A projection of the items of one model version.

    With item vectors, it is the plane of their two principal axes, on which users and translated
    users have positions, too. Other models use the leading singular vectors of the interaction
    matrix; a user is then at the mean of the items of the history.

    Args:
        version: The model version.
    """

    def __init__(self, version: ModelVersion) -> None:
        self._version = version

    @cached_property
    def _vectors(self) -> Array | None:
        vectors = self._version.scorer.arrays().get("item_vectors")
        if vectors is None or vectors.shape[1] < 2:
            return None
        return vectors.astype(np.float64)

    @cached_property
    def _axes(self) -> tuple[Array, Array, Array]:
        """Mean (d,), principal axes (d, 2) and explained variance ratios (2,) of item vectors.

        Items are weighted by their number of users: vectors of rare items vary most and say least.
        """
        assert self._vectors is not None, "only for models with item vectors"
        counts = self._version.data.item_counts
        mean = np.average(self._vectors, axis=0, weights=counts)
        centered = self._vectors - mean
        values, axes = np.linalg.eigh((centered.T * (counts / counts.sum())) @ centered)
        best = axes[:, ::-1][:, :2]
        best = best * np.where(best[np.abs(best).argmax(axis=0), [0, 1]] < 0, -1, 1)
        return mean, best, values[::-1][:2] / max(values.sum(), np.finfo(float).tiny)

    @cached_property
    def _positions(self) -> tuple[Array, Array]:
        """Item coordinates (n_items, 2) and explained variance ratios (2,)."""
        if self._vectors is not None:
            mean, axes, ratios = self._axes
            return (self._vectors - mean) @ axes, ratios
        return self._of_interactions()

    def _of_interactions(self) -> tuple[Array, Array]:
        """Project the interaction matrix, normalized by user and by item."""
        data = self._version.data
        weights = 1 / np.sqrt(np.maximum(1, data.seen.counts))
        matrix = data.seen.to_scipy(np.float64, np.repeat(weights, data.seen.counts))
        columns = np.sqrt(np.maximum(1, data.item_counts))
        scaled = matrix.multiply(1 / columns[None, :]).tocsr()
        size = min(scaled.shape)
        if size < 4:
            return np.zeros((len(data.items), 2)), np.zeros(2)
        start = np.ones(size) / np.sqrt(size)
        _, values, right = svds(scaled, k=3, v0=start, random_state=0)
        # The first singular vector reflects popularity only.
        positions = (right[::-1][1:3] * values[::-1][1:3, None]).T * np.sqrt(len(data.items))
        total = max(float((scaled.data**2).sum()), np.finfo(float).tiny)
        ratios = np.square(values[::-1][1:3]).astype(np.float64) / total
        return positions.astype(np.float64), ratios

    def points(self, limit: int) -> dict[str, Any]:
        """Return the items with the most users, in columns."""
        version = self._version
        positions, ratios = self._positions
        rows = version.popular[:limit]
        numbers = {name: number for number, name in enumerate(version.items_by_category)}
        entries = [version.item_metadata[row] for row in rows.tolist()]
        return {
            "version": version.number,
            "of": "item vectors" if self._vectors is not None else "interactions",
            "translations": version.can["translations"],
            "shares": _rounded(ratios),
            "count": len(version.popular),
            "categories": list(numbers),
            "item": version.items.ids(rows).to_list(),
            "title": [entry.title for entry in entries],
            "category": [numbers[e.categories[0]] if e.categories else -1 for e in entries],
            "users": version.data.item_counts[rows].tolist(),
            "x": _rounded(positions[rows, 0]),
            "y": _rounded(positions[rows, 1]),
        }

    def position(self, user: ResolvedUser, toward: Rows) -> dict[str, Any]:
        """Return the position of a user, and the translated positions for some item rows."""
        history = user.history
        row = user.row if user.source == "model" and user.row != UNKNOWN else None
        position: list[float] | None = None
        if len(history) and self._vectors is None:
            position = _rounded(self._positions[0][history].mean(axis=0))
        elif len(history):
            vector = self._version.scorer.position(row, history)
            position = None if vector is None else self._project(vector)
        return {
            "version": self._version.number,
            "position": position,
            "toward": [self._translated(row, history, item) for item in toward.tolist()],
        }

    def _translated(self, user: int | None, history: Rows, item: int) -> dict[str, Any]:
        """Return the position of a user translated toward an item, and the parts of past items."""
        version, scorer = self._version, self._version.scorer
        found: dict[str, Any] = {"item": version.items.series[item], "position": None, "moved": []}
        if not len(history) or self._vectors is None:
            return found
        moved = scorer.translated_position(user, history, np.array([item], np.int32))
        if moved is not None:
            found["position"] = self._project(moved[0])
        parts = scorer.ways(user, history, item)
        if parts is not None:
            points, shares = parts
            best = np.argsort(-shares, kind="stable")[:_MAX_TRANSLATIONS]
            names = version.items.ids(history[best]).to_list()
            found["moved"] = [
                {
                    "item": name,
                    "title": version.title(name),
                    "position": self._project(points[place]),
                    "share": float(shares[place]),
                }
                for name, place in zip(names, best, strict=True)
            ]
        return found

    def _project(self, vector: npt.NDArray[Any]) -> list[float]:
        mean, axes, _ = self._axes
        return _rounded((vector - mean) @ axes)


def _rounded(values: npt.NDArray[Any]) -> list[float]:
    rounded: list[float] = np.round(np.nan_to_num(values), _DIGITS).tolist()
    return rounded
