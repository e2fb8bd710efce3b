"""LightGCN against powers of the dense adjacency matrix, and gradients through them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from transcf.data import synthesize
from transcf.data.csr import Histories
from transcf.data.interactions import Interactions
from transcf.models.event_weights import EVEN
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.torch.lightgcn import LightGCN, LightGCNSettings, normalized, smooth
from transcf.models.torch.networks import LightGCNNetwork


@pytest.fixture(scope="module")
def log() -> Interactions:
    whole = synthesize(users=50, items=30, interactions=400, seed=1)
    # The last user and the first item lose all they have.
    return whole.select((whole.user_rows < whole.n_users - 1) & (whole.item_rows > 0))


def dense_mean(log: Interactions, layers: int) -> np.ndarray:
    """`(I + A + A^2 + ...) / (layers + 1)`, A = D^-1/2 (adjacency) D^-1/2, written out."""
    size = log.n_users + log.n_items
    adjacency = np.zeros((size, size))
    adjacency[log.user_rows, log.n_users + log.item_rows] = 1
    adjacency += adjacency.T
    degrees = adjacency.sum(axis=1)
    roots = np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1)), 0)
    a = roots[:, None] * adjacency * roots
    return sum(np.linalg.matrix_power(a, k) for k in range(layers + 1)) / (layers + 1)


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_smoothing_is_the_mean_of_matrix_powers(log: Interactions, layers: int) -> None:
    rng = np.random.default_rng(0)
    users = rng.normal(size=(log.n_users, 3)).astype(np.float32)
    items = rng.normal(size=(log.n_items, 3)).astype(np.float32)
    expected = dense_mean(log, layers) @ np.vstack([users, items])
    by_scipy = smooth(normalized(log.by_user), users, items, layers)[:2]
    network = LightGCNNetwork(log.by_user, EVEN, LightGCNSettings(dim=3, layers=layers))
    with torch.no_grad():
        network.vectors.weight.copy_(torch.from_numpy(np.vstack([users, items])))
        by_torch = network.smoothed().numpy()
    np.testing.assert_allclose(np.vstack(by_scipy), expected, atol=1e-6)
    np.testing.assert_allclose(by_torch, expected, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_are_those_of_the_dense_loss(log: Interactions, weighted: bool) -> None:
    settings = LightGCNSettings(
        dim=4, layers=3, learning_rate=0.01, regularization=0.05, batch_size=64, init_scale=0.5
    )
    network = LightGCNNetwork(log.by_user, EVEN, settings)
    e = network.vectors.weight.detach().double().requires_grad_()
    rng = np.random.default_rng(2)
    u = torch.from_numpy(rng.integers(0, log.n_users, 40))
    i, j = torch.from_numpy(rng.integers(0, log.n_items, (2, 40)))
    x = torch.from_numpy(dense_mean(log, 3)) @ e
    own, other = i + log.n_users, j + log.n_users
    counts = torch.from_numpy(rng.gamma(1.0, 1.0, 40)) if weighted else torch.ones(40)
    logs = torch.log(torch.sigmoid((x[u] * (x[own] - x[other])).sum(dim=1)))
    likelihood = -(counts * logs).sum()
    squares = sum(e[rows].square().sum() for rows in (u, own, other))
    (expected,) = torch.autograd.grad(likelihood + 0.05 * squares, e)
    losses, found = network(u, torch.stack([i, j], dim=1), counts.float())
    assert losses.item() == pytest.approx(likelihood.item(), rel=1e-5)
    assert found.item() == pytest.approx(0.05 * squares.item(), rel=1e-5)
    (losses + found).backward()
    torch.testing.assert_close(network.vectors.weight.grad.double(), expected, atol=1e-4, rtol=1e-4)


def test_a_user_is_their_own_vector_and_what_their_items_send(log: Interactions) -> None:
    settings = {"dim": 5, "layers": 2, "epochs": 3, "learning_rate": 0.05}
    kept: dict[str, np.ndarray] = {}

    class Watched(LightGCN):
        def _snapshot(
            self, tensors: dict[str, np.ndarray], known: TrainingData, settings: LightGCNSettings
        ) -> FittedScorer:
            kept.update({name: tensor.copy() for name, tensor in tensors.items()})
            return super()._snapshot(tensors, known, settings)

    model = Watched(**settings).fit(log)
    first = kept["vectors.weight"]
    expected = dense_mean(log, 2) @ first
    np.testing.assert_allclose(model.user_vectors_, expected[: log.n_users], atol=1e-5)
    np.testing.assert_allclose(model.item_vectors_, expected[log.n_users :], atol=1e-5)
    sent = model.learned_._fold._inputs(model.seen_)[:, :-1]
    np.testing.assert_allclose((first[: log.n_users] + sent) / 3, model.user_vectors_, atol=1e-5)


def test_guests_with_the_history_of_a_user_get_scores_like_theirs(log: Interactions) -> None:
    model = LightGCN(dim=8, epochs=20, learning_rate=0.02).fit(log)
    users = np.flatnonzero(log.by_user.counts > 0).astype(np.int32)
    guests = model.learned_.fold_in(Histories.of([model.histories_[u] for u in users], log.n_items))
    found = guests.scores(np.arange(len(users), dtype=np.int32))
    alike = [np.corrcoef(*p)[0, 1] for p in zip(found, model.scores(users), strict=True)]
    assert np.median(alike) > 0.8
