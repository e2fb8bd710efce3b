"""The calendar cut, what a judged model may have learned from, and what did not exist yet."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from tests.evaluation.scorers import TableScorer

from transcf import protocols
from transcf.data.ids import IdMap
from transcf.data.interactions import Interactions
from transcf.data.split import Split
from transcf.data.splitters import (
    leave_one_out,
    random_ratio,
    split_log,
    temporal_cut,
    usual_protocol,
)
from transcf.data.synthetic import synthesize
from transcf.errors import EvaluationError, FewUsersWarning, ParameterError
from transcf.evaluation import Evaluation, evaluate
from transcf.evaluation.ranks import COLD_TARGET, NO_HISTORY
from transcf.experiments.experiment import compare
from transcf.models.ease import EASE
from transcf.models.registry import create


def drifting(seed: int = 0) -> Interactions:
    """A log in which users and items come up one after another, some of them only at the end."""
    rng = np.random.default_rng(seed)
    users, items, times = [], [], []
    for moment in range(600):
        users.append(int(rng.integers(0, 5 + moment // 12)))
        items.append(int(rng.integers(moment // 20, 12 + moment // 12)))
        times.append(moment // 2)
    return Interactions.from_rows(
        IdMap(pl.Series(range(60))),
        IdMap(pl.Series(range(70))),
        np.array(users, np.int32),
        np.array(items, np.int32),
        timestamps=np.array(times, np.int64),
    )


def one_more(split: Split, seed: int = 0) -> Interactions:
    """All that comes before the test, and a single event of the test part."""
    event = np.zeros(len(split.test), dtype=bool)
    event[np.random.default_rng(seed).integers(len(event))] = True
    return Interactions.joined(split.before_test, split.test.select(event))


def best_items(scores: np.ndarray, allowed: list[int]) -> list[int]:
    return sorted(allowed, key=lambda item: -scores[item])


@pytest.mark.parametrize("seed", range(3))
def test_forward_equals_plain_python(seed: int) -> None:
    split = temporal_cut(drifting(seed))
    model = EASE(regularization=2.0).fit(split.before_test)
    found = evaluate(model, split, k=5)
    assert found.protocol == "temporal"
    before, after = split.before_test.to_frame(), split.test.to_frame()
    assert before["timestamp"].max() < after["timestamp"].min()
    there = set(before["item_id"])
    expected, cold, strangers = {}, 0, 0
    for user, events in after.group_by("user_id"):
        own = set(before.filter(pl.col("user_id") == user[0])["item_id"])
        if not own:
            strangers += 1
            continue
        targets = [item for item in events["item_id"] if item in there]
        cold += len(events) - len(targets)
        if targets:
            scores = model.scores(np.array([user[0]], np.int32))[0]
            ranked = best_items(scores, [item for item in range(70) if item in there - own])
            ranks = [ranked.index(item) + 1 for item in targets]
            inside = [rank for rank in ranks if rank <= 5]
            ideal = sum(1 / math.log2(place + 2) for place in range(min(5, len(targets))))
            expected[user[0]] = (
                float(bool(inside)),
                sum(1 / math.log2(rank + 1) for rank in inside) / ideal,
                len(inside) / len(targets),
            )
    table = found.per_user.select("user_id", "HitRate@5", "NDCG@5", "Recall@5").sort("user_id")
    rows = [[user, *figures] for user, figures in sorted(expected.items())]
    np.testing.assert_allclose(table.to_numpy(), rows)
    assert max(split.test.by_user.counts) > 1
    assert found.skipped == {NO_HISTORY: strangers, COLD_TARGET: cold}


@pytest.mark.parametrize("make", [temporal_cut, leave_one_out])
def test_what_comes_before_the_test_is_the_log_without_it(make) -> None:
    log = synthesize(users=60, items=40, interactions=900, seed=1)
    split = make(log)
    tested = set(split.test.positions.tolist())
    kept = log.select(np.array([place not in tested for place in log.positions]))
    joined = split.before_test
    for name in ("positions", "ratings", "timestamps", "item_rows", "user_rows", "in_order"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(kept, name))
    assert (joined.users, joined.items) == (log.users, log.items)
    assert joined.categories.equals(log.categories)
    assert joined.report.to_list() == kept.report.to_list()


@pytest.mark.parametrize("make", [temporal_cut, leave_one_out])
def test_a_single_event_of_the_test_is_one_too_many(make) -> None:
    split = make(drifting())
    assert evaluate(EASE().fit(split.before_test), split).users
    for seed in range(5):
        with pytest.raises(EvaluationError, match="fitted on 1 of the test interactions"):
            evaluate(EASE().fit(one_more(split, seed)), split)


@pytest.mark.parametrize(
    ("make", "name"), [(temporal_cut, "temporal"), (leave_one_out, "leave-last-out")]
)
def test_what_a_model_has_learned_from_is_part_of_the_protocol(make, name) -> None:
    split = make(drifting())
    early, late = EASE().fit(split.train), EASE().fit(split.before_test)
    assert evaluate(late, split).protocol == name
    assert evaluate(early, split).protocol == f"{name}-no-refit"
    for model, asked, learned, mend in (
        (early, name, 0, f"refit it on split.before_test, or use the {name}-no-refit protocol"),
        (late, f"{name}-no-refit", len(split.validation), f"split.train, or use the {name} proto"),
    ):
        message = f"fitted on {learned} of the {len(split.validation)} validation .*{mend}"
        with pytest.raises(EvaluationError, match=message):
            evaluate(model, split, asked)
    half = split.validation.select(np.arange(len(split.validation)) % 2 == 0)
    between = EASE().fit(Interactions.joined(split.train, half))
    with pytest.raises(EvaluationError, match=r"fitted on all of them"):
        evaluate(between, split)
    assert evaluate(early, split, name, subset="validation").protocol == name


def test_a_split_of_another_kind_is_refused() -> None:
    log = drifting()
    cut, newest = temporal_cut(log), leave_one_out(log)
    with pytest.raises(EvaluationError, match=r"at one moment.*or use the leave-last-out "):
        evaluate(EASE().fit(newest.before_test), newest, "temporal")
    with pytest.raises(EvaluationError, match=r"last event held out.*or use the temporal "):
        split_log(cut, "leave-last-out")
    assert not random_ratio(log).is_cut
    assert not replace(cut, recipe={}, validation=newest.validation).is_cut
    assert replace(cut, recipe={}).is_cut  # whoever made it
    assert usual_protocol(random_ratio(log)) == "leave-last-out"


def test_the_cut_is_usual_where_somebody_can_be_judged_by_it() -> None:
    log = drifting()
    assert split_log(log).is_cut
    table = log.to_frame()
    assert split_log(table.drop("timestamp")).recipe["rule"] == "leave-one-out by random"
    for times in (pl.lit(7), pl.col("user_id")):  # one moment; each user has one of their own
        timed = table.with_columns(timestamp=times)
        assert split_log(timed).recipe["rule"] == "leave-one-out by time"
    assert compare("ease", log).config.protocol == "temporal"
    assert compare("ease", leave_one_out(log)).config.protocol == "leave-last-out"


def share_of_the_unborn(
    found: Evaluation, scorer: TableScorer, split: Split, n: int, part: str = "test"
) -> float:
    """Look up every recommended item of every judged user."""
    parts = [getattr(split, name).to_frame() for name in ("train", "validation", "test")]
    born = dict(pl.concat(parts).group_by("item_id").agg(pl.col("timestamp").min()).iter_rows())
    held = getattr(split, part).to_frame()
    known, early, shown = split.known_items(part), 0, 0
    for user in found.per_user["user_id"]:
        moment = held.filter(pl.col("user_id") == user)["timestamp"].min()
        own = known.row(user)
        allowed = [i for i in range(70) if scorer.rankable[i] and i not in own]
        items = best_items(scorer.table[user], allowed)[:n]
        early += sum(born[item] > moment for item in items)
        shown += len(items)
    return early / shown


@pytest.mark.parametrize("make", [temporal_cut, leave_one_out, random_ratio])
@pytest.mark.parametrize("part", ["validation", "test"])
def test_what_did_not_exist_yet_is_counted(make, part, monkeypatch) -> None:
    monkeypatch.setattr("transcf.evaluation.metrics.BLOCK_BYTES", 1000)  # a few users at a time
    split = make(drifting(4))
    learned = split.before_test if part == "test" else split.train
    table = np.random.default_rng(2).random((60, 70))
    scorer = TableScorer(table, learned.by_item.counts > 0)
    found = evaluate(scorer, split, subset=part, k=(4, 80))
    for n in (4, 80):
        expected = share_of_the_unborn(found, scorer, split, n, part)
        assert found.catalogue[f"future@{n}"] == pytest.approx(expected)
        assert (expected == 0) == (make is temporal_cut)
    assert "future@4" in found.to_dict()["catalogue"]


def test_without_times_nothing_is_said_of_the_future() -> None:
    split = leave_one_out(drifting().to_frame().drop("timestamp"))
    found = evaluate(EASE().fit(split.before_test), split)
    assert not [name for name in found.catalogue if name.startswith("future")]
    assert "exist yet" not in str(compare("ease", split))
    timed = str(compare("ease", drifting(), protocol="leave-last-out"))
    assert "future@10" in timed
    assert "share of the first N that did not exist yet when the held-out event happened" in timed
    assert "future@10" not in str(compare("ease", drifting())), "there are none"


def test_a_protocol_is_one_entry(monkeypatch) -> None:
    mine = protocols.Protocol("mine", "as I like it", sampled=True)
    with pytest.raises(ParameterError, match=r"'temporal', .* 'paper-as-published'"):
        compare("ease", drifting(), protocol="mine")
    monkeypatch.setitem(protocols.PROTOCOLS, "mine", mine)
    found = compare("ease", drifting(), protocol="mine", trivial_baselines=False)
    assert found.runs[0].evaluations[0].protocol == "mine"
    assert found.runs[0].first.full_ranking.protocol == "leave-last-out-no-refit"
    assert "mine (as I like it)" in protocols.help_on_protocols()


def test_few_judged_users_are_warned_about() -> None:
    log = synthesize(users=400, items=60, interactions=4000, seed=2)
    split = temporal_cut(log, at=0.01)
    with pytest.warns(FewUsersWarning, match=r"Only \d+ of 400 users .*leave_one_out"):
        evaluate(create("popularity").fit(split.before_test), split)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split = leave_one_out(log)
        evaluate(create("popularity").fit(split.before_test), split)
        small = leave_one_out(synthesize(users=40, items=30, interactions=400))
        evaluate(create("popularity").fit(small.before_test), small)
