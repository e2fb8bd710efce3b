"""The protocol `sequential`: parameters from train, histories up to the test event."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.evaluation.scorers import TableScorer

from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.data.splitters import leave_one_out, split_log, temporal_cut
from transcf.data.synthetic import synthesize
from transcf.errors import EvaluationError
from transcf.evaluation import Validation, evaluate
from transcf.experiments.run import EvalConfig, fit_and_evaluate
from transcf.models.baselines import Popularity
from transcf.models.blend import Blend
from transcf.models.bpr import BPR
from transcf.models.ease import EASE
from transcf.models.event_weights import EventWeights
from transcf.models.itemknn import ItemKNN
from transcf.models.mixture.model import TransCFMixture
from transcf.models.registry import available, create

UNTRENDED = EventWeights(trend=0)


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=80, items=50, interactions=900, seed=3)


@pytest.fixture(scope="module")
def split(log: Interactions) -> Split:
    return split_log(log, "sequential")


def sequences(log: Interactions) -> dict[str, list[str]]:
    """Items of each user, oldest first; of equal times the larger id is later."""
    table = log.to_frame().sort("user_id", "timestamp", "item_id")
    grouped = table.group_by("user_id", maintain_order=True).agg("item_id")
    return dict(grouped.iter_rows())


def brute_force(log: Interactions, score, n: int = 10) -> tuple[float, float]:
    """HitRate@n and NDCG@n of a function from a history to scores by item."""
    long_enough = [items for items in sequences(log).values() if len(items) >= 3]
    trained = {item for items in long_enough for item in items[:-2]}
    trained |= {item for items in sequences(log).values() if len(items) < 3 for item in items}
    hits = []
    for items in long_enough:
        *history, target = items
        if target not in trained:
            continue
        scores = score([item for item in history if item in trained])
        others = [item for item in trained if item not in items]
        place = 1 + sum(scores[other] >= scores[target] for other in others)
        hits.append(1 / np.log2(1 + place) if place <= n else 0.0)
    return float(np.mean(np.array(hits) > 0)), float(np.mean(hits))


@pytest.mark.parametrize("made", [EASE(), ItemKNN(), Popularity()], ids=lambda m: m.name)
def test_figures_are_those_of_a_brute_force_computation(log, split, made) -> None:
    model = made.fit(split.train)
    found = evaluate(model, split, "sequential").metrics

    def score(history: list[str]) -> dict[str, float]:
        table = model.recommend_for(history, k=len(model.items_), exclude_seen=False)
        return dict(table.select("item_id", "score").iter_rows())

    hit_rate, ndcg = brute_force(log, score)
    assert found["HitRate@10"].mean == pytest.approx(hit_rate)
    assert found["NDCG@10"].mean == pytest.approx(ndcg)


def test_the_mixture_follows_the_formula_with_trained_vectors(log, split) -> None:
    model = TransCFMixture(
        dim=8, epochs=3, event_weights=UNTRENDED, history_decay=0.7, user_vectors="learned"
    ).fit(split.train)
    found = evaluate(model, split, "sequential").metrics
    names = model.items_.series.to_list()
    rows = {name: row for row, name in enumerate(names)}
    homes = dict(zip(model.users_.series.to_list(), model.user_vectors_, strict=True))
    owners = {tuple(items[:-1]): user for user, items in sequences(log).items()}
    whole = {
        tuple(item for item in items if model.rankable[rows[item]]): user
        for items, user in owners.items()
    }

    def score(history: list[str]) -> dict[str, float]:
        a, b = homes[whole[tuple(history)]].astype(float), model.item_vectors_.astype(float)
        past = model.history_vectors_[[rows[item] for item in history]].astype(float)
        weights = np.arange(len(history), 0, -1) ** -0.7
        away = np.square(past[:, None] - b).sum(axis=2)
        near = np.log(weights @ np.exp(-model.tau * away))
        values = model.item_bias_ + near - model.beta * np.square(a - b).sum(axis=1)
        return dict(zip(names, values.tolist(), strict=True))

    assert found["NDCG@10"].mean == pytest.approx(brute_force(log, score)[1], abs=1e-6)


def test_the_validation_event_changes_lists_and_no_parameter(split) -> None:
    model = TransCFMixture(dim=8, epochs=2, event_weights=UNTRENDED).fit(split.train)
    before = {name: array.copy() for name, array in model.learned_.arrays().items()}
    longer = evaluate(model, split, "sequential").per_user
    plain = evaluate(model, split, "leave-last-out-no-refit").per_user
    assert not longer.equals(plain)
    for name, array in model.learned_.arrays().items():
        np.testing.assert_array_equal(array, before[name])
    np.testing.assert_array_equal(model.seen_.indices, split.train.by_user.indices)


def test_the_test_event_has_no_influence(split) -> None:
    """With another item in the place of each test event, all lists stay the same."""
    model = ItemKNN().fit(split.train)
    histories = split.before_test.histories
    users = np.arange(split.train.n_users, dtype=np.int32)
    expected = model.learned_.with_histories(histories.among(model.rankable)).scores(users)
    test = split.test.to_frame()
    items = split.train.items.series
    shuffled = test.with_columns(item_id=items.sample(len(test), with_replacement=True, seed=1))
    events = pl.concat([split.before_test.to_frame(), shuffled])
    other = split_log(events.unique(["user_id", "item_id"], keep="first"), "sequential")
    kept = other.before_test.histories
    same = [row for row in users.tolist() if np.array_equal(kept[row], histories[row])]
    assert len(same) > 60
    found = model.learned_.with_histories(kept.among(model.rankable)).scores(users)
    np.testing.assert_array_equal(found[same], expected[same])


def test_epochs_are_chosen_with_the_training_history(split) -> None:
    model = BPR(dim=8, epochs=4, validate_every=1).fit(split.train, Validation.of(split))
    run = fit_and_evaluate(BPR(dim=8, epochs=4, validate_every=1), split, EvalConfig("sequential"))
    assert run.validation == pytest.approx(
        evaluate(model, split, "sequential", subset="validation").metrics["NDCG@10"].mean
    )
    assert run.evaluation.protocol == "sequential"
    found = evaluate(model, split, "sequential").metrics
    assert run.evaluation.metrics["NDCG@10"] == found["NDCG@10"]


def test_trained_vectors_of_users_are_kept(split) -> None:
    """BPR cannot compute a user's vector from a history: figures are those without one."""
    model = BPR(dim=8, epochs=2, event_weights=UNTRENDED).fit(split.train)
    kept = evaluate(model, split, "sequential").per_user
    assert kept.equals(evaluate(model, split, "leave-last-out-no-refit").per_user)


@pytest.mark.parametrize("name", [name for name in available() if name != "transcf-extended"])
def test_training_histories_change_nothing(split, name) -> None:
    """With the histories of training, models score as before, or as for new users."""
    if name in ("cdae", "neumf", "lightgcn", "sasrec"):
        pytest.importorskip("torch")
    quick = {"epochs": 1, "dim": 4} if "dim" in type(create(name))._rules() else {}
    model = create(name, **quick).fit(split.train)
    users = np.arange(5, dtype=np.int32)
    found = model.learned_.with_histories(split.train.histories).scores(users)
    own, folded = model.scores(users), model.learned_.fold_in(split.train.histories).scores(users)
    assert np.allclose(found, own, atol=1e-5) or np.allclose(found, folded, atol=1e-5)


def test_a_blend_and_a_trend_pass_histories_on(split) -> None:
    blend = Blend(parts="ease + itemknn").fit(split.train, split.validation)
    assert evaluate(blend, split, "sequential").users
    trend = EASE(event_weights=EventWeights(trend=1.0)).fit(split.train)
    users, histories = np.arange(5, dtype=np.int32), split.before_test.histories
    plain = EASE(event_weights=UNTRENDED).fit(split.train)
    with_trend = trend.learned_.with_histories(histories).scores(users)
    shift = with_trend - plain.learned_.with_histories(histories).scores(users)
    np.testing.assert_allclose(shift, np.tile(trend.item_offsets_, (5, 1)), atol=1e-5)


def test_a_log_without_times_is_in_its_own_order(log) -> None:
    table = log.to_frame().sort("timestamp", "user_id", "item_id").drop("timestamp")
    untimed = split_log(table, "sequential")
    timed = split_log(log, "sequential")
    np.testing.assert_array_equal(untimed.test.item_rows, timed.test.item_rows)
    np.testing.assert_array_equal(
        untimed.before_test.histories.items, timed.before_test.histories.items
    )


def test_other_splits_and_models_are_refused(log, split) -> None:
    for other in (temporal_cut(log), leave_one_out(log, "random"), leave_one_out(log, "paper")):
        with pytest.raises(EvaluationError, match=r"sequential protocol asks for .*leave_one_out"):
            evaluate(EASE().fit(other.train), other, "sequential")
    refitted = EASE().fit(split.before_test)
    with pytest.raises(EvaluationError, match=r"none of them: fit it on split\.train"):
        evaluate(refitted, split, "sequential")
    table = TableScorer(np.ones((80, 50)), split.train.by_item.counts > 0)
    with pytest.raises(EvaluationError, match="with_histories"):
        evaluate(table, split, "sequential")
