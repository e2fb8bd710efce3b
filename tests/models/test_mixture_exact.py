"""Plain training of the mixture against the formula, and the library's against it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.models.mixture_exact import ExactMixtureTraining, MixtureVectors, add_gradient

from transcf import Interactions, TransCFMixture, synthesize
from transcf.models.mixture import model as mixture_model
from transcf.models.mixture.training import score_config

SMALL: dict[str, Any] = {"dim": 6, "epochs": 1, "batch_events": 200}


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=60, items=40, interactions=500, seed=1)


def vectors_of(model: TransCFMixture) -> list[np.ndarray]:
    names = ["user_vectors_", "item_vectors_"]
    names += ["item_bias_"] + ["history_vectors_"] * (not model.tie_item_vectors)
    return [getattr(model, name) for name in names]


@pytest.fixture
def fit_exactly(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TransCFMixture]:
    """Return a function that fits a model by the plain training."""

    def fit(log: Interactions, **settings: Any) -> TransCFMixture:
        with monkeypatch.context() as patch:
            patch.setattr(mixture_model, "MixtureTraining", ExactMixtureTraining)
            return TransCFMixture(**SMALL, **settings).fit(log)

    return fit


def test_the_gradient_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    settings = TransCFMixture(dim=3, tau=2.0, beta=1.5).settings
    config = score_config(settings, timed=True, longest=4)
    params = MixtureVectors(
        *(0.4 * rng.standard_normal(shape) for shape in [(2, 3), (7, 3), (7, 3), 7])
    )
    own, weights, active = np.array([3, 1, 6, 2]), np.array([1.0, 0.5, 2.0, 1.0]), np.arange(6)

    def loss(at: MixtureVectors) -> float:
        empty = MixtureVectors(*(np.zeros_like(part) for part in at))
        return add_gradient(config, at, 1, own, weights, active, empty)

    slopes = MixtureVectors(*(np.zeros_like(part) for part in params))
    add_gradient(config, params, 1, own, weights, active, slopes)
    for name, gradient in slopes._asdict().items():
        for place in np.ndindex(*gradient.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = getattr(params, name).copy()
                moved[place] += step
                ends.append(loss(params._replace(**{name: moved})))
            expected = (ends[0] - ends[1]) / 2e-5
            assert gradient[place] == pytest.approx(expected, abs=1e-7), (name, place)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_item_vectors": True, "popularity_correction": 0.7},
        {"user_vectors": "context"},
    ],
)
def test_with_all_negatives_the_fast_solver_learns_the_same(
    log: Interactions, fit_exactly: Callable[..., TransCFMixture], changes: dict[str, Any]
) -> None:
    fast, exact = TransCFMixture(**SMALL, **changes).fit(log), fit_exactly(log, **changes)
    for ours, theirs in zip(vectors_of(fast), vectors_of(exact), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_with_drawn_negatives_it_comes_nearer_the_more_there_are(
    log: Interactions, fit_exactly: Callable[..., TransCFMixture]
) -> None:
    """A softmax over some items is not that over all on average, but approaches it."""
    exact = vectors_of(fit_exactly(log))
    away = []
    for drawn in (5, 20, 40):
        fast = vectors_of(TransCFMixture(**SMALL, shared_negatives=drawn).fit(log))
        pairs = zip(fast, exact, strict=True)
        away.append(sum(np.abs(ours - theirs).mean() for ours, theirs in pairs))
    assert away[0] > away[1] > away[2]
