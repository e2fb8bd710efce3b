"""Effects of past items, against formulas of their own and by asking again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.data.synthetic import synthesize
from transcf.models import explain
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.registry import create
from transcf.models.transcf import TransCF
from transcf.retrieval.scorer import BlockView

HISTORY, ITEM = np.array([11, 2, 40, 7, 23], np.int32), 33


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=120, items=60, interactions=1800, seed=6)


def guest_score(model: Any, history: Rows, item: int = ITEM) -> float:
    """What somebody with a history gets, an item's place in it being free."""
    guests = model.learned_.fold_in(Histories.of([np.asarray(history, np.int32)], 60))
    return float(guests.scores(np.zeros(1, np.int32))[0, item])


def average_score(model: Any, history: Rows, counts: np.ndarray) -> float:
    guests = model.learned_.fold_in(Histories.of([np.asarray(history, np.int32)], 60))
    block = guests.scores(np.zeros(1, np.int32))[0].astype(np.float64)
    return float(counts @ block / counts.sum())


def test_terms_of_ease_are_those_of_the_dense_formula(log: Interactions) -> None:
    model = create("ease", regularization=20.0).fit(log)
    x = np.zeros((log.n_users, log.n_items))
    x[log.user_rows, log.item_rows] = 1
    inverse = np.linalg.inv(x.T @ x + 20.0 * np.eye(60))
    weights = -inverse / np.diag(inverse)
    found = model.learned_.contributions(HISTORY, ITEM)
    np.testing.assert_allclose(found.effects, weights[HISTORY, ITEM], rtol=1e-5)
    assert (found.meaning, found.rest) == (explain.TERM, 0)


def test_terms_of_itemknn_are_its_similarities(log: Interactions) -> None:
    model = create("itemknn", n_neighbors=15, shrinkage=3.0).fit(log)
    x = np.zeros((log.n_users, log.n_items))
    x[log.user_rows, log.item_rows] = 1
    norms = np.sqrt(x.sum(axis=0))
    likeness = (x.T @ x) / (np.outer(norms, norms) + 3.0)
    np.fill_diagonal(likeness, 0)
    kept = np.sort(likeness[ITEM])[-15]
    everything = np.arange(60, dtype=np.int32)
    effects = model.learned_.contributions(everything, ITEM).effects
    clear = likeness[ITEM] != kept  # ties at the edge go by id
    expected = np.where(likeness[ITEM] > kept, likeness[ITEM], 0)
    np.testing.assert_allclose(effects[clear], expected[clear], rtol=1e-5)


@pytest.mark.parametrize("name", ["ease", "itemknn", "slim"])
def test_leaving_an_item_out_takes_its_term_away(log: Interactions, name: str) -> None:
    model = create(name).fit(log)
    found = model.learned_.contributions(HISTORY, ITEM)
    for place, effect in enumerate(found.effects):
        change = guest_score(model, HISTORY) - guest_score(model, np.delete(HISTORY, place))
        assert change == pytest.approx(effect, abs=1e-6)


def test_terms_of_fism_with_its_scale_undone(log: Interactions) -> None:
    model = create("fism", dim=8, epochs=3, alpha=0.7).fit(log)
    found, n = model.learned_.contributions(HISTORY, ITEM), len(HISTORY)
    bias = float(model.item_bias_[ITEM])
    assert found.rest == pytest.approx(bias)
    whole = n**0.7 * (guest_score(model, HISTORY) - bias)
    for place, effect in enumerate(found.effects):
        rest = (n - 1) ** 0.7 * (guest_score(model, np.delete(HISTORY, place)) - bias)
        assert n**0.7 * effect == pytest.approx(whole - rest, abs=1e-5)


@pytest.mark.parametrize("name", ["ials", "eals"])
def test_terms_of_least_squares_solve_the_normal_equations(log: Interactions, name: str) -> None:
    settings = {"dim": 8, "epochs": 4, "unobserved_weight": 0.3, "regularization": 0.2}
    model = create(name, **settings).fit(log)
    y, counts = model.item_vectors_.astype(np.float64), log.by_item.counts
    if name == "ials":
        missing, spared = 0.3 * (counts > 0), np.zeros(60)
        ridge = 0.2 * (len(HISTORY) + 0.3 * np.count_nonzero(counts)) ** model.nu
    else:
        missing = spared = model.item_weights_.astype(np.float64)
        ridge = 0.2
    owned = np.zeros(60)
    owned[HISTORY] = 1
    matrix = (y.T * (missing + owned * (1 - spared))) @ y + ridge * np.eye(8)
    expected = [y[ITEM] @ np.linalg.inv(matrix) @ y[j] for j in HISTORY]
    found = model.learned_.contributions(HISTORY, ITEM)
    np.testing.assert_allclose(found.effects, expected, rtol=1e-4, atol=1e-7)
    assert found.effects.sum() == pytest.approx(guest_score(model, HISTORY), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("bpr", {}), ("aobpr", {}), ("lightgcn", {}), ("neumf", {"form": "gmf"})],
)
def test_effects_of_means_by_trying_every_item_in_the_place(
    log: Interactions, name: str, settings: dict[str, object]
) -> None:
    """Scores are linear in what the items say: an average item is all items, by popularity."""
    model = create(name, dim=8, epochs=3, **settings).fit(log)
    counts = log.by_item.counts
    found = model.learned_.contributions(HISTORY, ITEM)

    def lead(history: Rows) -> float:
        return guest_score(model, history) - average_score(model, history, counts)

    for place, effect in enumerate(found.effects[:2]):
        others = []
        for item in range(60):
            history = HISTORY.copy()
            history[place] = item
            others.append(lead(history))
        expected = lead(HISTORY) - counts @ others / counts.sum()
        assert effect == pytest.approx(expected, abs=2e-5 * max(1, abs(lead(HISTORY))))


def test_effects_by_distance_follow_the_formula(log: Interactions) -> None:
    model = create("cml", dim=8, epochs=3).fit(log)
    y, p = model.item_vectors_.astype(np.float64), log.by_item.counts / len(log)
    x, mean = model.user_vectors_.astype(np.float64), p @ y
    means = np.array([y[log.by_user.row(user)].mean(axis=0) for user in range(log.n_users)])
    inputs = np.hstack([means, np.ones((log.n_users, 1))])
    gram = inputs.T @ inputs
    gram[:8, :8] += 0.01 * np.diag(gram)[:8].mean() * np.eye(8)
    weights = np.linalg.solve(gram, inputs.T @ x)

    def lead(vectors: np.ndarray) -> float:
        place = np.append(vectors.mean(axis=0), 1) @ weights
        place /= max(1, np.linalg.norm(place))
        scores = -((place - y) ** 2).sum(axis=1)
        return float(scores[ITEM] - p @ scores)

    found = model.learned_.contributions(HISTORY, ITEM)
    for place, effect in enumerate(found.effects):
        replaced = y[HISTORY].copy()
        replaced[place] = mean
        assert effect == pytest.approx(lead(y[HISTORY]) - lead(replaced), abs=1e-5)


@pytest.mark.parametrize("form", ["translation", "alt", "dot", "none"])
def test_effects_of_transcf_follow_the_formula(
    log: Interactions, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = TransCF(variant=form, dim=8, epochs=3).fit(log)
    learned, p = model.learned_, log.by_item.counts / len(log)
    b = model.item_vectors_.astype(np.float64)
    n = learned.n.astype(np.float64)
    weights = np.exp(learned.recency * (np.arange(1, 6) / 5 - 1))
    weights /= weights.sum()

    def lead(own_b: np.ndarray, own_n: np.ndarray) -> float:
        q = own_b.mean(axis=0)
        a = weights @ own_b
        if form == "translation":
            a = a - q * (weights @ own_n)
        elif form == "alt":
            a = (weights @ (own_b * (1 + own_b))) / (weights @ (1 + own_b) ** 2)
        elif form == "dot":
            a = a * learned.user_length
        scores = learned.bias - learned.score_function.pair_cost(a, q, b, n)
        return float(scores[ITEM] - p @ scores)

    expected = []
    for place in range(len(HISTORY)):
        own_b, own_n = b[HISTORY].copy(), n[HISTORY].copy()
        own_b[place], own_n[place] = p @ b, p @ n
        expected.append(lead(b[HISTORY], n[HISTORY]) - lead(own_b, own_n))
    found = learned.contributions(HISTORY, ITEM)
    np.testing.assert_allclose(found.effects, expected, atol=1e-5)
    assert found.meaning == explain.REPLACED

    # A form that is no inner product is compared with items as interactions would draw them.
    monkeypatch.setattr(type(learned), "linear_form", lambda self: None)
    sampled = learned.contributions(HISTORY, ITEM).effects
    assert np.abs(sampled - expected).max() < 0.3 * np.abs(expected).max()


def test_effects_of_cdae_by_asking_again(log: Interactions) -> None:
    model = create("cdae", dim=8, epochs=3).fit(log)
    found = model.learned_.contributions(HISTORY, ITEM)
    asked = FittedScorer.contributions(model.learned_, HISTORY, ITEM)
    np.testing.assert_allclose(found.effects, asked.effects, atol=1e-5)
    assert found.meaning == asked.meaning == explain.LEFT_OUT
    lead = guest_score(model, HISTORY) - average_score(model, HISTORY, log.by_item.counts)
    without = np.delete(HISTORY, 3)
    rest = guest_score(model, without) - average_score(model, without, log.by_item.counts)
    assert found.effects[3] == pytest.approx(lead - rest, abs=1e-5)


def test_effects_of_the_tower_by_scoring_placed_people(log: Interactions) -> None:
    model = create("neumf", dim=8, epochs=3).fit(log)
    learned = model.learned_
    places = learned._fold_in.changed(HISTORY).astype(np.float32)
    users = np.zeros_like(model.user_vectors_)
    users[: len(places)] = places
    arrays = {**learned.arrays(), "user_vectors": users}
    moved = model._restore_with_offsets(arrays, learned.known)
    typical = learned.known.typical_items(64).astype(np.int32)
    rows = np.arange(len(places), dtype=np.int32)
    of_item = moved.scores(rows, np.full(len(rows), ITEM, np.int32))
    of_others = moved.scores(np.repeat(rows, 64), np.tile(typical, len(rows)))
    leads = of_item - of_others.reshape(len(rows), 64).mean(axis=1)
    found = learned.contributions(HISTORY, ITEM)
    np.testing.assert_allclose(found.effects, leads[0] - leads[1:], atol=1e-5)


def test_typical_items_come_as_often_as_in_the_log(log: Interactions) -> None:
    known = TrainingData.of(log)
    drawn = np.bincount(known.typical_items(len(log)), minlength=60)
    assert np.abs(drawn - log.by_item.counts).max() <= 1
    assert known.rankable[known.typical_items(7)].all()


def test_long_histories_are_asked_about_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MOST_LEFT_OUT", 30)
    monkeypatch.setattr(explain, "_ENTRIES", 100)
    log = synthesize(users=50, items=60, interactions=900, seed=1)
    sizes = []

    def fold_in(histories: Histories) -> BlockView:
        sizes.append(len(histories.items))
        owned = histories.matrix.to_scipy().toarray()
        return BlockView("sum", np.ones(60, bool), lambda rows: owned[rows] * np.arange(60.0))

    history = np.random.default_rng(0).permutation(60).astype(np.int32)[:45]
    item = int(history[-1])
    found = explain.by_leaving_out(fold_in, TrainingData.of(log), history, item)
    assert found.history.tolist() == history[-30:].tolist(), "the latest"
    assert max(sizes) <= 100
    counts = log.by_item.counts
    expected = -counts[found.history] * found.history / counts.sum()
    expected[-1] += item
    np.testing.assert_allclose(found.effects, expected, atol=1e-9)


def test_an_explanation_says_that_it_looked_at_a_part(
    log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = create("cdae", dim=4, epochs=1).fit(log)
    monkeypatch.setattr(explain, "MOST_LEFT_OUT", 3)
    monkeypatch.setattr(type(model.learned_), "contributions", FittedScorer.contributions)
    ids = model.items_.series.to_list()
    found = model.explain_for(ids[:7], ids[20])
    assert {entry.item_id for entry in found.effects} <= set(ids[4:7])
    assert "Of 7 past items the latest 3 were looked at" in str(found)
