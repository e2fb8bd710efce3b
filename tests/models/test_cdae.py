"""CDAE against its formula, written out, and against finite differences."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch

from transcf.data import synthesize
from transcf.data.histories import Histories
from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.errors import DivergenceError
from transcf.models.cdae import CDAE, CDAESettings
from transcf.models.cdae.training import CDAETraining, hidden, pair_loss

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


def test_scores_are_those_of_the_autoencoder(log: Interactions) -> None:
    training = CDAETraining(log.by_user, made(), CPU)
    training.run_epoch(1)
    tensors = training.tensors()
    nodes, inputs = (tensors[f"{n}.rows"][:, :5].astype(float) for n in ("nodes", "inputs"))
    outputs, bias = tensors["outputs.rows"][:, :6].astype(float), tensors["bias"].astype(float)
    model = CDAE(
        dim=5, learning_rate=0.02, dropout=0.4, negatives=3, batch_size=16, init_scale=0.3, epochs=1
    ).fit(log)
    for user in range(log.n_users):
        own = log.by_user.row(user)
        h = sigmoid(inputs[own].sum(axis=0) + nodes[user] + bias)
        expected = outputs[:, :5] @ h + outputs[:, 5]
        found = model.scores(np.array([user], dtype=np.int32))[0]
        np.testing.assert_allclose(found, expected, atol=1e-5)
    # A guest has the mean node, and nothing else that differs.
    own = log.by_user.row(3)
    h = sigmoid(inputs[own].sum(axis=0) + nodes.mean(axis=0) + bias)
    guests = model.learned_.fold_in(Histories.of([own], log.n_items))
    guest = guests.scores(np.array([0], dtype=np.int32))[0]
    np.testing.assert_allclose(guest, outputs[:, :5] @ h + outputs[:, 5], atol=1e-5)


def test_guests_have_the_mean_node_of_everybody_with_interactions() -> None:
    """Also of who has every item, and is never trained; not of who has none."""
    pairs = [("all", n) for n in range(4)] + [("ann", 0), ("bob", 1), ("bob", 2), ("idle", 3)]
    users, items = zip(*pairs, strict=True)
    log = read_interactions(pl.DataFrame({"user": users, "item": items}))
    log = log.select(log.user_rows < 3)
    training = CDAETraining(log.by_user, made(), CPU)
    first = training.tensors()["nodes.rows"][:, :5].copy()
    training.run_epoch(1)
    tensors = training.tensors()
    nodes = tensors["nodes.rows"][:, :5]
    assert (nodes == first).all(axis=1).tolist() == [True, False, False, True]
    model = CDAE(
        dim=5, learning_rate=0.02, dropout=0.4, negatives=3, batch_size=16, init_scale=0.3, epochs=1
    ).fit(log)
    expected = tensors["bias"] + nodes[:3].mean(axis=0)
    np.testing.assert_allclose(model.guest_bias_, expected, atol=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "square"])
def test_the_loss_is_the_formula_and_its_gradient_is_right(loss: str) -> None:
    make = torch.Generator().manual_seed(2)

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=make, requires_grad=True)

    nodes, bias, inputs, outputs = leaf(3, 4), leaf(4), leaf(5, 4), leaf(6, 5)
    owners, places = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 0, 1, 2])
    items = torch.tensor([[0, 3], [1, 4], [2, 5], [3, 0]])

    def value(*parts: torch.Tensor) -> torch.Tensor:
        nodes, bias, inputs, outputs = parts
        return pair_loss(loss, hidden(nodes, bias, inputs, owners, 2.0), outputs, places, items)

    assert torch.autograd.gradcheck(value, (nodes, bias, inputs, outputs), fast_mode=True)
    v, b, w, o = (part.detach().numpy() for part in (nodes, bias, inputs, outputs))
    total = 0.0
    for place, pair in zip(places.tolist(), items.tolist(), strict=True):
        h = sigmoid(2 * w[owners.numpy() == place].sum(axis=0) + v[place] + b)
        for truth, item in zip((1, 0), pair, strict=True):
            s = h @ o[item, :4] + o[item, 4]
            p = sigmoid(s)
            entropy = -np.log(p) if truth else -np.log(1 - p)
            total += entropy if loss == "logistic" else (s - truth) ** 2
    assert value(nodes, bias, inputs, outputs).item() == pytest.approx(total / 3)


def test_an_epoch_shows_every_interaction_and_drops_some_of_the_input(log: Interactions) -> None:
    training = CDAETraining(log.by_user, made(negatives=4, dropout=0.4), CPU)
    batches = list(training._batches(1))
    pairs = [
        (int(batch.users[place]), int(items[0]))
        for batch in batches
        for place, items in zip(batch.places, batch.items, strict=True)
    ]
    assert sorted(pairs) == sorted(zip(log.user_rows.tolist(), log.item_rows.tolist(), strict=True))
    assert len({user for batch in batches for user in batch.users.tolist()}) == log.n_users
    kept = np.concatenate([batch.kept.numpy() for batch in batches])
    assert abs(kept.mean() - 0.6) < 4 * np.sqrt(0.24 / len(kept))
    own = set(pairs)
    drawn = {
        (int(batch.users[place]), item)
        for batch in batches
        for place, items in zip(batch.places, batch.items, strict=True)
        for item in items[1:].tolist()
    }
    assert not own & drawn
    other = np.concatenate([batch.kept.numpy() for batch in training._batches(2)])
    assert not np.array_equal(kept, other)


@pytest.mark.parametrize("loss", ["logistic", "square"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_are_those_of_the_written_loss_with_its_squares(
    log: Interactions, loss: str, weighted: bool
) -> None:
    table = np.random.default_rng(4).gamma(1.0, 1.0, (log.n_users, log.n_items))
    counts = table[log.user_rows, log.item_rows].astype(np.float32)[: len(log) * weighted]
    own = made(loss=loss, regularization=0.3)
    training = CDAETraining(log.by_user, own, CPU, counts)
    training.run_epoch(1)
    widths = {"nodes.rows": 5, "inputs.rows": 5, "outputs.rows": 6}
    tables = {name: training.tensors()[name][:, :width] for name, width in widths.items()}
    tables["bias"] = training.tensors()["bias"]
    leaves = [torch.tensor(table, dtype=torch.float64) for table in tables.values()]
    nodes, inputs, outputs, bias = (leaf.requires_grad_() for leaf in leaves)
    batch = next(training._batches(2))
    errors, squares = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for place, user in enumerate(batch.users.tolist()):
        mine = batch.places == place
        seen, shown = batch.items[mine & batch.kept, 0], batch.items[mine]
        h = torch.sigmoid(inputs[seen].sum(dim=0) / 0.6 + nodes[user] + bias)
        s = outputs[shown, :5] @ h + outputs[shown, 5]
        t = torch.zeros_like(s)
        t[:, 0] = 1
        p = torch.sigmoid(s)
        entropy = -t * torch.log(p) - (1 - t) * torch.log(1 - p)
        each = entropy if loss == "logistic" else (s - t) ** 2
        if weighted:
            own_weights = torch.from_numpy(table[user, shown[:, 0].numpy()])
            each = torch.hstack([own_weights[:, None] * each[:, :1], each[:, 1:]])
        errors = errors + each.sum()
        parts = nodes[user], inputs[seen], outputs[shown]
        squares = squares + sum(part.square().sum() for part in parts)
    whole = (errors + 0.3 * squares) / len(batch.users)
    expected = torch.autograd.grad(whole, [nodes, inputs, outputs, bias])
    found = training.gradients(batch)
    assert found.loss.item() == pytest.approx(errors.item() / len(batch.users), rel=1e-5)
    for (taken, slopes), slope in zip(found[1:4], expected[:3], strict=True):
        everywhere = torch.zeros_like(slope).index_copy(0, taken.rows, slopes.double())
        torch.testing.assert_close(everywhere, slope, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.bias.double(), expected[3], atol=1e-5, rtol=1e-4)


def test_divergence_names_the_cure(log: Interactions) -> None:
    with pytest.raises(DivergenceError, match="lower learning_rate"):
        CDAE(dim=4, loss="square", learning_rate=1e30, epochs=5).fit(log)
