"""NeuMF against its formula in double precision, finite differences, and its own parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from transcf.data import synthesize
from transcf.data.histories import Histories
from transcf.data.interactions import Interactions
from transcf.models.neumf import NeuMF, NeuMFSettings
from transcf.models.neumf.training import NeuMFTraining, batch_loss
from transcf.models.neumf.weights import initial_weights, served

CPU = torch.device("cpu")
FORMS = ["neumf", "gmf", "mlp"]


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=80, items=50, interactions=900, seed=1)


def made(**changes: object) -> NeuMFSettings:
    plain = {"dim": 3, "learning_rate": 0.02, "negatives": 2, "batch_size": 96, "init_scale": 0.3}
    return NeuMFSettings(**(plain | changes))


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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("counts", [None, [0.2, 2.0, 1.0, 0.8]])
def test_the_loss_is_the_formula_and_its_gradient_is_right(
    form: str, joined: bool, counts: list[float] | None
) -> None:
    settings, rng = made(form=form, dim=2, layers=3), np.random.default_rng(1)
    weights = {
        name: value + 0.1 * rng.normal(size=value.shape)
        for name, value in initial_weights(settings, rng).items()
    }
    x, y = rng.normal(size=(4, settings.width)), rng.normal(size=(4, 3, settings.width))
    parts = [torch.tensor(part, requires_grad=True) for part in (x, y, *weights.values())]

    def value(users: torch.Tensor, items: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        by_name = dict(zip(weights, rest, strict=True))
        own = None if counts is None else torch.tensor(counts, dtype=torch.float64)
        return batch_loss(settings, users, items, by_name, joined=joined, counts=own)

    assert torch.autograd.gradcheck(value, parts, fast_mode=True)
    apart = [form] if joined or form != "neumf" else ["gmf", "mlp"]
    truth, expected = np.tile([1, 0, 0], 4), 0.0
    left, right = np.repeat(x, 3, axis=0), y.reshape(12, -1)
    for part in apart:
        cut = slice(None) if part == form else slice(2) if part == "gmf" else slice(2, None)
        p = 1 / (1 + np.exp(-logits(part, 2, left[:, cut], right[:, cut], weights)))
        likelihood = np.repeat(counts or [1.0] * 4, 3) * truth * np.log(p)
        expected -= np.mean(likelihood + (1 - truth) * np.log(1 - p))
    assert value(*parts).item() == pytest.approx(expected)


def test_joining_mixes_the_answers_of_both_parts(log: Interactions) -> None:
    settings = made(pretrain=2)
    training = NeuMFTraining(log.by_user, settings, CPU)
    for number in (1, 2):
        training.run_epoch(number)
    apart = {name: tensor.copy() for name, tensor in training.tensors().items()}
    x, y = apart["users.rows"][:40, :15], apart["items.rows"][:40, :15]
    gmf = logits("gmf", 3, x[:, :3], y[:, :3], apart)
    mlp = logits("mlp", 3, x[:, 3:], y[:, 3:], apart)
    before = served(settings, apart)
    training._join()
    after = served(settings, training.tensors())
    for state in (before, after):
        np.testing.assert_allclose(
            logits("neumf", 3, x, y, state), 0.5 * gmf + 0.5 * mlp, atol=1e-6
        )
    assert not training.tensors()["users.clocks"].any()
    assert apart["users.clocks"].any()


def test_pretraining_is_training_each_part_alone(log: Interactions) -> None:
    both = NeuMFTraining(log.by_user, made(pretrain=2), CPU)
    start = {name: tensor.copy() for name, tensor in both.tensors().items()}
    alone = {}
    for form, columns in (("gmf", range(3)), ("mlp", range(3, 15))):
        alone[form] = NeuMFTraining(log.by_user, made(form=form), CPU)
        # Values and two moments lie side by side, 15 columns each.
        kept = [block * 15 + column for block in range(3) for column in columns]
        tables = {name: start[name][:, kept] for name in ("users.rows", "items.rows")}
        own = alone[form].tensors()
        alone[form].load_tensors({name: start[name] for name in own} | tables | {"joined": [True]})
    for number in (1, 2):
        for training in (both, *alone.values()):
            training.run_epoch(number)
    found = both.tensors()
    for form, columns in (("gmf", slice(3)), ("mlp", slice(3, 15))):
        expected = alone[form].tensors()
        width = 3 if form == "gmf" else 12
        for name in ("users.rows", "items.rows"):
            np.testing.assert_allclose(
                found[name][:, columns], expected[name][:, :width], atol=1e-5
            )
        np.testing.assert_allclose(found[f"{form}_head"], expected[f"{form}_head"], atol=1e-5)


@pytest.mark.parametrize(("form", "pretrain"), [(form, 0) for form in FORMS] + [("neumf", 1)])
def test_gradients_are_those_of_the_loss_with_the_squares_of_every_pair(
    log: Interactions, form: str, pretrain: int
) -> None:
    settings = made(form=form, pretrain=pretrain, regularization=0.3)
    training = NeuMFTraining(log.by_user, settings, CPU)
    training.run_epoch(1)
    tensors = training.tensors()
    tables = [tensors[f"{name}.rows"][:, : settings.width] for name in ("users", "items")]
    others = {name: tensors[name] for name in settings.shapes()}
    leaves = [torch.tensor(part, dtype=torch.float64) for part in (*tables, *others.values())]
    x, y, *rest = (leaf.requires_grad_() for leaf in leaves)
    rng = np.random.default_rng(2)
    users = torch.from_numpy(rng.integers(0, 12, 32))
    items = torch.from_numpy(rng.integers(0, log.n_items, (32, 3)))
    weights = dict(zip(others, rest, strict=True))
    loss = batch_loss(settings, x[users], y[items], weights, joined=not pretrain)
    squares = [
        x[u].square().sum() + y[i].square().sum()
        for u, row in zip(users.tolist(), items.tolist(), strict=True)
        for i in row
    ]
    whole = loss + 0.3 * torch.stack(squares).mean()
    to_users, to_items, *to_weights = torch.autograd.grad(whole, [x, y, *rest])
    found = training.gradients(users, items)
    assert found.loss.item() == pytest.approx(loss.item(), rel=1e-5)
    for (taken, slopes), slope in zip(found[1:3], (to_users, to_items), strict=True):
        everywhere = torch.zeros_like(slope).index_copy(0, taken.rows, slopes.double())
        torch.testing.assert_close(everywhere, slope, atol=1e-6, rtol=1e-4)
    for slope, name in zip(to_weights, others, strict=True):
        torch.testing.assert_close(found.weights[name].double(), slope, atol=1e-6, rtol=1e-4)
