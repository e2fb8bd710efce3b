"""CML as a user meets it: everybody in the unit ball, the options of its paper at work."""

from __future__ import annotations

import numpy as np
import pytest

from transcf.data import synthesize
from transcf.data.csr import Histories
from transcf.data.interactions import Interactions
from transcf.models.cml import CML


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=300, items=150, interactions=5000, seed=3)


def longest(vectors: np.ndarray) -> float:
    return float(np.linalg.norm(vectors.astype(np.float64), axis=1).max())


@pytest.mark.parametrize("covariance", [0.0, 1e5])
def test_everybody_is_in_the_unit_ball(log: Interactions, covariance: float) -> None:
    model = CML(dim=12, learning_rate=0.5, epochs=4, covariance=covariance).fit(log)
    assert 0.99 < longest(model.user_vectors_) < 1 + 1e-5
    assert 0.99 < longest(model.item_vectors_) < 1 + 1e-5
    assert not hasattr(model, "item_bias_")


def test_people_known_by_a_history_are_in_the_ball_too(log: Interactions) -> None:
    model = CML(dim=12, learning_rate=0.5, epochs=4).fit(log)
    guests = model.learned_._fold
    guests._map = 50 * np.ones((13, 12), np.float32)  # would place them far outside
    vectors = guests(Histories.of([np.array([1, 5]), np.array([9])], 150))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_scores_are_minus_squared_distances(log: Interactions) -> None:
    model = CML(dim=12, epochs=3).fit(log)
    users, items = np.arange(0, 90, dtype=np.int32), np.arange(30, 120, dtype=np.int32)
    x, y = model.user_vectors_[users].astype(float), model.item_vectors_[items].astype(float)
    expected = -((x - y) ** 2).sum(axis=1)
    np.testing.assert_allclose(model.scores(users, items), expected, rtol=1e-4, atol=1e-5)


def test_the_covariance_term_makes_dimensions_differ(log: Interactions) -> None:
    """The share of the covariance that is off its diagonal falls."""

    def off_diagonal(weight: float) -> float:
        model = CML(dim=12, epochs=20, learning_rate=0.02, decay="none", covariance=weight)
        model.fit(log)
        covariance = np.cov(np.concatenate([model.user_vectors_, model.item_vectors_]).T)
        return float(1 - (np.diag(covariance) ** 2).sum() / (covariance**2).sum())

    assert off_diagonal(3e3) < 0.8 * off_diagonal(0.0)


def test_the_paper_has_one_negative_and_no_weights() -> None:
    model = CML.paper(dim=16)
    assert (model.negatives, model.rank_weighting, model.samples_per_user) == (1, False, 100)
