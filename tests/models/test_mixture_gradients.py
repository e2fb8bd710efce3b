"""Loss and gradients of the mixture against its formula and finite differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.models.mixture_oracle import Oracle

from transcf.data.histories import Histories
from transcf.kernels import Array
from transcf.kernels.mixture import CHUNK, Batch
from transcf.kernels.rows import padded
from transcf.models.transcf.mixture.batches import Dealer
from transcf.models.transcf.mixture.gradients import Gradients, Points, Slopes
from transcf.models.transcf.mixture.training import kernel_of
from transcf.models.transcf.settings import TransCFSettings
from transcf.threads import use_threads

WORLDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "in time": {"rho": 1.5, "future": 0.5},
    "tied": {"tied": True, "rho": 0.7, "future": 0.2},
    "drawn": {"negatives": np.arange(0, 12, 2), "stand_for": 2.0},
    "weighted": {"weights": np.linspace(0.2, 2.0, 17)},
    "no translation": {"tau": 0.0},
    "no home": {"beta": 0.0},
    "on top of another": {"lifts": np.sin(np.arange(60.0)).reshape(5, 12)},
}


def world(dim: int = 5, **changes: Any) -> Oracle:
    rng = np.random.default_rng(0)
    histories = [[3, 1, 7, 2], [0, 5], [4], [9, 8, 1, 0, 6], [2, 3, 10, 5, 7]]
    return (
        Oracle(
            users=0.4 * rng.standard_normal((5, dim)),
            items=0.4 * rng.standard_normal((12, dim)),
            history=0.4 * rng.standard_normal((12, dim)),
            bias=0.4 * rng.standard_normal(12),
            histories=histories,
            negatives=np.arange(12),
            **changes,
        )
        if "negatives" not in changes
        else replace(world(dim), **changes)
    )


def slopes_of(oracle: Oracle) -> tuple[Batch, Slopes]:
    n_items, dim = oracle.items.shape
    lists = [np.array(history, np.int32) for history in oracle.histories]
    histories = Histories.of(lists, n_items)
    weights = np.ones(len(histories.items)) if oracle.weights is None else oracle.weights
    dealer = Dealer(histories, weights.astype(np.float32), 10_000)
    batch = dealer.batch(np.arange(len(lists), dtype=np.int32))
    if oracle.lifts is not None:
        lifts = oracle.lifts.astype(np.float32)
        owners = np.repeat(batch.users, np.diff(batch.starts))
        lifts_of_negatives = np.zeros((len(lifts), 16), np.float32)
        lifts_of_negatives[:, : len(oracle.negatives)] = lifts[:, oracle.negatives]
        batch = batch._replace(
            lifts=lifts[owners, batch.items], lifts_of_negatives=lifts_of_negatives
        )
    settings = TransCFSettings(
        form="mixture", dim=dim, tau=oracle.tau, beta=oracle.beta, rho=oracle.rho,
        future=oracle.future,
    )  # fmt: skip
    longest = int(histories.counts.max())
    kernel = kernel_of(settings, timed=True, longest=longest)
    items = rows(oracle.items)
    history = items if oracle.tied else rows(oracle.history)
    points = Points(rows(oracle.users), items, history, oracle.bias.astype(np.float32))
    gradients = Gradients(kernel, items.shape[1], n_items, len(batch.items), n_items)
    negatives = oracle.negatives.astype(np.int32)
    return batch, gradients.of(batch, points, negatives, oracle.stand_for)


def rows(vectors: Array) -> Array:
    return padded(vectors.astype(np.float32)).reshape(len(vectors), -1)


def dense(oracle: Oracle) -> dict[str, Array]:
    """The gradients by name, a row for everybody and everything."""
    batch, slopes = slopes_of(oracle)
    dim, there = oracle.items.shape[1], slopes.rows >= 0
    found = {name: np.zeros(getattr(oracle, name).shape) for name in ("users", "items", "bias")}
    found["users"][batch.users] = slopes.users[:, :dim]
    found["items"][slopes.rows[there]] = slopes.items[there, :dim]
    found["bias"][slopes.rows[there]] = slopes.bias[there]
    if not oracle.tied:
        own = there & slopes.has_events
        found["history"] = np.zeros(oracle.history.shape)
        found["history"][slopes.rows[own]] = slopes.history[own, :dim]
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_loss_is_that_of_the_formula(name: str) -> None:
    oracle = world(**WORLDS[name])
    assert slopes_of(oracle)[1].loss == pytest.approx(oracle.loss(), rel=1e-5)


@pytest.mark.parametrize("name", WORLDS)
def test_every_gradient_is_that_of_finite_differences(name: str) -> None:
    oracle = world(**WORLDS[name])
    for part, gradient in dense(oracle).items():
        expected = np.zeros_like(gradient)
        for place in np.ndindex(*gradient.shape):
            direction = np.zeros_like(gradient)
            direction[place] = 1
            expected[place] = oracle.along({part: direction})
        np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=2e-5, err_msg=part)


def test_a_history_longer_than_a_chunk() -> None:
    rng = np.random.default_rng(1)
    n_items = CHUNK + 90
    oracle = replace(
        world(),
        items=0.4 * rng.standard_normal((n_items, 5)),
        history=0.4 * rng.standard_normal((n_items, 5)),
        bias=0.1 * rng.standard_normal(n_items),
        histories=[rng.permutation(n_items)[: CHUNK + 30].tolist(), [1, 2], [3], [4, 9], [5]],
        negatives=np.arange(0, n_items, 60),
        rho=0.5,
        future=0.5,
    )
    found = dense(oracle)
    for part, gradient in found.items():
        direction = rng.standard_normal(gradient.shape)
        change = oracle.along({part: direction})
        assert (gradient * direction).sum() == pytest.approx(change, rel=2e-3), part


def test_threads_change_no_bit() -> None:
    oracle, found = world(rho=1.0), []
    for threads in (1, 3):
        with use_threads(threads):
            found.append(dense(oracle))
    for name, gradient in found[0].items():
        np.testing.assert_array_equal(gradient, found[1][name])
