"""Weights of events and trend, against plain formulas and dense solutions."""

from __future__ import annotations

import datetime as dt
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from transcf import create, read_interactions
from transcf.data import synthesize
from transcf.data.interactions import Interactions
from transcf.errors import DataError, ParameterError, UnsupportedError
from transcf.models.event_weights import EventWeights, InteractionWeights, by_age
from transcf.models.registry import load
from transcf.models.trend import recent_events
from transcf.models.triples import Problem

BOTH = {"recency": 2.0, "half_life": 0.2}
ITEM_MODELS = {"ease": {"regularization": 5.0}, "slim": {"l1": 0.1, "l2": 3.0}, "itemknn": {}}


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=60, items=30, interactions=700, seed=5)


@pytest.fixture(scope="module")
def rated() -> Interactions:
    events = [("ann", "x", 4.0), ("ann", "y", 1.0), ("bob", "x", 2.0), ("bob", "z", 2.0)]
    table = pl.DataFrame(events, schema=["user", "item", "rating"], orient="row")
    return read_interactions(table)


def plain_weights(log: Interactions, recency: float, half_life: float) -> np.ndarray:
    """Y, (n_users, n_items), event by event."""
    found = np.zeros((log.n_users, log.n_items))
    assert log.timestamps is not None
    for user in range(log.n_users):
        events = [e for e in range(len(log)) if log.user_rows[e] == user]
        events.sort(key=lambda e: (log.timestamps[e], log.item_rows[e]))
        for place, event in enumerate(events, start=1):
            later = np.count_nonzero(log.timestamps > log.timestamps[event]) / len(log)
            weight = np.exp(recency * (place / len(events) - 1)) * 2 ** (-later / half_life)
            found[user, log.item_rows[event]] = weight
    return found


def matrices(log: Interactions) -> tuple[np.ndarray, np.ndarray]:
    """X and Y, Y with mean 1 over the events."""
    targets = plain_weights(log, BOTH["recency"], BOTH["half_life"])
    return (targets > 0).astype(float), targets / targets[targets > 0].mean()


def test_weights_are_those_of_the_formula(log: Interactions) -> None:
    found = InteractionWeights.of(log, EventWeights(**BOTH))
    wanted = plain_weights(log, **BOTH)[log.user_rows, log.item_rows]
    np.testing.assert_allclose(found.raw, wanted, rtol=1e-12)
    np.testing.assert_allclose(found.overall, wanted / wanted.mean(), rtol=1e-6)
    by_item = np.lexsort((log.user_rows, log.item_rows))
    np.testing.assert_array_equal(found.of_item_entries, found.overall[by_item])


def test_users_are_drawn_by_the_sum_of_their_weights_in_calendar_mode_only(
    log: Interactions,
) -> None:
    sums = plain_weights(log, 0.0, 0.2).sum(axis=1)
    samples = Problem.of(log, EventWeights(half_life=0.2)).samples_of_users(None)
    np.testing.assert_allclose(samples, sums / sums.sum() * len(log), rtol=1e-9)
    even = Problem.of(log, EventWeights(recency=4.0)).samples_of_users(None)
    np.testing.assert_array_equal(even, log.by_user.counts)


def test_ages_of_dates_are_days() -> None:
    days = [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 11), dt.datetime(2024, 1, 21)]
    table = pl.DataFrame({"user": ["a", "b", "c"], "item": [1, 2, 3], "timestamp": days})
    dated = read_interactions(table)
    np.testing.assert_allclose(by_age(dated, 10.0), [0.25, 0.5, 1.0])
    np.testing.assert_allclose(by_age(dated, 1 / 3, "events"), [0.25, 0.5, 1.0])
    seconds = table.with_columns(pl.col("timestamp").dt.epoch("s"))
    np.testing.assert_allclose(by_age(read_interactions(seconds), 10.0, "days"), [0.25, 0.5, 1.0])
    np.testing.assert_allclose(by_age(read_interactions(seconds), 1 / 3), [0.25, 0.5, 1.0])


def test_one_wrong_date_is_said() -> None:
    """Days count from the newest event: one of the year 2099 makes all others look old."""
    start = dt.datetime(2024, 1, 1)
    days = [start + dt.timedelta(days=n % 30) for n in range(199)]
    users, items = [f"u{n}" for n in range(200)], [n % 7 for n in range(200)]

    def dated(last: dt.datetime) -> Interactions:
        return read_interactions(
            pl.DataFrame({"user": users, "item": items, "timestamp": [*days, last]})
        )

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_age(dated(start + dt.timedelta(days=200)), 10.0)
        by_age(dated(dt.datetime(2099, 1, 1)), 0.1, "events")
    with pytest.warns(UserWarning, match=r"27,36\d days later than 99 % .* within 29 days"):
        by_age(dated(dt.datetime(2099, 1, 1)), 10.0)


def test_confidence_comes_from_ratings(rated: Interactions) -> None:
    found = InteractionWeights.of(rated, EventWeights(confidence="ratings"))
    np.testing.assert_allclose(found.overall, np.array([4, 1, 2, 2]) / 2.25, rtol=1e-6)
    found = InteractionWeights.of(rated, EventWeights(confidence="log-ratings"))
    np.testing.assert_allclose(found.raw, np.log([5, 2, 3, 3]))
    with pytest.raises(DataError, match="needs ratings and the log has none"):
        InteractionWeights.of(replace(rated, ratings=None), EventWeights(confidence="ratings"))
    negative = replace(rated, ratings=np.array([1, -2, 1, 1], np.float32))
    with pytest.raises(DataError, match="the lowest is -2"):
        InteractionWeights.of(negative, EventWeights(confidence="ratings"))


def test_weighted_ease_is_the_constrained_minimum(log: Interactions) -> None:
    X, Y = matrices(log)
    model = create("ease", regularization=5.0, **BOTH).fit(log)
    for target in range(log.n_items):
        others = np.delete(np.arange(log.n_items), target)
        gram = X[:, others].T @ X[:, others] + 5.0 * np.eye(len(others))
        wanted = np.linalg.solve(gram, X[:, others].T @ Y[:, target])
        np.testing.assert_allclose(model.weights_[others, target], wanted, atol=2e-6)
        assert model.weights_[target, target] == 0


def test_weighted_slim_equals_scikit_learn(log: Interactions) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    X, Y = matrices(log)
    weights = create("slim", l1=0.1, l2=3.0, **BOTH).fit(log).weights_.toarray()
    net = linear_model.ElasticNet(
        alpha=3.1 / len(X), l1_ratio=0.1 / 3.1, positive=True, fit_intercept=False, tol=1e-10,
        max_iter=10_000,
    )  # fmt: skip
    for target in range(0, log.n_items, 5):
        others = X.copy()
        others[:, target] = 0.0
        wanted = net.fit(others, Y[:, target]).coef_
        np.testing.assert_allclose(weights[:, target], wanted, atol=2e-3)


def test_weighted_itemknn_counts_users_of_the_target_by_weight(log: Interactions) -> None:
    X, Y = matrices(log)
    norms = np.sqrt(X.sum(axis=0))
    wanted = (X.T @ Y) / (np.outer(norms, norms) + 10.0)
    np.fill_diagonal(wanted, 0.0)
    found = create("itemknn", n_neighbors=30, shrinkage=10.0, **BOTH).fit(log).weights_.toarray()
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("name", ITEM_MODELS)
def test_histories_are_weighted_when_items_are_scored(name: str, log: Interactions) -> None:
    Y = plain_weights(log, BOTH["recency"], np.inf)
    model = create(name, **ITEM_MODELS[name], **BOTH).fit(log)
    weights = model.weights_ if name == "ease" else model.weights_.toarray()
    users = np.arange(log.n_users, dtype=np.int32)
    np.testing.assert_allclose(model.scores(users), Y @ weights, rtol=1e-4, atol=1e-5)
    history = log.histories[3]
    by_place = np.exp(2.0 * (np.arange(1, len(history) + 1) / len(history) - 1))
    guests = model.recommend_for(log.items.ids(history).to_list(), k=3)
    wanted = by_place @ weights[history]
    wanted[history] = -np.inf
    best = np.argsort(-wanted)[:3]
    assert guests["item_id"].to_list() == log.items.ids(best.astype(np.int32)).to_list()
    np.testing.assert_allclose(guests["score"], wanted[best], rtol=1e-4)


@pytest.mark.parametrize("name", ITEM_MODELS)
@pytest.mark.parametrize("scored", [0.0, 5.0])
def test_a_scored_history_may_have_a_recency_of_its_own(
    name: str, scored: float, log: Interactions, tmp_path
) -> None:
    """What is learned keeps the other one; with none at all, both stay as they were."""
    plain = create(name, **ITEM_MODELS[name], **BOTH).fit(log)
    model = create(name, **ITEM_MODELS[name], **BOTH, history_recency=scored).fit(log)
    weights = model.weights_ if name == "ease" else model.weights_.toarray()
    learned = plain.weights_ if name == "ease" else plain.weights_.toarray()
    np.testing.assert_array_equal(weights, learned)
    users = np.arange(log.n_users, dtype=np.int32)
    wanted = plain_weights(log, scored, np.inf) @ weights
    loaded = load(model.save(tmp_path / "model"))
    for one in (model, loaded):
        np.testing.assert_allclose(one.scores(users), wanted, rtol=1e-4, atol=1e-5)
    same = create(name, **ITEM_MODELS[name], **BOTH, history_recency=BOTH["recency"]).fit(log)
    np.testing.assert_array_equal(same.scores(users), plain.scores(users))
    user = log.users.series[3]
    item = model.recommend(user, k=1)["item_id"][0]
    found = loaded.explain(user, item, top=100)
    total = sum(entry.effect for entry in found.effects) + found.rest
    assert total == pytest.approx(found.score, rel=1e-4)


@pytest.mark.parametrize("name", ITEM_MODELS)
def test_explanations_of_weighted_histories_add_up(name: str, log: Interactions, tmp_path) -> None:
    model = create(name, **ITEM_MODELS[name], **BOTH).fit(log)
    user = log.users.ids(np.array([3], np.int32))[0]
    item = model.recommend(user, k=1)["item_id"][0]
    loaded = load(model.save(tmp_path / "model"))
    for one in (model, loaded):
        found = one.explain(user, item, top=100)
        total = sum(entry.effect for entry in found.effects) + found.rest
        assert total == pytest.approx(found.score, rel=1e-4)


@pytest.mark.parametrize("name", ITEM_MODELS)
def test_guests_and_users_of_one_history_are_scored_alike(name: str, log: Interactions) -> None:
    """With a trend the scale of scores matters, too."""
    model = create(name, **ITEM_MODELS[name], recency=4.0, trend=1.0).fit(log)
    for row in range(0, log.n_users, 7):
        history = log.items.ids(log.histories[row]).to_list()
        wanted = model.recommend(log.users.series[row], k=8)
        found = model.recommend_for(history, k=8)
        assert found["item_id"].to_list() == wanted["item_id"].to_list()
        np.testing.assert_allclose(found["score"], wanted["score"], rtol=1e-4)


# -- trend -----------------------------------------------------------------------------------


def test_recent_popularity_counts_events_by_age(log: Interactions) -> None:
    np.testing.assert_allclose(recent_events(log, None), plain_weights(log, 0.0, 0.05).sum(axis=0))
    wanted = plain_weights(log, 0.0, 0.02).sum(axis=0)
    model = create("recent-popularity").fit(log)
    np.testing.assert_allclose(model.item_scores_, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["ease", "bpr", "ials", "transcf-mixture"])
def test_trend_adds_recent_popularity_in_units_of_the_scores(
    name: str, log: Interactions, tmp_path
) -> None:
    """In the bias, in another dimension of the vectors, or beside the scores."""
    settings = {} if name == "ease" else {"dim": 4, "epochs": 2}
    users = np.arange(log.n_users, dtype=np.int32)
    plain = create(name, **settings).fit(log).scores(users)
    model = create(name, trend=0.5, trend_half_life=0.1, **settings).fit(log)
    recent = np.log(plain_weights(log, 0.0, 0.1).sum(axis=0) + 0.1)
    prior = (recent - recent.mean()) / recent.std()
    wanted = plain + 0.5 * plain.std(axis=1).mean() * prior
    np.testing.assert_allclose(model.scores(users), wanted, rtol=1e-4, atol=1e-5)
    form = model.linear_form()
    if form is not None:
        np.testing.assert_allclose(form.scores(users), wanted, rtol=1e-4, atol=1e-5)
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.scores(users), model.scores(users))
    history = log.items.ids(log.histories[3]).to_list()
    assert loaded.recommend_for(history, k=5).equals(model.recommend_for(history, k=5))


def test_trend_needs_times(rated: Interactions) -> None:
    with pytest.raises(ParameterError, match=r"trend=1\.0 needs timestamps"):
        create("ease", trend=1.0).fit(rated)


def test_a_trend_beside_the_vectors_is_not_renewed_by_partial_fit(log: Interactions) -> None:
    model = create("eals", dim=4, epochs=1, trend=1.0).fit(log)
    with pytest.raises(UnsupportedError, match="cannot renew its trend"):
        model.partial_fit(pl.DataFrame({"user": ["new"], "item": [log.items.series[0]]}))
