"""ItemKNN against a dense computation of the same formula."""

from __future__ import annotations

import numpy as np
import pytest

from transcf.data.interactions import Interactions
from transcf.models import item_weights
from transcf.models.itemknn import ItemKNN


def dense_weights(log: Interactions, n_neighbors: int, shrinkage: float) -> np.ndarray:
    X = log.by_user.to_scipy().toarray().astype(np.float64)
    counts = X.sum(axis=0)
    similarity = (X.T @ X) / (np.sqrt(np.outer(counts, counts)) + shrinkage)
    np.fill_diagonal(similarity, 0.0)
    weights = np.zeros_like(similarity)
    for target, row in enumerate(similarity):
        nearest = sorted(np.flatnonzero(row), key=lambda other: (-row[other], other))
        for other in nearest[:n_neighbors]:
            weights[other, target] = row[other]
    return weights


@pytest.mark.parametrize("n_neighbors", [1, 5, 500])
@pytest.mark.parametrize("shrinkage", [0.0, 10.0])
@pytest.mark.parametrize("block_entries", [None, 100])
def test_weights_equal_the_dense_formula(
    random_log: Interactions, n_neighbors: int, shrinkage: float, block_entries: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if block_entries is not None:
        monkeypatch.setattr(item_weights, "_BLOCK_ENTRIES", block_entries)
    model = ItemKNN(n_neighbors=n_neighbors, shrinkage=shrinkage).fit(random_log)
    expected = dense_weights(random_log, n_neighbors, shrinkage)
    np.testing.assert_allclose(model.weights_.toarray(), expected, rtol=1e-6)
    X = random_log.by_user.to_scipy().toarray()
    users = np.arange(random_log.n_users, dtype=np.int32)
    np.testing.assert_allclose(model.scores(users), X @ expected, rtol=1e-4, atol=1e-6)


def test_blocks_cover_all_items_once_and_stay_bounded(
    random_log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_weights, "_BLOCK_ENTRIES", 300)
    blocks = list(item_weights.item_blocks(random_log.histories))
    covered = [item for first, last in blocks for item in range(first, last)]
    assert covered == list(range(random_log.n_items))
    shared = random_log.by_item.to_scipy() @ random_log.by_user.to_scipy()
    entries = np.diff(shared.tocsr().indptr)
    assert all(last - first == 1 or entries[first:last].sum() <= 300 for first, last in blocks)
