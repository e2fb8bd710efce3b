"""Where newcomers stand: the map from histories to vectors."""

from __future__ import annotations

import numpy as np
import pytest

from transcf.data import synthesize
from transcf.data.csr import Histories
from transcf.models.bpr import BPR
from transcf.models.factors import HistoryMap


@pytest.fixture
def model() -> BPR:
    log = synthesize(users=300, items=80, interactions=4000, seed=2)
    return BPR(dim=8, epochs=3, item_bias=False).fit(log)


def test_the_map_from_histories_is_a_ridge_regression(model: BPR) -> None:
    seen = model.seen_.to_scipy()
    seen = seen[model.seen_.counts > 0]
    histories = [model.histories_[row] for row in np.flatnonzero(model.seen_.counts)]
    means = np.asarray(seen @ model.item_vectors_.astype(float)) / seen.sum(axis=1)[:, None]
    center, target = means.mean(axis=0), model.user_vectors_[model.seen_.counts > 0]
    ridge = 0.01 * np.square(means).sum(axis=0).mean() * np.eye(8)
    centered = means - center
    slope = np.linalg.solve(centered.T @ centered + ridge, centered.T @ (target - target.mean(0)))
    expected = (means - center) @ slope + target.mean(axis=0)
    guests = model.learned_.fold_in(Histories.of(histories, len(model.items_)))
    scores = guests.scores(np.arange(len(histories), dtype=np.int32))
    np.testing.assert_allclose(scores, expected @ model.item_vectors_.T, rtol=1e-3, atol=1e-4)
    vectors = HistoryMap(model.learned_.known, model.user_vectors_, model.item_vectors_)
    placed = vectors(Histories.of(histories, len(model.items_)))
    np.testing.assert_allclose(placed, expected, rtol=1e-3, atol=1e-4)


def test_the_length_of_vectors_does_not_change_who_gets_what(model: BPR) -> None:
    history = model.items_.series[:5].to_list()
    before = model.recommend_for(history, k=20)["item_id"].to_list()
    shorter = {name: 0.01 * array for name, array in model.learned_.arrays().items()}
    model.learned_ = model._restore(shorter, model.learned_.known, model.settings_)
    assert model.recommend_for(history, k=20)["item_id"].to_list() == before
