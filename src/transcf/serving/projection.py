"""Items and users in two dimensions, for the map of the explorer page."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import svds

from transcf.data.atomic import atomic_write
from transcf.data.ids import Rows
from transcf.io.model_dir import NAME, Versions

if TYPE_CHECKING:
    from transcf.serving.model_version import ModelVersion
    from transcf.serving.ranking import ResolvedUser

log = logging.getLogger("transcf.serving")

Array = npt.NDArray[np.float64]
#: How items are placed: by principal components, or so that neighbours stay neighbours.
Layout: TypeAlias = Literal["pca", "neighbors"]

#: Past items whose translations are listed, those with the largest shares.
_MAX_TRANSLATIONS = 12
#: Decimals of coordinates; those of t-SNE lie between -10 and 10.
_DIGITS, _TSNE_DIGITS, _TSNE_RADIUS = 5, 3, 10.0
#: Singular vectors of the interactions that t-SNE starts from.
_FACTORS = 32
#: Items that t-SNE places, those with the most users; others go to their nearest ones of these.
_LANDMARKS = 5000
#: Nearest items whose mean is the place of a vector on a t-SNE layout.
_NEAREST = 5
_PERPLEXITY, _ITERATIONS = 30.0, 500
#: Niceness of the thread that computes a layout (Linux).
_NICE = 10


class Projection2D:
    """A projection of the items of one model version.

    With item vectors, it is the plane of their two principal axes, on which users and translated
    users have positions, too. Other models use the leading singular vectors of the interaction
    matrix; a user is then at the mean of the items of the history.

    The layout "neighbors" is t-SNE of the same vectors (scikit-learn). It is computed in a thread
    of its own at the first request and kept in a file next to the model's versions. Until then the
    principal axes are used. A user has no coordinates of its own in it, and is at the mean of the
    nearest items.
    """

    def __init__(self, version: ModelVersion) -> None:
        self._version = version
        vectors = version.scorer.arrays().get("item_vectors")
        self._vectors: Array | None = None
        if vectors is not None and vectors.shape[1] >= 2:
            self._vectors = vectors.astype(np.float64)
        self._landmarks = version.popular[:_LANDMARKS]
        self._tsne: Array | None = None
        self._thread: threading.Thread | None = None
        self._failed = False

    # -- principal axes --------------------------------------------------------------------------

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
        if self._vectors is None:
            return self._of_interactions(2)
        mean, axes, ratios = self._axes
        return (self._vectors - mean) @ axes, ratios

    def _of_interactions(self, factors: int) -> tuple[Array, Array]:
        """Project the interaction matrix, normalized by user and by item, to some dimensions."""
        data = self._version.data
        weights = 1 / np.sqrt(np.maximum(1, data.seen.counts))
        matrix = data.seen.to_scipy(np.float64, np.repeat(weights, data.seen.counts))
        columns = np.sqrt(np.maximum(1, data.item_counts))
        scaled = matrix.multiply(1 / columns[None, :]).tocsr()
        size = min(scaled.shape)
        if size < factors + 2:
            return np.zeros((len(data.items), factors)), np.zeros(factors)
        start = np.ones(size) / np.sqrt(size)
        _, values, right = svds(scaled, k=factors + 1, v0=start, random_state=0)
        # The first singular vector reflects popularity only.
        right, values = right[::-1][1:], values[::-1][1:]
        positions = (right * values[:, None]).T * np.sqrt(len(data.items))
        total = max(float((scaled.data**2).sum()), np.finfo(float).tiny)
        return positions.astype(np.float64), np.square(values).astype(np.float64) / total

    # -- t-SNE -----------------------------------------------------------------------------------

    @cached_property
    def _features(self) -> Array:
        """Item vectors that t-SNE starts from, scaled to a standard deviation of 1."""
        found = self._vectors
        if found is None:
            data = self._version.data
            most = min(len(data.users), len(data.items)) - 2
            found, _ = self._of_interactions(max(2, min(_FACTORS, most)))
        scaled: Array = found / max(float(found.std()), np.finfo(float).tiny)
        return scaled

    @cached_property
    def _tsne_file(self) -> Path:
        """The file that keeps the layout; its name changes with the model and the method."""
        version = self._version
        described = (version.folder / NAME).read_bytes() + f"{_LANDMARKS} {_ITERATIONS}".encode()
        checksum = hashlib.sha256(described).hexdigest()[:16]
        is_first = version.number == 1
        folder = Versions(version.folder).later if is_first else version.folder.parent
        return folder / f"map-{version.number}-{checksum}.npy"

    def _placed(self, layout: Layout) -> Array | None:
        """Return the t-SNE layout (n_items, 2) if it is wanted and there; start computing it."""
        if layout != "neighbors":
            return None
        if self._tsne is None and self._thread is None:
            with contextlib.suppress(OSError, ValueError):
                placed = np.load(self._tsne_file)
                if placed.shape == (len(self._version.items), 2):
                    self._tsne = placed
        if self._tsne is None and self._thread is None and len(self._landmarks) > _NEAREST:
            self._thread = threading.Thread(target=self._compute, name="map", daemon=True)
            self._thread.start()
        return self._tsne

    def _compute(self) -> None:
        """Compute the layout and store it."""
        with contextlib.suppress(OSError, AttributeError):  # recommendations come first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        try:
            self._tsne = self._compute_tsne()
        except Exception:
            log.exception("The layout of the map cannot be computed: principal axes are used.")
            self._failed = True
            return
        try:
            self._tsne_file.parent.mkdir(exist_ok=True)
            with atomic_write(self._tsne_file) as unfinished, unfinished.open("wb") as file:
                np.save(file, self._tsne)
        except OSError as error:
            log.info("The layout of the map is not stored: %s.", type(error).__name__)

    def _compute_tsne(self) -> Array:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits

        rows = self._landmarks
        method = TSNE(
            perplexity=min(_PERPLEXITY, (len(rows) - 1) / 3),
            init="pca",
            max_iter=_ITERATIONS,
            random_state=0,
            n_jobs=1,
        )
        with threadpool_limits(1):
            landmarks: Array = method.fit_transform(self._features[rows].astype(np.float32))
        landmarks = landmarks - landmarks.mean(axis=0)
        landmarks *= _TSNE_RADIUS / max(float(np.abs(landmarks).max()), np.finfo(float).tiny)
        placed = np.zeros((len(self._version.items), 2))
        others = np.setdiff1d(self._version.popular, rows)
        if len(others):
            placed[others] = _place_near(self._features[others], self._features[rows], landmarks)
        placed[rows] = landmarks
        return placed.round(_TSNE_DIGITS)

    # -- answers ---------------------------------------------------------------------------------

    def points(self, limit: int, layout: Layout) -> dict[str, Any]:
        """Return the items with the most users, in columns."""
        version = self._version
        positions, ratios = self._positions
        placed = self._placed(layout)
        rows = version.popular[:limit]
        numbers = {name: number for number, name in enumerate(version.items_by_category)}
        entries = [version.item_metadata[row] for row in rows.tolist()]
        shown = positions if placed is None else placed
        computing = self._thread is not None and not self._failed
        return {
            "version": version.number,
            "of": "item vectors" if self._vectors is not None else "interactions",
            "layout": "pca" if placed is None else "tsne",
            "pending": layout == "neighbors" and placed is None and computing,
            "translations": version.can["translations"],
            "shares": _rounded(ratios),
            "count": len(version.popular),
            "categories": list(numbers),
            "attributes": version.attributes,
            "item": version.items.ids(rows).to_list(),
            "title": [entry.title for entry in entries],
            "category": [[numbers[name] for name in entry.categories] for entry in entries],
            "users": version.data.item_counts[rows].tolist(),
            "x": _rounded(shown[rows, 0]),
            "y": _rounded(shown[rows, 1]),
        }

    def position(self, user: ResolvedUser, toward: Rows, layout: Layout) -> dict[str, Any]:
        """Return the position of a user, and the translated positions for some item rows."""
        history, row = user.history, user.row if user.source == "model" else None
        placed = self._placed(layout)
        vector: npt.NDArray[Any] | None = None
        if len(history) and self._vectors is not None:
            vector = self._version.scorer.position(row, history)
        elif len(history):
            known = self._positions[0] if placed is None else self._features
            vector = known[history].mean(axis=0)
        return {
            "version": self._version.number,
            "layout": "pca" if placed is None else "tsne",
            "position": None if vector is None else self._project(vector[None], placed)[0],
            "toward": [self._translated(row, history, item, placed) for item in toward.tolist()],
        }

    def _translated(
        self, user: int | None, history: Rows, item: int, placed: Array | None
    ) -> dict[str, Any]:
        """Return the position of a user translated toward an item, and the parts of past items."""
        version, scorer = self._version, self._version.scorer
        found: dict[str, Any] = {"item": version.items.series[item], "position": None, "moved": []}
        if not len(history) or self._vectors is None:
            return found
        moved = scorer.translated_position(user, history, np.array([item], np.int32))
        if moved is not None:
            found["position"] = self._project(moved, placed)[0]
        parts = scorer.ways(user, history, item)
        if parts is not None:
            points, shares = parts
            best = np.argsort(-shares, kind="stable")[:_MAX_TRANSLATIONS]
            names = version.items.ids(history[best]).to_list()
            places = self._project(points[best], placed)
            found["moved"] = [
                {"item": name, "title": version.title(name), "position": place, "share": share}
                for name, place, share in zip(names, places, shares[best].tolist(), strict=True)
            ]
        return found

    def _project(self, vectors: npt.NDArray[Any], placed: Array | None) -> list[list[float]]:
        """Return the places of vectors (n, d) on a layout; None for the principal axes."""
        if placed is not None:
            if self._vectors is not None:
                vectors = vectors / max(float(self._vectors.std()), np.finfo(float).tiny)
            rows = self._landmarks
            found = _place_near(vectors, self._features[rows], placed[rows])
        elif self._vectors is not None:
            mean, axes, _ = self._axes
            found = (vectors - mean) @ axes
        else:
            found = vectors
        return [_rounded(place) for place in found]


def _place_near(vectors: npt.NDArray[Any], known: Array, places: Array) -> Array:
    """Return the mean places of the nearest known vectors, weighted by their inverse distance."""
    from sklearn.neighbors import KNeighborsRegressor

    method = KNeighborsRegressor(_NEAREST, weights="distance", algorithm="brute")
    found: Array = method.fit(known, places).predict(vectors)
    return found


def _rounded(values: npt.NDArray[Any]) -> list[float]:
    rounded: list[float] = np.round(np.nan_to_num(values), _DIGITS).tolist()
    return rounded
