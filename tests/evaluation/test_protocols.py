"""What `evaluate`, `Validation` and `EpochRecorder` promise beside the ranks themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.evaluation.scorers import TableScorer, random_split

from transcf.data.split import draw_candidates
from transcf.data.splitters import leave_one_out, temporal_cut
from transcf.data.synthetic import synthesize
from transcf.errors import DataError, EvaluationError, NotFittedError, ParameterError
from transcf.evaluation import (
    EpochRecorder,
    Validation,
    as_validation,
    average_seeds,
    evaluate,
    summarize_seeds,
)
from transcf.evaluation.ranks import COLD_TARGET, KNOWN_TARGET, NO_CANDIDATES, NO_HISTORY
from transcf.models.ease import EASE


@pytest.fixture
def split():
    return draw_candidates(random_split(3), n=8)


def scorer_for(split, seed: int = 0) -> TableScorer:
    rankable = np.bincount(split.train.item_rows, minlength=30) > 0
    return TableScorer(np.random.default_rng(seed).random((12, 30)), rankable)


def test_means_and_errors_are_those_of_the_users(split) -> None:
    found = evaluate(scorer_for(split), split, k=(3, 5))
    assert found.users == len(found.per_user)
    for name in ("HitRate@3", "NDCG@5", "MRR@3", "Recall@5", "Precision@3", "MAP@5"):
        values = found.per_user[name].to_numpy()
        assert found.metrics[name].mean == pytest.approx(values.mean())
        assert found.metrics[name].se == pytest.approx(values.std(ddof=1) / len(values) ** 0.5)
    assert found.to_dict()["metrics"]["NDCG@5"] == found.metrics["NDCG@5"].__dict__
    assert "NDCG@5" in str(found)


def test_coverage_and_popularity_are_those_of_the_lists(split) -> None:
    scorer = scorer_for(split)
    found = evaluate(scorer, split, "leave-last-out-no-refit", k=(4,))
    known = split.known_items("test")
    counts = np.bincount(split.train.item_rows, minlength=30)
    shown = {}
    for user in found.per_user["user_id"]:
        allowed = [i for i in range(30) if scorer.rankable[i] and i not in known.row(user)]
        shown[user] = sorted(allowed, key=lambda i: -scorer.table[user, i])[:4]
    covered = len({i for items in shown.values() for i in items}) / scorer.rankable.sum()
    assert found.catalogue["coverage@4"] == pytest.approx(covered)
    popularity = [counts[items].mean() for items in shown.values()]
    assert found.catalogue["popularity@4"] == pytest.approx(np.mean(popularity))


def test_nothing_is_skipped_in_silence() -> None:
    for seed in range(20):
        split = random_split(seed, density=0.1)
        rankable = np.bincount(split.train.item_rows, minlength=30) > 0
        found = evaluate(scorer_for(split), split, "leave-last-out-no-refit")
        trained = split.train.by_user.counts > 0
        idle = (split.test.by_user.counts > 0) & ~trained
        assert found.skipped.get(NO_HISTORY, 0) == idle.sum()
        cold = ~rankable[split.test.item_rows] & trained[split.test.user_rows]
        assert found.skipped.get(COLD_TARGET, 0) == cold.sum()
        assert not {KNOWN_TARGET, NO_CANDIDATES} & set(found.skipped)


@pytest.mark.parametrize("protocol", ["leave-last-out", "leave-last-out-no-refit", "paper"])
def test_only_users_with_training_interactions_are_ranked(protocol) -> None:
    """User 3 is known by validation items alone, from which only refitted models have learned."""
    split = random_split(3)
    train = split.train.select(split.train.user_rows != 3)
    split = draw_candidates(replace(split, train=train), n=8)
    assert len(split.validation.by_user.row(3))
    assert len(split.test.by_user.row(3))
    for part in ("validation", "test"):
        found = evaluate(scorer_for(split), split, protocol, subset=part)
        is_learned = part == "test" and protocol == "leave-last-out"
        assert (3 in found.per_user["user_id"]) == is_learned
        assert found.skipped.get(NO_HISTORY, 0) == (not is_learned)


def test_a_model_is_not_judged_by_what_it_was_fitted_on(split) -> None:
    both = split.known_items("test")
    everything = replace(scorer_for(split), name="greedy")
    everything.users_, everything.items_ = split.train.users, split.train.items
    for seen, part, count, mend in (
        (both, "validation", len(split.validation), "split.train"),
        (split.touched_items(), "test", len(split.test), "split.before_test"),
    ):
        everything.seen_ = seen
        with pytest.raises(EvaluationError, match=f"{count} of the {part} .* fit it on {mend}"):
            evaluate(everything, split, subset=part)
    everything.seen_ = both  # validation data may be learned from once all is chosen
    assert evaluate(everything, split).users
    everything.seen_ = split.train.by_user
    assert evaluate(everything, split, "paper", subset="validation").users


def test_held_out_pairs_that_are_in_train_are_skipped_and_counted(split) -> None:
    leaky = replace(split, test=split.train)
    with pytest.raises(EvaluationError, match=KNOWN_TARGET):
        evaluate(scorer_for(split), leaky)


def test_validation_is_the_mean_that_evaluate_gives(split) -> None:
    scorer = scorer_for(split)
    strict = evaluate(scorer, split, subset="validation").metrics
    paper = evaluate(scorer, split, "paper", subset="validation").metrics
    assert Validation.of(split)(scorer) == pytest.approx(strict["NDCG@10"].mean)
    assert Validation.of(split, "paper")(scorer) == pytest.approx(paper["HitRate@10"].mean)
    assert as_validation(split.train, split.validation)(scorer) == Validation.of(split)(scorer)
    judge = Validation(split.validation, known=split.train.by_user, metric="Recall@5")
    assert as_validation(split.train, judge) is judge


def test_the_fingerprint_of_a_validation_names_all_that_it_depends_on(split) -> None:
    known = split.train.by_user
    fewer = split.validation.select(split.validation.user_rows > 3)
    redrawn = draw_candidates(split, n=8, seed=1).candidates
    judges = [
        Validation(split.validation, known=known),
        Validation(split.validation, known=known, metric="HitRate@10"),
        Validation(split.validation, known=known, ties="optimistic"),
        Validation(fewer, known=known),
        Validation(split.validation, known=split.known_items("test")),
        Validation(split.validation, known=known, candidates=split.candidates),
        Validation(split.validation, known=known, candidates=redrawn),
    ]
    assert len({judge.fingerprint for judge in judges}) == len(judges)
    assert Validation.of(split).fingerprint == judges[0].fingerprint


def test_seeds_are_averaged_user_by_user(split) -> None:
    runs = [evaluate(scorer_for(split, seed), split, k=(3,)) for seed in range(3)]
    found = average_seeds(runs, "three")
    assert found.model == "three"
    assert found.per_user["user_id"].equals(runs[0].per_user["user_id"])
    for name, value in summarize_seeds(runs).items():
        each = np.stack([run.per_user[name].to_numpy() for run in runs])
        np.testing.assert_allclose(found.per_user[name].to_numpy(), each.mean(axis=0))
        assert found.metrics[name].se == pytest.approx(value["se"])
    mean = np.mean([run.catalogue["coverage@3"] for run in runs])
    assert found.catalogue["coverage@3"] == pytest.approx(mean)
    other = evaluate(scorer_for(split), split, subset="validation", k=(3,))
    with pytest.raises(EvaluationError, match="same users"):
        average_seeds([runs[0], other], "mixed")


def test_a_recorder_keeps_the_best_test_value_of_every_metric(split) -> None:
    recorder = EpochRecorder(split, k=(3, 5))
    with pytest.raises(EvaluationError, match="No epoch"):
        recorder.result()
    each = []
    for epoch in range(1, 7):
        snapshot = scorer_for(split, seed=epoch)
        recorder(snapshot)
        each.append(evaluate(snapshot, split, "paper", k=(3, 5)))
    best = recorder.result()
    assert best.protocol == "paper-as-published"
    assert "Optimistic" in str(best)
    for name, value in best.metrics.items():
        assert value.mean == max(one.metrics[name].mean for one in each)


def test_rules_are_checked_before_anything_is_scored(split) -> None:
    scorer, known = scorer_for(split), split.train.by_user
    with pytest.raises(ParameterError, match="subset='train'"):
        evaluate(scorer, split, subset="train")
    with pytest.raises(ParameterError, match="There is no metric"):
        Validation(split.validation, known=known, metric="AUC")
    with pytest.raises(ParameterError, match="protocol='loose'"):
        Validation.of(split, "loose")
    with pytest.raises(EvaluationError, match="stored candidates"):
        Validation.of(replace(split, candidates=None), "paper")
    assert not scorer.block_sizes
    with pytest.raises(EvaluationError, match="other users or items"):
        as_validation(split.train, random_split(1, n_items=31).validation)
    empty = split.test.select(np.zeros(len(split.test), dtype=bool))
    with pytest.raises(EvaluationError, match="no held-out items"):
        evaluate(scorer, replace(split, test=empty))


def test_evaluate_splits_whatever_fit_takes(tmp_path) -> None:
    log = synthesize(users=60, items=40, interactions=900, seed=1)
    table = log.to_frame()
    path = tmp_path / "events.parquet"
    table.write_parquet(path)
    for protocol, split in (
        ("temporal", temporal_cut(log)),
        ("leave-last-out", leave_one_out(log)),
    ):
        model = EASE().fit(split.before_test)
        expected = evaluate(model, split).metrics
        usual = None if protocol == "temporal" else protocol
        for data in (log, table, table.to_pandas(), path, str(path)):
            found = evaluate(model, data, usual)
            assert (found.metrics, found.protocol) == (expected, protocol)
    sampled = evaluate(model, table, "paper").metrics
    assert sampled == evaluate(model, draw_candidates(split), "paper").metrics
    greedy = EASE().fit(table)
    with pytest.raises(EvaluationError, match=r"fitted on 90 of the test .*temporal_cut"):
        evaluate(greedy, table)
    with pytest.raises(EvaluationError, match=r"fitted on 60 of the test .*leave_one_out"):
        evaluate(greedy, table, "leave-last-out")
    untimed = evaluate(EASE().fit(leave_one_out(table.drop("timestamp")).before_test),
                       table.drop("timestamp"))  # fmt: skip
    assert untimed.protocol == "leave-last-out"


def test_what_cannot_be_evaluated_gets_one_sentence(split) -> None:
    log = split.train
    fitted = EASE().fit(log)
    with pytest.raises(NotFittedError, match="This EASE is not fitted yet: call fit first"):
        evaluate(EASE(), split)
    for model, name in ((split, "Split"), ("ease", "str"), (EASE, "the class EASE"), (log, "Int")):
        with pytest.raises(ParameterError, match=f"fitted model first .* {name}.*leave_one_out"):
            evaluate(model, fitted)
    with pytest.raises(DataError, match=r"type int is no event log.*read_interactions"):
        evaluate(fitted, 5)


def test_what_was_held_out_is_part_of_the_figures() -> None:
    split = leave_one_out(synthesize(users=60, items=40, interactions=900, seed=1))
    found = evaluate(EASE().fit(split.train), split)
    assert found.split == split.how == found.to_dict()["split"]
    assert f"held out: {split.how}" in str(found)
    assert repr(found) == str(found)
