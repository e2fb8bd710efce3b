"""Similar items and users, against brute force."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from transcf.data.interactions import Interactions
from transcf.models.base import Recommender
from transcf.models.ease import EASE
from transcf.models.itemknn import ItemKNN
from transcf.models.transcf import TransCF


def listed(table: pl.DataFrame, model: Recommender, n: int) -> np.ndarray:
    """Scores as a matrix, NaN where a pair is not listed."""
    ids = model.items_ if "item_id" in table.columns else model.users_
    scores = np.full((n, n), np.nan)
    scores[ids.rows(table[table.columns[0]]), ids.rows(table["neighbor_id"])] = table["score"]
    return scores


@pytest.mark.parametrize("form", ["translation", "dot", "none"])
def test_vectors_are_compared_by_distance(random_log: Interactions, form: str) -> None:
    model = TransCF(variant=form, dim=16, epochs=3).fit(random_log)
    for vectors, find, ids in (
        (model.item_vectors_, model.similar_items, model.items_.series),
        (model.user_vectors_, model.similar_users, model.users_.series),
    ):
        exact = vectors.astype(np.float64)
        if form == "dot":
            exact /= np.linalg.norm(exact, axis=1, keepdims=True)
            expected = exact @ exact.T
        else:
            expected = -((exact[:, None] - exact[None]) ** 2).sum(axis=2)
        np.fill_diagonal(expected, np.nan)
        found = listed(find(ids, k=len(ids)), model, len(ids))
        np.testing.assert_allclose(found, expected, atol=1e-5)
        np.fill_diagonal(expected, -np.inf)
        three = find(ids, k=3)
        best = -np.sort(-expected, axis=1)[:, :3].ravel()
        np.testing.assert_allclose(three["score"], best, atol=1e-5)


def test_weights_between_items_are_similarities(random_log: Interactions) -> None:
    ease = EASE().fit(random_log)
    n = len(ease.items_)
    found = listed(ease.similar_items(ease.items_.series, k=n), ease, n)
    expected = ease.weights_.astype(np.float64)
    np.fill_diagonal(expected, np.nan)
    np.testing.assert_array_equal(found, expected)
    knn = ItemKNN(n_neighbors=4, shrinkage=0.0).fit(random_log)
    found = listed(knn.similar_items(knn.items_.series, k=n), knn, n)
    assert (np.isfinite(found).sum(axis=1) <= 4).all()
    users = random_log.by_user.to_scipy(np.float64)
    counts = (users.T @ users).toarray()
    cosine = counts / np.sqrt(np.outer(counts.diagonal(), counts.diagonal()))
    kept = np.isfinite(found)
    np.testing.assert_allclose(found[kept], cosine[kept], rtol=1e-6)
