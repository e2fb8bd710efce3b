"""The automatic trend, against plain loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from transcf import Blend, Split, create, load, read_interactions, synthesize, temporal_cut
from transcf.data.interactions import Interactions
from transcf.evaluation.validation import as_validation
from transcf.models.trend import AutoTrend, coordinate_search, trend_of, typical_spread

HALF_LIVES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3)
STRENGTHS = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 10.0)
MODELS = {
    "ease": {},
    "itemknn": {},
    "bpr": {"dim": 8, "epochs": 4},
    "ials": {"dim": 8, "epochs": 2},
    "transcf": {"dim": 8, "epochs": 4},
    "transcf-mixture": {"dim": 8, "epochs": 4},
}
GROWING = {
    "eals": {"dim": 8, "epochs": 2},
    **{n: MODELS[n] for n in ("transcf", "transcf-mixture")},
}


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=400, items=150, interactions=8000, drift=8.0, seed=1)


@pytest.fixture(scope="module")
def split(log: Interactions) -> Split:
    return temporal_cut(log)


def plain_counts(log: Interactions, half_life_events: float) -> np.ndarray:
    """n_h, event by event."""
    found = np.zeros(log.n_items)
    for item, time in zip(log.item_rows, log.timestamps, strict=True):
        found[item] += 2 ** (-np.count_nonzero(log.timestamps > time) / half_life_events)
    return found


def plain_prior(log: Interactions, half_life: float) -> np.ndarray:
    counts = np.bincount(log.item_rows, minlength=log.n_items)
    return np.log(plain_counts(log, half_life * len(log)) + 1) - 0.3 * np.log(counts + 1)


def plain_ndcg(scores: np.ndarray, train: Interactions, held_out: Interactions) -> np.ndarray:
    """NDCG@10 of each user with training and held-out items; equal scores count against it."""
    rankable = np.bincount(train.item_rows, minlength=train.n_items) > 0
    found = []
    for user in range(train.n_users):
        known = set(train.item_rows[train.user_rows == user].tolist())
        held = set(held_out.item_rows[held_out.user_rows == user].tolist()) - known
        targets = [item for item in held if rankable[item]]
        if not known or not targets:
            continue
        others = [i for i in np.flatnonzero(rankable) if i not in known and i not in targets]
        gain = 0.0
        for place, score in enumerate(sorted(scores[user, targets], reverse=True)):
            rank = 1 + place + sum(scores[user, other] >= score for other in others)
            gain += 1 / np.log2(rank + 1) if rank <= 10 else 0.0
        found.append(gain / sum(1 / np.log2(r + 2) for r in range(min(10, len(targets)))))
    return np.array(found)


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_the_formula(name: str, split: Split, tmp_path: Path) -> None:
    train, users = split.train, np.arange(split.train.n_users, dtype=np.int32)
    plain = create(name, **MODELS[name], trend=0).fit(train, split.validation)
    model = create(name, **MODELS[name]).fit(train, split.validation)
    chosen = model.report_["trend"]
    assert chosen["strength"] > 0, "the log drifts"
    own, known = plain.scores(users), train.by_item.counts > 0
    spread = own[train.by_user.counts > 0][:, known].std(axis=1)
    some = np.linspace(0, len(spread) - 1, min(256, len(spread))).astype(int)
    added = chosen["strength"] * spread[some].mean() * plain_prior(train, chosen["half_life"])
    np.testing.assert_allclose(model.scores(users), own + added, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.item_offsets_, added, rtol=1e-4)
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.scores(users), model.scores(users))
    assert loaded.report_["trend"] == chosen
    history = train.items.ids(train.histories[3]).to_list()
    assert loaded.recommend_for(history, k=5).equals(model.recommend_for(history, k=5))
    for one, other in ((model, plain), (loaded, plain)):  # refit keeps the choice, and counts again
        refitted, same = one.refit(split.before_test), other.refit(split.before_test)
        prior = plain_prior(split.before_test, chosen["half_life"])
        added = chosen["strength"] * typical_spread(same.learned_) * prior
        wanted = same.scores(users) + added
        np.testing.assert_allclose(refitted.scores(users), wanted, rtol=1e-4, atol=1e-4)


def test_the_choice_is_that_of_plain_loops(split: Split) -> None:
    """Half-lives first, then strengths, until nothing changes."""
    train, users = split.train, np.arange(split.train.n_users, dtype=np.int32)
    model = create("itemknn").fit(train, split.validation)
    own = create("itemknn", trend=0).fit(train)
    scores, spread = own.scores(users), typical_spread(own.learned_)

    def metrics(half_life: float, strength: float) -> np.ndarray:
        added = (strength * spread * plain_prior(train, half_life)).astype(np.float32)
        return plain_ndcg(scores + added, train, split.validation)

    without, (half_life, strength) = plain_ndcg(scores, train, split.validation), (0.02, 2.0)
    for _ in range(3):
        figures = {value: metrics(value, strength).mean() for value in HALF_LIVES}
        half_life = max(figures, key=lambda value: (figures[value], value == half_life))
        figures = {value: metrics(half_life, value).mean() for value in STRENGTHS}
        strength = max(figures, key=lambda value: (figures[value], value == strength))
    gains = metrics(half_life, strength) - without
    report = model.report_["trend"]
    assert (report["half_life"], report["strength"]) == (half_life, strength)
    assert report["users"] == len(gains)
    assert report["without"] == pytest.approx(without.mean())
    assert report["with"] == pytest.approx((without + gains).mean())
    assert report["standard_error"] == pytest.approx(gains.std(ddof=1) / np.sqrt(len(gains)))


def test_the_search_needs_few_trials() -> None:
    tried = set()

    def metric(*values: float) -> float:
        tried.add(values)
        return -abs(values[0] - 0.005) - abs(values[1] - 3)

    assert coordinate_search(metric) == (0.005, 3.0)
    assert len(tried) == 21


@pytest.mark.parametrize("name", ["ease", "transcf-mixture"])
def test_shuffled_times_have_no_trend(name: str) -> None:
    log = synthesize(users=400, items=150, interactions=8000, seed=2)
    times = np.random.default_rng(0).permutation(log.timestamps)
    split = temporal_cut(replace(log, timestamps=times))
    users = np.arange(log.n_users, dtype=np.int32)
    model = create(name, **MODELS[name]).fit(split.train, split.validation)
    assert model.report_["trend"]["strength"] == 0
    assert "two standard errors" in model.report_["trend"]["reason"]
    plain = create(name, **MODELS[name], trend=None).fit(split.train, split.validation)
    np.testing.assert_array_equal(model.scores(users), plain.scores(users))
    assert "trend" not in plain.report_
    chosen = model.report_["trend"]
    model.refit(split.before_test)
    assert model.report_["trend"] == chosen


def test_few_users_choose_none(split: Split) -> None:
    some = np.unique(split.validation.user_rows)[:3]
    few = split.validation.select(np.isin(split.validation.user_rows, some))
    assert create("ease").fit(split.train, few).report_["trend"]["strength"] == 0


def test_without_times_or_validation_there_is_none(split: Split) -> None:
    train, held_out = split.train, split.validation
    constant = np.full(len(train), 7)
    for log, validation, reason in (
        (train, None, "no validation data"),
        (replace(train, timestamps=None), held_out, "no times"),
        (replace(train, timestamps=constant), held_out, "the same time"),
    ):
        model = create("ease").fit(log, validation)
        assert model.report_["trend"]["strength"] == 0
        assert reason in model.report_["trend"]["reason"]
        assert trend_of(model.learned_) is None


def test_one_wrong_date_changes_nothing(split: Split) -> None:
    """The newest event moves 100 years ahead."""
    train = split.train
    times = train.timestamps.copy()
    times[times.argmax()] += 100 * 366 * 86_400
    users = np.arange(train.n_users, dtype=np.int32)
    found = [
        create("ease").fit(one, split.validation)
        for one in (train, replace(train, timestamps=times))
    ]
    assert found[0].report_["trend"] == found[1].report_["trend"]
    np.testing.assert_array_equal(*(model.scores(users) for model in found))


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("timed", [True, False])
def test_partial_fit_counts_as_a_recount_would(name: str, timed: bool, log: Interactions) -> None:
    table = log.to_frame().sort("timestamp", maintain_order=True)
    old, new = table[:7000], table[7000:]
    split = temporal_cut(read_interactions(old))
    model = create(name, **GROWING[name]).fit(split.train, split.validation)
    model.refit(read_interactions(old))
    before = trend_of(model.learned_)
    assert before is not None
    repeated = old[:50].with_columns(pl.col("timestamp") + 10**9)  # known pairs change nothing
    for part in (new[:300], pl.concat([repeated, new[300:]])):
        model.partial_fit(read_interactions(part if timed else part.drop("timestamp")))
    found = trend_of(model.learned_)
    if timed:
        merged = read_interactions(table)
        wanted = plain_counts(merged, before.half_life_events)
    else:  # every event is one step, in the order of the log
        moments = pl.Series("timestamp", range(10**10, 10**10 + len(new)))
        merged = read_interactions(pl.concat([old, new.with_columns(moments)]))
        wanted = plain_counts(merged, before.half_life_events)
    assert model.items_ == merged.items
    np.testing.assert_allclose(found.recent, wanted, rtol=1e-9)
    counts = np.bincount(merged.item_rows, minlength=merged.n_items)
    prior = np.log(wanted + 1) - 0.3 * np.log(counts + 1)
    np.testing.assert_allclose(
        model.item_offsets_, before.strength * before.spread * prior, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", MODELS)
def test_explanations_name_the_part_of_the_trend(name: str, split: Split) -> None:
    model = create(name, **MODELS[name]).fit(split.train, split.validation)
    plain = create(name, **MODELS[name], trend=0).fit(split.train, split.validation)
    user = model.users_.series[int(np.flatnonzero(split.train.by_user.counts)[0])]
    item = model.recommend(user, k=1)["item_id"][0]
    found, without = model.explain(user, item, top=1000), plain.explain(user, item)
    added = found.details["trend"]
    assert without.score + added == pytest.approx(found.score, rel=1e-4, abs=1e-4)
    if found.rest is not None:  # of a folded-in history, where the user has a vector
        assert found.rest == pytest.approx(without.rest + added, rel=1e-4)
    if name in ("ease", "itemknn"):
        total = sum(entry.effect for entry in found.effects) + found.rest
        assert total == pytest.approx(found.score, rel=1e-4)
    assert any("Recent popularity" in note for note in found.notes)


def test_parts_of_a_blend_keep_their_trends(split: Split, tmp_path: Path) -> None:
    blend = Blend(parts="itemknn + bpr(dim=8, epochs=4)").fit(split.train, split.validation)
    before = [trend_of(part) for part in blend.parts_]
    refitted = load(blend.save(tmp_path / "blend")).refit(split.before_test)
    for old, part in zip(before, refitted.parts_, strict=True):
        new = trend_of(part)
        assert (new.strength, new.half_life) == (old.strength, old.half_life)
        again = AutoTrend.of(split.before_test, new.strength, new.half_life, new.spread)
        np.testing.assert_array_equal(new.recent, again.recent)


def test_at_most_a_thousand_users_choose(split: Split) -> None:
    judge = as_validation(split.train, split.validation)
    model = create("ease").fit(split.train, judge)
    assert model.report_["trend"]["users"] <= 1000
    assert judge(model) == pytest.approx(model.report_["trend"]["with"], abs=1e-6)


def test_further_events_are_counted_in_all_parts_of_a_blend(split: Split) -> None:
    model = Blend(parts="itemknn + ease").fit(split.train, split.validation)
    items, times = np.array([3, -1, 3], np.int32), np.array([5, 6, 7])
    renewed = model.learned_.with_recent_events(items, times)
    for new, old in zip(renewed.parts, model.learned_.parts, strict=True):
        trend = trend_of(old)
        assert trend is not None
        wanted = trend.recent * 2 ** (-3 / trend.half_life_events)
        wanted[3] += 1 + 2 ** (-2 / trend.half_life_events)
        np.testing.assert_allclose(trend_of(new).recent, wanted)
    user = split.train.users.series[0]
    explained = model.explain(user, split.train.items.series[3], include_seen=True)
    factors = [factor for _, factor in model.learned_._weighted]
    offsets = [float(part.offset[3]) for part, _ in model.learned_._weighted]
    assert explained.details["trend"] == pytest.approx(np.dot(factors, offsets))
    assert any("Recent popularity" in note for note in explained.notes)
    plain = Blend(parts="itemknn(trend=0) + ease(trend=0)").fit(split.train).learned_
    assert plain.with_recent_events(items, times) is plain
