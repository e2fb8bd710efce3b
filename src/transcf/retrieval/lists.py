"""Lists of items that lie near each other, and the library that holds them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from transcf.errors import MissingExtraError
from transcf.parallel import thread_count
from transcf.retrieval.scorer import Scores


def fill_lists(points: Scores, random_state: int) -> Any:
    """Deal points into lists by distance; lists are then chosen by inner product."""
    faiss = faiss_library()
    n, width = points.shape
    n_lists = int(4 * np.sqrt(n))
    sample = points[np.random.default_rng(random_state).permutation(n)[: 64 * n_lists]]
    # The limits only say how much to warn and to sample; the sample is ours.
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
