"""SequentialRules against counts by a loop."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from transcf import EventWeights, Interactions, SequentialRules, read_interactions, synthesize


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=60, items=30, interactions=600, seed=4)


def expected_scores(
    log: Interactions, model: SequentialRules, weights: np.ndarray | None = None
) -> np.ndarray:
    """Scores of all users by the definition."""
    n, histories = log.n_items, log.histories
    given = np.ones(len(log)) if weights is None else weights
    counts = np.zeros((n, n))
    for user in range(log.n_users):
        own, start = histories[user], histories.indptr[user]
        for a in range(len(own)):
            for b in range(a + 1, len(own)):
                if b - a <= model.steps:
                    by = (b - a) ** -model.distance_decay
                    counts[own[a], own[b]] += by * given[start + b]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True) + model.smoothing, 1e-9)
    scores = np.zeros((log.n_users, n))
    for user in range(log.n_users):
        own = histories[user]
        ago = np.arange(len(own), 0, -1.0)
        scores[user] = ago**-model.history_decay @ shares[own]
    return scores


@pytest.mark.parametrize(
    "params", [{}, {"steps": 2, "distance_decay": 1.0, "smoothing": 0.0, "history_decay": 50.0}]
)
def test_scores_are_those_of_the_definition(log: Interactions, params: dict[str, float]) -> None:
    model = SequentialRules(**params).fit(log)
    users = np.arange(log.n_users, dtype=np.int32)
    expected = expected_scores(log, model)
    np.testing.assert_allclose(model.scores(users), expected, rtol=1e-5, atol=1e-7)
    new = model.learned_.fold_in(log.histories).scores(users)
    np.testing.assert_allclose(new, expected, rtol=1e-5, atol=1e-7)


def test_weights_of_events_count_at_the_later_item(log: Interactions) -> None:
    weights = EventWeights(recency=2.0, trend=0)
    model = SequentialRules(event_weights=weights).fit(log)
    places, lengths = log.histories.places, np.repeat(log.histories.counts, log.histories.counts)
    raw = np.exp(2.0 * (places / lengths - 1))
    expected = expected_scores(log, model, raw / raw.mean())
    users = np.arange(log.n_users, dtype=np.int32)
    np.testing.assert_allclose(model.scores(users), expected, rtol=1e-5, atol=1e-7)


def test_effects_add_up_to_the_score(log: Interactions) -> None:
    model = SequentialRules().fit(log)
    found = model.learned_.contributions(log.histories[3], 5)
    score = model.scores(np.array([3], np.int32), np.array([5], np.int32))[0]
    assert found.effects.sum() == pytest.approx(score, rel=1e-5)


def test_without_times_the_order_of_rows_does_not_matter(log: Interactions) -> None:
    table = log.to_frame().select("user_id", "item_id")
    both = [read_interactions(t) for t in (table, table.sample(fraction=1, shuffle=True, seed=1))]
    first, second = (SequentialRules().fit(one) for one in both)
    users = np.arange(log.n_users, dtype=np.int32)
    np.testing.assert_allclose(first.scores(users), second.scores(users), rtol=1e-5, atol=1e-7)


def test_users_of_one_event_have_scores_and_teach_nothing() -> None:
    table = {"user": ["a", "a", "b"], "item": ["x", "y", "x"], "timestamp": [1, 2, 3]}
    model = SequentialRules(smoothing=0).fit(read_interactions(pl.DataFrame(table)))
    assert model.recommend("b", k=1)["item_id"].item() == "y"
    assert model.recommend("a", k=1).is_empty()
