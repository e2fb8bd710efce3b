"""TransCF's attention and learned map: formulas in double precision, differences, refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from transcf.data import synthesize
from transcf.data.histories import Histories
from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.errors import ParameterError, UnsupportedError
from transcf.kernels import Array
from transcf.learning.forms import FORMS
from transcf.learning.known import Known
from transcf.learning.triples import Problem
from transcf.models.registry import create, load, name_and_params
from transcf.models.transcf import TransCF, TransCFSettings
from transcf.models.transcf.exact import Averages, Triples, gradient, look_up, losses
from transcf.models.transcf.learned import Translated
from transcf.models.transcf.neural.formula import Pairs, Points, triple_losses
from transcf.models.transcf.neural.learned import Extended
from transcf.models.transcf.neural.neighbors import Neighborhoods
from transcf.models.transcf.neural.training import NeuralTraining, first_weights
from transcf.models.transcf.parameters import Parameters

CPU = torch.device("cpu")
PARTS = {
    "attention": {"neighbors": "attention"},
    "map": {"mapping": "network", "hidden": 4},
    "both": {"neighbors": "attention", "mapping": "network", "hidden": 4},
}
EVERY_PART = pytest.mark.parametrize("part", PARTS)
EVERY_FORM = pytest.mark.parametrize("form", ["translation", "dot", "swapped"])
#: All terms of the loss at work.
LOSS = {
    "margin": 1.0, "reg_distance": 0.7, "reg_neighborhood": 0.6, "bias_decay": 0.4,
    "negatives": 3, "tie_neighbors": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=40, items=30, interactions=300, seed=2)


def made(part: str, **changes: object) -> TransCFSettings:
    given = {"form": "translation", "dim": 5, **PARTS[part], **changes}
    return TransCF(**given).settings


def random_weights(settings: TransCFSettings, size: float = 1.0) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    shapes = settings.weight_shapes(settings.dim)
    return {name: size * rng.standard_normal(shape) for name, shape in shapes.items()}


def random_points(log: Interactions, dim: int) -> Parameters:
    rng = np.random.default_rng(8)
    sizes = [(log.n_users, dim), (log.n_items, dim), (log.n_items,)]
    return Parameters(*(0.5 * rng.standard_normal(size) for size in sizes))


def softmax_mean(vectors: Array, logits: Array) -> Array:
    if not len(vectors):
        return np.zeros(vectors.shape[1])
    weights = np.exp(logits - logits.max())
    return weights @ vectors / weights.sum()


class Oracle:
    """Score and loss of single pairs, from the formulas alone."""

    def __init__(
        self, log: Interactions, settings: TransCFSettings, points: Parameters, weights: dict
    ) -> None:
        self.log, self.settings, self.points, self.weights = log, settings, points, weights

    def neighborhoods(self, user: int, item: int, left_out: bool) -> tuple[Array, Array]:
        own, others = self.log.by_user.row(user), self.log.by_item.row(item)
        if self.settings.neighbors == "mean":
            return self.points.items[own].mean(axis=0), self.points.users[others].mean(axis=0)
        if left_out:
            own, others = own[own != item], others[others != user]
        w, sharp = self.weights, np.exp(self.weights["temperatures"])
        a, b = self.points.users[user], self.points.items[item]
        past, users = self.points.items[own], self.points.users[others]
        q = softmax_mean(past, sharp[0] * past @ (w["item_attention"] * b))
        return q, softmax_mean(users, sharp[1] * users @ (w["user_attention"] * a))

    def translation(self, q: Array, n: Array) -> Array:
        w = self.weights
        if self.settings.mapping == "product":
            return q * n
        joined = np.concatenate([q, n]) @ np.vstack([w["map_q"], w["map_n"]])
        return q * n + np.tanh(joined + w["map_bias"]) @ w["map_out"]

    def cost(self, user: int, item: int, left_out: bool = False) -> float:
        r = self.translation(*self.neighborhoods(user, item, left_out))
        a, b = self.points.users[user], self.points.items[item]
        if self.settings.form == "dot":
            return float(-(a + r) @ b)
        moved = b + r - a if self.settings.form == "swapped" else a + r - b
        return float(moved @ moved)

    def score(self, user: int, item: int) -> float:
        return float(self.points.item_bias[item] - self.cost(user, item))

    def loss(self, user: int, item: int, other: int, weight: float) -> float:
        s, bias = self.settings, self.points.item_bias
        near, far = self.cost(user, item, True), self.cost(user, other, True)
        q, n = self.neighborhoods(user, item, True)
        apart = np.square(self.points.users[user] - q).sum() * q.any()
        apart += np.square(self.points.items[item] - n).sum() * n.any()
        gap = s.margin + near - bias[item] - far + bias[other]
        decay = s.bias_decay * (bias[item] ** 2 + bias[other] ** 2)
        return float(weight * gap + s.reg_distance * near + s.reg_neighborhood * apart + decay)


def learned_of(
    log: Interactions, settings: TransCFSettings, points: Parameters, weights: dict
) -> Extended:
    single = Parameters(*(array.astype(np.float32) for array in vars(points).values()))
    few = {name: array.astype(np.float32) for name, array in weights.items()}
    return Extended(Known.of(log), settings, single, few)


def all_pairs(log: Interactions) -> tuple[Array, Array]:
    users, items = np.indices((log.n_users, log.n_items), np.int32)
    return users.ravel(), items.ravel()


# -- scores ------------------------------------------------------------------------------------


@EVERY_FORM
@EVERY_PART
def test_scores_are_the_formula(log: Interactions, form: str, part: str) -> None:
    settings = made(part, form=form)
    points, weights = random_points(log, 5), random_weights(settings)
    learned, oracle = learned_of(log, settings, points, weights), Oracle(log, settings, points, {})
    oracle.weights = weights
    users, items = all_pairs(log)
    expected = [oracle.score(*pair) for pair in zip(users, items, strict=True)]
    expected = np.reshape(expected, (log.n_users, log.n_items))
    np.testing.assert_allclose(
        learned.score_pairs(users, items).reshape(expected.shape), expected, rtol=2e-5, atol=2e-5
    )
    block = learned.score_block(np.arange(log.n_users, dtype=np.int32))
    np.testing.assert_allclose(block, expected, rtol=2e-4, atol=2e-4)
    r = [oracle.translation(*oracle.neighborhoods(3, item, False)) for item in range(4)]
    rows = np.full(4, 3, np.int32), np.arange(4, dtype=np.int32)
    np.testing.assert_allclose(learned.translations(*rows), r, rtol=1e-4, atol=1e-5)
    assert learned.linear_form() is None


@EVERY_FORM
@EVERY_PART
def test_first_weights_score_as_the_plain_form(log: Interactions, form: str, part: str) -> None:
    settings = made(part, form=form)
    learned = learned_of(log, settings, random_points(log, 5), first_weights(settings))
    plain = dataclasses.replace(settings, neighbors="mean", mapping="product")
    expected = Translated(learned.known, plain, learned.parameters)
    everybody, pairs = np.arange(log.n_users, dtype=np.int32), all_pairs(log)
    for found, wanted in (
        (learned.score_block(everybody), expected.score_block(everybody)),
        (learned.score_pairs(*pairs), expected.score_pairs(*pairs)),
        (learned.translations(*pairs), expected.translations(*pairs)),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    some = [np.array([4, 1, 7], np.int32), np.array([2], np.int32)]
    guests, rows = Histories.of(some, log.n_items), np.arange(2, dtype=np.int32)
    np.testing.assert_allclose(
        learned.guests(guests).score_block(rows),
        expected.guests(guests).score_block(rows),
        rtol=1e-4,
        atol=1e-5,
    )


def test_blocks_do_not_depend_on_how_items_are_cut(
    log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = made("both")
    learned = learned_of(log, settings, random_points(log, 5), random_weights(settings))
    whole = learned.score_block(np.arange(9, dtype=np.int32))
    monkeypatch.setattr("transcf.models.transcf.neural.scores._NUMBERS_AT_ONCE", 200)
    monkeypatch.setattr("transcf.models.transcf.neural.learned._NEIGHBORS_AT_ONCE", 30)
    np.testing.assert_allclose(learned.score_block(np.arange(9, dtype=np.int32)), whole, rtol=1e-4)
    pairs = np.arange(9, dtype=np.int32), np.arange(9, 18, dtype=np.int32)
    np.testing.assert_allclose(learned.score_pairs(*pairs), whole[pairs], rtol=1e-4)


# -- loss and gradients --------------------------------------------------------------------------


def few_triples(log: Interactions, settings: TransCFSettings) -> tuple[NeuralTraining, Triples]:
    """A training whose neighbourhoods are whole, and some triples."""
    training = NeuralTraining(Problem.of(log), settings, CPU)
    rng = np.random.default_rng(3)
    users = rng.choice(np.flatnonzero(log.by_user.counts), 25)
    own = np.array([rng.choice(log.by_user.row(user)) for user in users])
    active = np.flatnonzero(log.by_item.counts)
    others = [
        rng.choice(np.setdiff1d(active, log.by_user.row(user)), settings.negatives)
        for user in users
    ]
    return training, Triples(users, own, np.array(others))


def pairs_of(training: NeuralTraining, triples: Triples, places: Array | int) -> Pairs:
    """The own item and one of the others of each user."""
    chosen = triples.negatives[np.arange(len(triples.users)), places]
    items = np.stack([triples.positives, chosen], axis=1).astype(np.int64)
    return training.pairs(triples.users.astype(np.int64), items, np.random.default_rng(0))


@EVERY_FORM
@EVERY_PART
def test_the_loss_is_the_formula_and_its_gradients_are_right(
    log: Interactions, form: str, part: str
) -> None:
    settings = made(part, form=form, **LOSS)
    training, triples = few_triples(log, settings)
    points, weights = random_points(log, 5), random_weights(settings, 0.7)
    pairs = pairs_of(training, triples, 0)
    hinge = np.linspace(0, 1, len(triples.users))
    arrays = [points.users, points.items, points.item_bias[:, None], *weights.values()]
    leaves = [torch.tensor(array, requires_grad=True) for array in arrays]

    def total(*tensors: torch.Tensor) -> torch.Tensor:
        named = dict(zip(weights, tensors[3:], strict=True))
        at = Points(*tensors[:3])
        return triple_losses(settings, at, pairs, named, torch.from_numpy(hinge)).sum()

    oracle = Oracle(log, settings, points, weights)
    rows = zip(triples.users, triples.positives, triples.negatives[:, 0], hinge, strict=True)
    assert float(total(*leaves).detach()) == pytest.approx(sum(oracle.loss(*row) for row in rows))
    slopes = torch.autograd.grad(total(*leaves), leaves)
    for place, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
        rng = np.random.default_rng(place)
        flat, size = leaf.detach().flatten(), 1e-6
        for entry in rng.choice(len(flat), min(12, len(flat)), replace=False):
            moved = []
            for step in (size, -size):
                at = flat.clone()
                at[entry] += step
                others = [at.view_as(leaf) if n == place else x for n, x in enumerate(leaves)]
                moved.append(float(total(*others).detach()))
            expected = (moved[0] - moved[1]) / (2 * size)
            assert float(slope.flatten()[entry]) == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert slope.abs().max() > 1e-3, "the loss depends on it"


@EVERY_FORM
@pytest.mark.parametrize("tie", [False, True])
def test_a_map_of_nothing_has_the_loss_and_the_gradient_of_the_exact_solver(
    log: Interactions, form: str, tie: bool
) -> None:
    settings = made("map", form=form, **(LOSS | {"tie_neighbors": tie}))
    training, triples = few_triples(log, settings)
    points, n_active = random_points(log, 5), int((log.by_item.counts > 0).sum())
    averages = Averages(Problem.of(log))
    batch = look_up(points, averages, triples, settings, n_active)
    tables = (training._users, training._items, training._bias)
    arrays = (points.users, points.items, points.item_bias[:, None])
    for table, array in zip(tables, arrays, strict=True):
        table.tensor.copy_(torch.from_numpy(array))
    items = np.hstack([triples.positives[:, None], triples.negatives]).astype(np.int64)
    candidates = training.pairs(triples.users.astype(np.int64), items, np.random.default_rng(0))
    hardest, hinge = training.hardest(candidates)
    np.testing.assert_array_equal(hardest.items[:, 1], batch.hardest)
    np.testing.assert_allclose(hinge, batch.weight, rtol=1e-6)
    leaves = [torch.tensor(array, requires_grad=True) for array in arrays]
    weights = {n: torch.from_numpy(w).double() for n, w in first_weights(settings).items()}
    found = triple_losses(settings, Points(*leaves), hardest, weights, hinge.double())
    np.testing.assert_allclose(found.detach(), losses(batch, settings), rtol=1e-5)
    slopes = torch.autograd.grad(found.sum(), leaves)
    expected = gradient(batch, averages, settings)
    np.testing.assert_allclose(slopes[0], expected.users, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slopes[1], expected.items, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slopes[2][:, 0], expected.item_bias, rtol=1e-5, atol=1e-6)


# -- neighbourhoods ------------------------------------------------------------------------------


def test_neighbours_are_drawn_evenly_and_never_twice(log: Interactions) -> None:
    hoods = Neighborhoods(log.by_user.indptr, log.by_user.indices, 4)
    rng = np.random.default_rng(0)
    counts, draws = np.zeros((log.n_users, log.n_items)), 600
    rows = np.arange(log.n_users)
    for _ in range(draws):
        hoods.shuffle(rng)
        found = hoods.of(rows, rng)
        assert (found.absent.sum(axis=1) == np.maximum(0, 4 - log.by_user.counts)).all()
        for user in rows:
            own = found.rows[user][~found.absent[user]]
            assert len(set(own)) == len(own)
            counts[user, own] += 1
    sizes = log.by_user.counts
    for user in np.flatnonzero(sizes):
        share = min(1.0, 4 / sizes[user])
        error = np.sqrt(draws * share * (1 - share))
        assert np.abs(counts[user, log.by_user.row(user)] - draws * share).max() <= 5 * error
    assert counts.sum() == draws * np.minimum(4, sizes).sum()


def test_shuffling_depends_on_the_generator_alone(log: Interactions) -> None:
    one, two = (Neighborhoods(log.by_user.indptr, log.by_user.indices, 3) for _ in range(2))
    one.shuffle(np.random.default_rng(1))
    for hoods in (one, two):
        hoods.shuffle(np.random.default_rng(2))
    assert (one._indices == two._indices).all()


# -- the model -----------------------------------------------------------------------------------


@EVERY_PART
def test_weights_are_learned_saved_and_grown(log: Interactions, part: str, tmp_path: Path) -> None:
    model = TransCF(form="translation", dim=6, epochs=2, neighbors_at_most=4, **PARTS[part])
    model.fit(log)
    weights = model.learned_.weights
    assert all(np.isfinite(array).all() and array.any() for array in weights.values())
    again = load(model.save(tmp_path / "model"))
    assert again.recommend().equals(model.recommend())
    new = read_interactions(pl.DataFrame({"user": ["somebody"], "item": [log.items.series[3]]}))
    again.partial_fit(new)
    kept = again.users_.rows(log.users.series)
    np.testing.assert_array_equal(again.user_vectors_[kept], model.user_vectors_)
    assert len(again.recommend("somebody", k=3)) == 3
    with pytest.raises(UnsupportedError, match="steps=2"):
        model.recommend_for([log.items.series[0]], steps=2)


def test_explanations_tell_the_distance_of_the_pair(log: Interactions) -> None:
    model = TransCF(form="translation", neighbors="attention", dim=6, epochs=3).fit(log)
    user, item = 4, int(np.flatnonzero(model.rankable)[5])
    remarks = model.learned_.remarks(user, log.by_user.row(user), item, 3)
    pair = np.array([user], np.int32), np.array([item], np.int32)
    score = remarks.facts["bias"] - remarks.facts["distance_after"]
    assert score == pytest.approx(float(model.score_pairs(*pair)[0]), abs=1e-5)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"form": "still", "neighbors": "attention"}, r'form="still" has no q and n'),
        ({"form": "alt", "mapping": "network"}, "forms translation, dot, emb, swapped"),
        ({"form": "mixture", "neighbors": "attention"}, "has no q and n"),
        ({"form": "translation", "hidden": 16}, "does not look at hidden"),
        ({"form": "dot", "neighbors": "attention", "hidden": 16}, "and attention .* hidden"),
        ({"form": "dot", "mapping": "network", "solver": "exact"}, "and map .* solver"),
        ({"form": "dot", "neighbors_at_most": 9}, "does not look at neighbors_at_most"),
        ({"form": "mixture", "neighbors_at_most": 9}, "does not look at neighbors_at_most"),
    ],
)
def test_what_is_not_looked_at_is_refused(
    log: Interactions, params: dict[str, object], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        TransCF(**params).fit(log)


def test_names_and_defaults_follow_the_parts() -> None:
    both = TransCF(form="dot", neighbors="attention", mapping="network")
    assert both.name == "TransCF-dot-attention-map"
    assert name_and_params(create("transcf-map", hidden=16)) == ("transcf-map", {"hidden": 16})
    usual = create("transcf-translation", dim=8)
    there = create("transcf-translation", dim=8).set_params(neighbors="attention")
    assert there.get_params() == create("transcf-attention", dim=8).get_params()
    assert there.set_params(neighbors="mean").get_params() == usual.get_params()
    assert FORMS["swapped"].title == create("transcf-swapped").name
