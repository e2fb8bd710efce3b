"""CDAE against its formula, written out, and against finite differences."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from transcf.data import synthesize
from transcf.data.csr import Histories
from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.errors import DivergenceError
from transcf.models.event_weights import EVEN
from transcf.models.torch.cdae import CDAE, CDAESettings
from transcf.models.torch.networks import AdamTraining, CDAENetwork

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=80, items=50, interactions=900, seed=1)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def made(**changes: object) -> CDAESettings:
    plain = {
        "dim": 5, "learning_rate": 0.02, "dropout": 0.4, "negatives": 3, "batch_size": 16,
        "init_scale": 0.3,
    }  # fmt: skip
    return CDAESettings(**(plain | changes))


def trained(log: Interactions, settings: CDAESettings) -> AdamTraining:
    training = AdamTraining(CDAENetwork, log.by_user, EVEN, settings, CPU)
    training.run_epoch(1)
    return training


def test_scores_are_those_of_the_autoencoder(log: Interactions) -> None:
    tensors = trained(log, made()).tensors()
    names = ("users.weight", "inputs.weight", "outputs.weight", "output_bias.weight", "bias")
    nodes, inputs, outputs, output_bias, bias = (tensors[name].astype(float) for name in names)
    model = CDAE(
        dim=5, learning_rate=0.02, dropout=0.4, negatives=3, batch_size=16, init_scale=0.3, epochs=1
    ).fit(log)
    for user in range(log.n_users):
        own = log.by_user.row(user)
        h = sigmoid(inputs[own].sum(axis=0) + nodes[user] + bias)
        expected = outputs @ h + output_bias[:, 0]
        found = model.scores(np.array([user], dtype=np.int32))[0]
        np.testing.assert_allclose(found, expected, atol=1e-5)
    # A guest has the mean node, and nothing else that differs.
    own = log.by_user.row(3)
    h = sigmoid(inputs[own].sum(axis=0) + nodes.mean(axis=0) + bias)
    guests = model.learned_.fold_in(Histories.of([own], log.n_items))
    guest = guests.scores(np.array([0], dtype=np.int32))[0]
    np.testing.assert_allclose(guest, outputs @ h + output_bias[:, 0], atol=1e-5)


def test_guests_have_the_mean_node_of_everybody_with_interactions() -> None:
    """Also of who has every item, and is never trained; not of who has none."""
    pairs = [("all", n) for n in range(4)] + [("ann", 0), ("bob", 1), ("bob", 2), ("idle", 3)]
    users, items = zip(*pairs, strict=True)
    log = read_interactions(pl.DataFrame({"user": users, "item": items}))
    log = log.select(log.user_rows < 3)
    training = AdamTraining(CDAENetwork, log.by_user, EVEN, made(), CPU)
    first = training.tensors()["users.weight"].copy()
    training.run_epoch(1)
    tensors = training.tensors()
    nodes = tensors["users.weight"]
    assert (nodes == first).all(axis=1).tolist() == [True, False, False, True]
    model = CDAE(
        dim=5, learning_rate=0.02, dropout=0.4, negatives=3, batch_size=16, init_scale=0.3, epochs=1
    ).fit(log)
    expected = tensors["bias"] + nodes[:3].mean(axis=0)
    np.testing.assert_allclose(model.guest_bias_, expected, atol=1e-6)


def test_an_epoch_shows_every_interaction_and_drops_some_of_the_input(log: Interactions) -> None:
    network = CDAENetwork(log.by_user, EVEN, made(negatives=4, dropout=0.4))
    batches = list(network.batches(1))
    events = [(users[places], items) for users, places, _, items, _ in batches]
    users, items = (np.concatenate(parts) for parts in zip(*events, strict=True))
    own = set(zip(log.user_rows.tolist(), log.item_rows.tolist(), strict=True))
    assert sorted(zip(users.tolist(), items[:, 0].tolist(), strict=True)) == sorted(own)
    drawn = zip(np.repeat(users, 4).tolist(), items[:, 1:].ravel().tolist(), strict=True)
    assert not own & set(drawn)
    assert max(len(batch[0]) for batch in batches) == 16
    kept, other = (np.concatenate([b[2] for b in network.batches(epoch)]) for epoch in (1, 2))
    assert abs(kept.mean() - 0.6) < 4 * np.sqrt(0.24 / len(kept))
    assert not np.array_equal(kept, other)


@pytest.mark.parametrize("weighted", [False, True])
def test_losses_and_penalties_are_those_of_the_formula(log: Interactions, weighted: bool) -> None:
    table = np.random.default_rng(4).gamma(1.0, 1.0, (log.n_users, log.n_items))
    weights = table[log.user_rows, log.item_rows].astype(np.float32)[: len(log) * weighted]
    network = CDAENetwork(log.by_user, weights, made(regularization=0.3)).double()
    batch = next(network.batches(2))
    tensors = [torch.from_numpy(part) for part in batch]
    tensors = [part.double() if part.is_floating_point() else part.long() for part in tensors]
    tensors[2] = tensors[2].bool()
    found = [value.item() for value in network(*tensors)]
    state = {name: values.numpy() for name, values in network.state_dict().items()}
    nodes, inputs, outputs, biases, bias = (
        state[name]
        for name in (
            "users.weight",
            "inputs.weight",
            "outputs.weight",
            "output_bias.weight",
            "bias",
        )
    )
    users, places, kept, items, _ = batch
    errors = squares = 0.0
    for place, user in enumerate(users):
        seen, shown = items[(places == place) & kept, 0], items[places == place]
        h = sigmoid(inputs[seen].sum(axis=0) / 0.6 + nodes[user] + bias)
        s = outputs[shown] @ h + biases[shown, 0]
        t = np.zeros_like(s)
        t[:, 0] = 1
        p = sigmoid(s)
        each = -t * np.log(p) - (1 - t) * np.log(1 - p)
        if weighted:
            each[:, 0] *= table[user, shown[:, 0]].astype(np.float32)
        errors += each.sum()
        parts = nodes[user], inputs[seen], outputs[shown], biases[shown]
        squares += sum((part**2).sum() for part in parts)
    assert found == pytest.approx([errors, 0.3 * squares], rel=1e-6)


def test_divergence_names_the_cure(log: Interactions) -> None:
    with pytest.raises(DivergenceError, match="lower learning_rate"):
        CDAE(dim=4, learning_rate=1e38, epochs=5).fit(log)
