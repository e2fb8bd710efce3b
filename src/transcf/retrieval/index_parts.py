"""Parts of an approximate index: the projection of vectors, and lists of near items (faiss)."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from transcf.data.ids import Rows
from transcf.errors import MissingExtraError
from transcf.parallel import thread_count
from transcf.retrieval.scorer import LinearForm, Scores

#: Share of the variance of scores that the kept axes hold.
_KEPT = 0.995
#: Vectors that axes are made from, at most.
_SAMPLE = 50_000
#: Axes along which users differ less than this, relative to the first, count as if they did.
_FLOOR = 1e-6


@dataclass(frozen=True, eq=False)
class Projection:
    """Maps both sides of a linear form to few axes that keep the order of a user's items.

    With C the second moments of user vectors, `x . y = (C^-1/2 x) . (C^1/2 y)`; the mean square
    of what an error in y does to a score is then its plain length. Principal axes of the mapped
    items, around their mean (a user's items all lose the same by it), are the ones that matter.

    Attributes:
        user_map: (d, width) float32.
        item_map: (d, width) float32.
        item_mean: (d,) float32.
    """

    user_map: Scores
    item_map: Scores
    item_mean: Scores

    @classmethod
    def of(cls, form: LinearForm, rows: Rows) -> Projection:
        """Make it from a model's users and some item rows."""
        users = _sample(form.user_vectors, np.arange(len(form.user_vectors), dtype=np.int32))
        size, axes = np.linalg.eigh(users.T @ users / max(1, len(users)))
        spread = np.sqrt(np.maximum(size, max(_FLOOR * size[-1], 1e-30)))
        items = _sample(form.item_vectors, rows)
        mean = items.mean(axis=0) if len(items) else np.zeros(form.item_vectors.shape[1])
        weighed = (items - mean) @ (axes * spread)
        energy, turn = np.linalg.eigh(weighed.T @ weighed)
        kept = turn[:, ::-1][:, : _count_axes(energy[::-1])]
        maps = ((axes / spread) @ kept, (axes * spread) @ kept, mean)
        return cls(*(np.ascontiguousarray(part, dtype=np.float32) for part in maps))

    def users(self, vectors: Scores) -> Scores:
        """Map user vectors: (n, width)."""
        return np.ascontiguousarray(vectors @ self.user_map)

    def items(self, vectors: Scores, rows: Rows) -> Scores:
        """Map the vectors of some item rows: (n, width)."""
        points = np.empty((len(rows), self.item_map.shape[1]), dtype=np.float32)
        for start in range(0, len(rows), _SAMPLE):
            part = slice(start, start + _SAMPLE)
            points[part] = (vectors[rows[part]] - self.item_mean) @ self.item_map
        return points


def _sample(vectors: Scores, rows: Rows) -> npt.NDArray[np.float64]:
    """Return vectors spread evenly over the rows, in float64."""
    return vectors[rows[:: -(-max(1, len(rows)) // _SAMPLE)]].astype(np.float64)


def _count_axes(energy: npt.NDArray[np.float64]) -> int:
    """How many axes, largest first, hold enough."""
    total = np.cumsum(np.maximum(energy, 0.0))
    return 1 + int(np.searchsorted(total, _KEPT * total[-1]))


def fill_lists(points: Scores, random_state: int) -> Any:
    """Assign points to lists by distance; searches choose lists by inner product."""
    faiss = faiss_library()
    n, width = points.shape
    n_lists = int(4 * np.sqrt(n))
    sample = points[np.random.default_rng(random_state).permutation(n)[: 64 * n_lists]]
    # Limits for warnings and sampling; the sample is drawn here.
    limits = {"min_points_per_centroid": 1, "max_points_per_centroid": 64}
    means = faiss.Kmeans(width, n_lists, niter=10, seed=random_state, **limits)
    means.train(sample)
    by_distance, by_product = faiss.IndexFlatL2(width), faiss.IndexFlatIP(width)
    by_distance.add(means.centroids)
    by_product.add(means.centroids)
    # Half a byte for every axis: tables of 16 entries stay in registers, and twice as many
    # candidates as are wanted hold the true ones.
    metric = faiss.METRIC_INNER_PRODUCT
    lists = faiss.IndexIVFPQFastScan(by_distance, width, n_lists, width, 4, metric)
    lists.by_residual = True
    lists.train(sample)
    lists.add(points)
    lists.quantizer = by_product
    # A copy owns all of its parts; this one borrows them from here.
    return faiss.deserialize_index(faiss.serialize_index(lists))


def faiss_library() -> ModuleType:
    """Return faiss, with as many threads as kernels use."""
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("An approximate index", "index") from error
    faiss.omp_set_num_threads(thread_count())
    return faiss  # type: ignore[no-any-return, unused-ignore]
