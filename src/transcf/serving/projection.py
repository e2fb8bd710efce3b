"""Items and people on a plane: the two directions in which items differ most."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import svds

from transcf.data.ids import UNKNOWN, Rows
from transcf.serving.loaded_model import LoadedModel
from transcf.serving.users import ResolvedUser

Array = npt.NDArray[np.float64]

#: Past items whose translations are told apart, those that count most.
_WAYS = 12
#: Numbers after the point in coordinates: finer than any screen.
_DIGITS = 5


class Projection2D:
    """Where the items of one version are.

    Models with item vectors are seen along their two main axes, so that whatever has a vector has
    a place: items, users, and users who are moved toward an item. Of other models there is a
    plane of who has what, on which people stand in the middle of their items.

    Args:
        served: The version.
    """

    def __init__(self, served: LoadedModel) -> None:
        """Keep it."""
        self._served = served

    @cached_property
    def _vectors(self) -> Array | None:
        vectors = self._served.learned.arrays().get("item_vectors")
        if vectors is None or vectors.shape[1] < 2:
            return None
        return vectors.astype(np.float64)

    @cached_property
    def _axes(self) -> tuple[Array, Array, Array]:
        """Middle (d,), axes (d, 2) and the shares of the variance (2,) of the item vectors.

        Items count as often as they were taken: rare ones differ most, and say the least.
        """
        assert self._vectors is not None, "asked for with vectors alone"
        counts = self._served.learned.known.item_counts
        middle = np.average(self._vectors, axis=0, weights=counts)
        away = self._vectors - middle
        values, axes = np.linalg.eigh((away.T * (counts / counts.sum())) @ away)
        best = axes[:, ::-1][:, :2]
        best = best * np.where(best[np.abs(best).argmax(axis=0), [0, 1]] < 0, -1, 1)
        return middle, best, values[::-1][:2] / max(values.sum(), np.finfo(float).tiny)

    @cached_property
    def _places(self) -> tuple[Array, Array]:
        """Coordinates of the items (n_items, 2), and shares of the axes (2,)."""
        if self._vectors is not None:
            middle, axes, shares = self._axes
            return (self._vectors - middle) @ axes, shares
        return self._of_interactions()

    def _of_interactions(self) -> tuple[Array, Array]:
        """Do the same with who has what: users count less the more they have."""
        known = self._served.learned.known
        weights = 1 / np.sqrt(np.maximum(1, known.seen.counts))
        matrix = known.seen.to_scipy(np.float64, np.repeat(weights, known.seen.counts))
        columns = np.sqrt(np.maximum(1, known.item_counts))
        scaled = matrix.multiply(1 / columns[None, :]).tocsr()
        size = min(scaled.shape)
        if size < 4:
            return np.zeros((len(known.items), 2)), np.zeros(2)
        start = np.ones(size) / np.sqrt(size)
        _, values, right = svds(scaled, k=3, v0=start, random_state=0)
        # The first direction says only how popular an item is.
        places = (right[::-1][1:3] * values[::-1][1:3, None]).T * np.sqrt(len(known.items))
        total = max(float((scaled.data**2).sum()), np.finfo(float).tiny)
        shares = np.square(values[::-1][1:3]).astype(np.float64) / total
        return places.astype(np.float64), shares

    def points(self, limit: int) -> dict[str, Any]:
        """Return the items with most users, in columns."""
        served = self._served
        places, shares = self._places
        rows = served.popular[:limit]
        names = {name: place for place, name in enumerate(served.shelves)}
        facts = [served.item_facts[row] for row in rows.tolist()]
        return {
            "version": served.version,
            "of": "item vectors" if self._vectors is not None else "interactions",
            "translations": served.can["translations"],
            "shares": _rounded(shares),
            "count": len(served.popular),
            "categories": list(names),
            "item": served.items.ids(rows).to_list(),
            "title": [fact.title for fact in facts],
            "category": [names[f.categories[0]] if f.categories else -1 for f in facts],
            "users": served.learned.known.item_counts[rows].tolist(),
            "x": _rounded(places[rows, 0]),
            "y": _rounded(places[rows, 1]),
        }

    def position(self, person: ResolvedUser, toward: Rows) -> dict[str, Any]:
        """Return where somebody stands, and where they are moved to for some item rows."""
        learned, history = self._served.learned, person.history
        user = person.row if person.source == "model" and person.row != UNKNOWN else None
        place: list[float] | None = None
        if len(history) and self._vectors is None:
            place = _rounded(self._places[0][history].mean(axis=0))
        elif len(history):
            stands = learned.stand(user, history)
            place = None if stands is None else self._seen(stands)
        return {
            "version": self._served.version,
            "position": place,
            "toward": [self._toward(user, history, row) for row in toward.tolist()],
        }

    def _toward(self, user: int | None, history: Rows, item: int) -> dict[str, Any]:
        """Return where somebody is moved to for an item, and by which of their past items."""
        learned, served = self._served.learned, self._served
        found: dict[str, Any] = {"item": served.items.series[item], "position": None, "moved": []}
        if not len(history) or self._vectors is None:
            return found
        moved = learned.moved(user, history, np.array([item], np.int32))
        ways = learned.ways(user, history, item)
        if moved is not None:
            found["position"] = self._seen(moved[0])
        if ways is not None:
            points, shares = ways
            most = np.argsort(-shares, kind="stable")[:_WAYS]
            past = served.items.ids(history[most]).to_list()
            found["moved"] = [
                {
                    "item": name,
                    "title": served.title(name),
                    "position": self._seen(point),
                    "share": share,
                }
                for name, point, share in zip(
                    past, points[most], shares[most].tolist(), strict=True
                )
            ]
        return found

    def _seen(self, vector: npt.NDArray[Any]) -> list[float]:
        middle, axes, _ = self._axes
        return _rounded((vector - middle) @ axes)


def _rounded(values: npt.NDArray[Any]) -> list[float]:
    rounded: list[float] = np.round(np.nan_to_num(values), _DIGITS).tolist()
    return rounded
