"""Events that count more or less: what every model that takes weights of them must do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.conformance.conftest import with_side
from tests.conformance.test_every_model import all_scores, make

import transcf
from transcf.data.interactions import Interactions
from transcf.data.readers import read_interactions
from transcf.errors import DataError
from transcf.models.base import Recommender
from transcf.models.event_weights import EventWeights, InteractionWeights
from transcf.models.params import params_of
from transcf.models.registry import available, model_class
from transcf.models.triples import Problem

WEIGHTS = {"recency": 3.0, "half_life": 0.2, "confidence": "ratings"}
OFF = {"recency": 0.0, "half_life": None, "confidence": "none"}
WEIGHING = [name for name in available() if "recency" in model_class(name)._rules()]
EVERY_WEIGHING_MODEL = pytest.mark.parametrize("name", WEIGHING)
#: Those that learn from triples, or that draw events in some other way.
BY_TRIPLES = [name for name in WEIGHING if name in ("bpr", "aobpr", "cml") or "transcf" in name]


def events() -> pl.DataFrame:
    """Events of 40 users with 30 items, in the order of time, with stars."""
    rng = np.random.default_rng(8)
    table = pl.DataFrame({"user": rng.integers(0, 40, 700), "item": rng.integers(0, 30, 700)})
    table = table.unique(maintain_order=True).with_row_index("timestamp")
    stars = rng.integers(1, 6, len(table)).astype(np.float64)
    return table.with_columns(rating=pl.Series(stars), timestamp=pl.col("timestamp").cast(int))


@pytest.fixture(scope="module")
def log() -> Interactions:
    return with_side(read_interactions(events()))


def fit(name: str, log: Interactions, **settings: object) -> Recommender:
    short = {"epochs": 2} if model_class(name)._has_epochs() else {}
    return make(name, **(short | OFF | settings)).fit(log)


def bits(model: Recommender) -> dict[str, bytes]:
    return {key: array.tobytes() for key, array in model.learned_.arrays().items()}


def test_who_weighs_events() -> None:
    """Everything that learns: the floor looks at nothing but counts, a blend leaves it to parts."""
    others = {"random", "blend"}
    learning = [name for name in available() if "popularity" not in name and name not in others]
    for name in learning:
        assert set(WEIGHTS) <= set(model_class(name)._rules()), name


@EVERY_WEIGHING_MODEL
@pytest.mark.parametrize("setting", WEIGHTS)
def test_weights_change_what_is_learned(name: str, setting: str, log: Interactions) -> None:
    plain, weighted = fit(name, log), fit(name, log, **{setting: WEIGHTS[setting]})
    assert bits(plain) != bits(weighted)
    assert not np.array_equal(all_scores(plain), all_scores(weighted))
    assert np.isfinite(all_scores(weighted)).all()


@EVERY_WEIGHING_MODEL
def test_without_timestamps_there_is_neither_place_nor_age(name: str) -> None:
    untimed = with_side(read_interactions(events().drop("timestamp")))
    plain = fit(name, untimed)
    for setting in ("recency", "half_life"):
        weighted = fit(name, untimed, **{setting: WEIGHTS[setting]})
        assert bits(weighted) == bits(plain)
        assert all_scores(weighted).tobytes() == all_scores(plain).tobytes()
        history = untimed.items.series[[4, 2, 9]].to_list()
        assert weighted.recommend_for(history, k=5).equals(plain.recommend_for(history, k=5))


@EVERY_WEIGHING_MODEL
@pytest.mark.parametrize("confidence", ["ratings", "log-ratings"])
def test_equal_ratings_change_no_bit(name: str, confidence: str) -> None:
    same = with_side(read_interactions(events().with_columns(rating=pl.lit(4.0))))
    plain, weighted = fit(name, same), fit(name, same, confidence=confidence)
    assert bits(weighted) == bits(plain)
    assert all_scores(weighted).tobytes() == all_scores(plain).tobytes()


@EVERY_WEIGHING_MODEL
def test_confidence_needs_ratings_above_zero(name: str, log: Interactions) -> None:
    unrated = read_interactions(events().drop("rating"))
    with pytest.raises(DataError, match="needs ratings and the log has none: leave confidence out"):
        fit(name, unrated, confidence="ratings")
    assert log.ratings is not None
    sunk = replace(log, ratings=log.ratings - 1)
    with pytest.raises(DataError, match="needs ratings above 0, and the lowest is 0"):
        fit(name, sunk, confidence="log-ratings")


@EVERY_WEIGHING_MODEL
def test_a_loaded_model_keeps_its_answers(name: str, log: Interactions, tmp_path: Path) -> None:
    model = fit(name, log, **WEIGHTS)
    loaded = transcf.load(model.save(tmp_path / "model"))
    assert loaded.get_params() == params_of(model.settings_)
    assert bits(loaded) == bits(model)
    assert all_scores(loaded).tobytes() == all_scores(model).tobytes()
    history = log.items.series[[4, 2, 9]].to_list()
    assert loaded.recommend_for(history, k=9).equals(model.recommend_for(history, k=9))
    user = log.users.series[3]
    item = model.recommend(user, k=1)["item_id"][0]
    assert loaded.explain(user, item).to_dict() == model.explain(user, item).to_dict()


def test_weights_follow_place_age_and_rating(log: Interactions) -> None:
    assert log.timestamps is not None
    assert log.ratings is not None
    found = InteractionWeights.of(log, EventWeights(**WEIGHTS))
    expected, newest_first = np.empty(len(log)), np.sort(log.timestamps)[::-1]
    for event in range(len(log)):
        mine = log.timestamps[log.user_rows == log.user_rows[event]]
        place = np.mean(mine <= log.timestamps[event])
        age = np.mean(newest_first > log.timestamps[event])
        expected[event] = np.exp(3 * (place - 1)) * 0.5 ** (age / 0.2) * log.ratings[event]
    np.testing.assert_allclose(found.raw, expected)
    np.testing.assert_allclose(found.overall, expected / expected.mean(), rtol=1e-5)
    by_item = np.lexsort((log.user_rows, log.item_rows))
    np.testing.assert_array_equal(found.of_item_entries, found.overall[by_item])
    sums = np.bincount(log.user_rows, expected / expected.mean())
    np.testing.assert_allclose(found.sums_of_users, sums, rtol=1e-5)
    np.testing.assert_allclose(found.of_users * log.by_user.counts, sums, rtol=1e-5)
    of_items = np.bincount(log.item_rows, expected / expected.mean())
    np.testing.assert_allclose(found.sums_of_items, of_items, rtol=1e-5)


@pytest.mark.parametrize("name", BY_TRIPLES)
def test_ages_and_ratings_say_how_often_users_are_drawn(name: str, log: Interactions) -> None:
    settings = make(name, **(OFF | {"half_life": 0.2})).settings
    problem = Problem.of(log, settings.event_weights)
    weights = InteractionWeights.of(log, settings.event_weights).overall
    sums = np.bincount(log.user_rows, weights)
    np.testing.assert_allclose(problem.samples_of_users(None), sums, rtol=1e-5)
    assert sums.max() > 1.2 * log.by_user.counts[sums.argmax()]
    # With a fixed number of triples the mean weight of a user decides.
    means = sums / log.by_user.counts
    np.testing.assert_allclose(problem.samples_of_users(10), 10 * means / means.mean(), rtol=1e-5)
    # Places in a history compare no users.
    placed = Problem.of(log, make(name, **(OFF | {"recency": 3.0})).event_weights)
    np.testing.assert_array_equal(placed.samples_of_users(None), log.by_user.counts)
    means = np.bincount(log.user_rows, placed.weights) / log.by_user.counts
    np.testing.assert_allclose(means, 1, rtol=1e-5)
