"""What lies beneath: EASE without a user, against EASE that was fitted without the user."""

from __future__ import annotations

import numpy as np
import pytest

from transcf import EASE, Interactions, synthesize
from transcf.learning.beneath import Beneath

REGULARIZATION, STRENGTH = 7.0, 3.0


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=60, items=40, interactions=700, seed=2)


@pytest.fixture(scope="module")
def beneath(log: Interactions) -> Beneath:
    weights = EASE(regularization=REGULARIZATION).fit(log).weights_
    return Beneath(log, weights, REGULARIZATION, STRENGTH)


def without(log: Interactions, user: int) -> np.ndarray:
    """Scores of a user's items by weights that were learned from all others, (n_items,)."""
    others = log.by_user.to_scipy(np.float64).toarray()
    own, others = others[user], np.delete(others, user, axis=0)
    inverse = np.linalg.inv(others.T @ others + REGULARIZATION * np.eye(log.n_items))
    weights = -inverse / inverse.diagonal()
    np.fill_diagonal(weights, 0)
    return own @ weights


@pytest.mark.parametrize("user", [0, 7, 59])
def test_it_is_ease_fitted_without_the_user(log: Interactions, beneath: Beneath, user: int) -> None:
    expected, found = STRENGTH * without(log, user), beneath.of(user)
    own = log.histories.items[slice(*log.histories.indptr[user : user + 2])]
    np.testing.assert_allclose(found[own], expected[own], atol=5e-5)
    others = np.setdiff1d(np.arange(log.n_items), own)
    share = 1 - 1 / len(own)
    np.testing.assert_allclose(found[others], share * expected[others], atol=5e-5)


def test_lifts_stay_where_exponentials_are_finite(log: Interactions) -> None:
    weights = EASE(regularization=REGULARIZATION).fit(log).weights_
    lifts = Beneath(log, weights, REGULARIZATION, 1e6).of(0)
    own = log.histories.items[: log.histories.indptr[1]]
    assert np.abs(lifts[own]).max() == np.abs(np.delete(lifts, own)).max() == 25
