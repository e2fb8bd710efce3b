"""NeuMF against its formula in double precision, finite differences, and its own parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from transcf.data import synthesize
from transcf.data.csr import Histories
from transcf.data.interactions import Interactions
from transcf.models.event_weights import EVEN
from transcf.models.torch.networks import AdamTraining, NeuMFNetwork
from transcf.models.torch.neumf import NeuMF, NeuMFSettings

CPU = torch.device("cpu")
FORMS = ["neumf", "gmf", "mlp"]


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=80, items=50, interactions=900, seed=1)


def made(**changes: object) -> NeuMFSettings:
    plain = {"dim": 3, "learning_rate": 0.02, "negatives": 2, "batch_size": 96, "init_scale": 0.3}
    return NeuMFSettings(**(plain | changes))


def stored_weights(settings: NeuMFSettings, tensors: dict) -> dict:
    return NeuMF()._arrays(tensors, None, settings)  # the training data are not looked at


def logits(form: str, dim: int, x: np.ndarray, y: np.ndarray, weights: dict) -> np.ndarray:
    """The formula for pairs of rows, in double precision, layer by layer."""
    w = {name: value.astype(float) for name, value in weights.items()}
    x, y = x.astype(float), y.astype(float)
    cut = 0 if form == "mlp" else dim
    total = np.zeros(len(x))
    if form != "mlp":
        total += (x[:, :cut] * y[:, :cut] * w["gmf_head"]).sum(axis=1) + w["gmf_bias"]
    if form != "gmf":
        joined = np.hstack([x[:, cut:], y[:, cut:]])
        first = np.vstack([w["user_weight"], w["item_weight"]])
        z = np.maximum(joined @ first + w["bias_1"], 0)
        for layer in (2, 3):
            z = np.maximum(z @ w[f"weight_{layer}"] + w[f"bias_{layer}"], 0)
        total += z @ w["mlp_head"] + w["mlp_bias"]
    return total


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_the_formula(log: Interactions, form: str) -> None:
    model = NeuMF(form=form, dim=3, epochs=3, learning_rate=0.02, init_scale=0.3).fit(log)
    users, items = (rows.ravel() for rows in np.indices((log.n_users, log.n_items), np.int32))
    expected = logits(
        form, 3, model.user_vectors_[users], model.item_vectors_[items], model.weights_
    )
    np.testing.assert_allclose(model.scores(users, items), expected, atol=1e-5)
    block = model.scores(np.arange(log.n_users, dtype=np.int32))
    np.testing.assert_allclose(block.ravel(), expected, atol=1e-5)
    assert (model.linear_form() is not None) == (form == "gmf")
    widths = {"neumf": 15, "gmf": 3, "mlp": 12}
    assert model.user_vectors_.shape == (log.n_users, widths[form])


@pytest.mark.parametrize("form", FORMS)
def test_lists_are_those_of_brute_force(log: Interactions, form: str) -> None:
    model = NeuMF(form=form, dim=3, epochs=3, learning_rate=0.02).fit(log)
    users, items = (rows.ravel() for rows in np.indices((log.n_users, log.n_items), np.int32))
    scores = model.scores(users, items).reshape(log.n_users, log.n_items)
    scores[log.user_rows, log.item_rows] = -np.inf
    best = -np.sort(-scores, axis=1)[:, :4]
    table = model.recommend(k=4)
    np.testing.assert_allclose(table["score"].to_numpy().reshape(-1, 4), best, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_guests_with_the_history_of_a_user_get_scores_like_theirs(
    log: Interactions, form: str
) -> None:
    model = NeuMF(form=form, dim=8, epochs=15, learning_rate=0.01).fit(log)
    histories = [log.by_user.row(user) for user in range(log.n_users)]
    rows = np.arange(log.n_users, dtype=np.int32)
    guests = model.learned_.fold_in(Histories.of(histories, log.n_items)).scores(rows)
    alike = [np.corrcoef(*pair)[0, 1] for pair in zip(guests, model.scores(rows), strict=True)]
    assert np.median(alike) > 0.8


@pytest.mark.parametrize(("form", "pretrain"), [(form, 0) for form in FORMS] + [("neumf", 1)])
def test_losses_and_penalties_are_those_of_the_formula(
    log: Interactions, form: str, pretrain: int
) -> None:
    table = np.random.default_rng(4).gamma(1.0, 1.0, (log.n_users, log.n_items))
    weights = table[log.user_rows, log.item_rows].astype(np.float32)
    settings = made(form=form, pretrain=pretrain, regularization=0.3)
    network = NeuMFNetwork(log.by_user, weights, settings).double()
    users, items, counts = next(network.batches(2))
    found = network(
        torch.from_numpy(users).long(), torch.from_numpy(items).long(), torch.from_numpy(counts)
    )
    tensors = {name: values.numpy() for name, values in network.state_dict().items()}
    state = stored_weights(settings, tensors)
    x, y = state["user_vectors"][np.repeat(users, 3)], state["item_vectors"][items.ravel()]
    apart = ["gmf", "mlp"] if pretrain else [form]
    truth, expected = np.tile([1, 0, 0], len(users)), 0.0
    for part in apart:
        cut = slice(None) if part == form else slice(3) if part == "gmf" else slice(3, None)
        # The stored weights of parts that are apart have half of their logits.
        s = logits(part, 3, x[:, cut], y[:, cut], state) * len(apart)
        p = 1 / (1 + np.exp(-s))
        likelihood = np.repeat(counts, 3) * truth * np.log(p)
        expected -= np.sum(likelihood + (1 - truth) * np.log(1 - p))
    assert found[0].item() == pytest.approx(expected)
    assert found[1].item() == pytest.approx(0.3 * ((x**2).sum() + (y**2).sum()))


def test_joining_averages_the_logits_of_both_parts(log: Interactions) -> None:
    settings = made(pretrain=2)
    training = AdamTraining(NeuMFNetwork, log.by_user, EVEN, settings, CPU)
    for number in (1, 2):
        training.run_epoch(number)
    network = training.network
    users, items, _ = (torch.from_numpy(part).long() for part in next(network.batches(1)))
    with torch.no_grad():
        user, item = network.users(users), network.items(items[:, 0])
        expected = torch.stack(network.logits(user, item)).mean(dim=0).numpy()
    before = stored_weights(settings, training.tensors())
    assert network.prepare(3)
    after = stored_weights(settings, training.tensors())
    for state in (before, after):
        found = logits("neumf", 3, user.numpy(), item.numpy(), state)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert not network.prepare(3)


def test_pretraining_is_training_each_part_alone(log: Interactions) -> None:
    both = AdamTraining(NeuMFNetwork, log.by_user, EVEN, made(pretrain=2), CPU)
    start = {name: tensor.copy() for name, tensor in both.tensors().items()}
    alone = {}
    for form, columns in (("gmf", slice(3)), ("mlp", slice(3, 15))):
        alone[form] = AdamTraining(NeuMFNetwork, log.by_user, EVEN, made(form=form), CPU)
        tables = {name: start[name][:, columns] for name in ("users.weight", "items.weight")}
        own = {name: start[name] for name in alone[form].tensors()}
        alone[form].load_tensors(own | tables | {"joined": np.array([True])})
    for number in (1, 2):
        for training in (both, *alone.values()):
            training.run_epoch(number)
    found = both.tensors()
    for form, columns in (("gmf", slice(3)), ("mlp", slice(3, 15))):
        expected = alone[form].tensors()
        for name in ("users.weight", "items.weight"):
            np.testing.assert_allclose(found[name][:, columns], expected[name], atol=1e-5)
        head = f"{form}_head.weight"
        np.testing.assert_allclose(found[head], expected[head], atol=1e-5)
