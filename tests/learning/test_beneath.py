"""What lies beneath: EASE without a user, against EASE that was fitted without the user."""

from __future__ import annotations

import numpy as np
import pytest

from transcf import EASE, Interactions, synthesize
from transcf.kernels.mixture import Batch
from transcf.learning.beneath import Beneath
from transcf.models.transcf.mixture.batches import Dealer
from transcf.threads import use_threads

REGULARIZATION, STRENGTH = 7.0, 3.0


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=60, items=40, interactions=700, seed=2)


@pytest.fixture(scope="module")
def beneath(log: Interactions) -> Beneath:
    weights = EASE(regularization=REGULARIZATION).fit(log).weights_
    return Beneath(log, weights, REGULARIZATION, STRENGTH)


def batch_of(log: Interactions, users: list[int]) -> Batch:
    dealer = Dealer(log.histories, np.ones(len(log), np.float32), 10_000)
    return dealer.batch(np.array(users, np.int32))


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
    expected, batch = without(log, user), batch_of(log, [user])
    start, end = log.histories.indptr[user : user + 2]
    np.testing.assert_allclose(beneath.of_own()[start:end], expected[batch.items], atol=1e-5)
    others = np.setdiff1d(np.arange(log.n_items), batch.items).astype(np.int32)
    found = beneath.of_others(batch, others, len(others) + 3)
    np.testing.assert_allclose(found[0, : len(others)], expected[others], atol=1e-5)
    assert (found[0, len(others) :] == 0).all()


def test_lifts_are_its_scores_times_the_strength(log: Interactions, beneath: Beneath) -> None:
    users, negatives = [4, 1, 30], np.arange(0, log.n_items, 3, dtype=np.int32)
    batch = batch_of(log, users)
    lifted = beneath.lift(batch, negatives, 16)
    for n, user in enumerate(users):
        scores = STRENGTH * without(log, user)
        own = slice(batch.starts[n], batch.starts[n + 1])
        np.testing.assert_allclose(lifted.lifts[own], scores[batch.items[own]], atol=5e-5)
        size = own.stop - own.start
        unknown = ~np.isin(negatives, batch.items[own])
        found = lifted.lifts_of_negatives[n, : len(negatives)][unknown]
        expected = scores[negatives][unknown] * (1 - 1 / size)
        np.testing.assert_allclose(found, expected, atol=5e-5)


def test_threads_change_no_bit(log: Interactions, beneath: Beneath) -> None:
    batch, negatives = batch_of(log, list(range(60))), np.arange(log.n_items, dtype=np.int32)
    found = []
    for threads in (1, 3):
        with use_threads(threads):
            found.append(beneath.lift(batch, negatives, 48).lifts_of_negatives)
    np.testing.assert_array_equal(*found)


def test_lifts_stay_where_exponentials_are_finite(log: Interactions) -> None:
    weights = EASE(regularization=REGULARIZATION).fit(log).weights_
    strong = Beneath(log, weights, REGULARIZATION, 1e6)
    lifted = strong.lift(batch_of(log, [0, 1]), np.arange(log.n_items, dtype=np.int32), 48)
    assert np.abs(lifted.lifts).max() == np.abs(lifted.lifts_of_negatives).max() == 25
