"""Tests of significance against scipy and against what must hold."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from transcf.errors import EvaluationError
from transcf.evaluation import Evaluation, paired_tests, summarize_seeds
from transcf.evaluation.results import bootstrap, holm, resampled_means


def evaluation(name: str, values: np.ndarray, **changes: str) -> Evaluation:
    about = {
        "model": name,
        "protocol": "leave-last-out",
        "ties": "pessimistic",
        "subset": "test",
    } | changes
    table = pl.DataFrame({"user_id": np.arange(len(values)), "NDCG@10": values})
    return Evaluation(per_user=table, **about)


def test_the_bootstrap_interval_is_the_normal_one_for_many_users() -> None:
    difference = np.random.default_rng(0).normal(0.1, 1.0, 4000)
    drawn = resampled_means(difference[:, None], 4000, seed=1)[:, 0]
    low, high, p = bootstrap(drawn, difference.mean())
    error = stats.sem(difference)
    assert low == pytest.approx(difference.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(difference.mean() + 1.96 * error, abs=0.1 * error)
    assert p == pytest.approx(2 * stats.norm.sf(difference.mean() / error), abs=0.01)


def test_holm_is_the_textbook_rule() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert holm(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_differences_are_found_where_there_are_any() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(500)
    better = base + rng.normal(0.05, 0.1, 500)
    same = base + rng.normal(0.0, 0.1, 500)
    table = paired_tests(
        [evaluation("better", better), evaluation("base", base), evaluation("same", same)]
    )
    rows = {(r["model_a"], r["model_b"]): r for r in table.to_dicts()}
    found = rows["better", "base"]
    assert found["p_wilcoxon"] == pytest.approx(stats.wilcoxon(better - base).pvalue)
    assert found["ci_low"] < found["difference"] < found["ci_high"]
    assert found["p_holm"] < 0.001
    assert rows["base", "same"]["p_holm"] > 0.05
    assert rows["better", "base"]["p_holm"] >= found["p_wilcoxon"]


def test_equal_results_do_not_differ() -> None:
    values = np.random.default_rng(0).random(50)
    row = paired_tests([evaluation("a", values), evaluation("b", values)]).row(0, named=True)
    assert (row["difference"], row["p_wilcoxon"], row["p_bootstrap"]) == (0.0, 1.0, 1.0)


def test_only_paired_results_are_compared() -> None:
    values = np.random.default_rng(0).random(50)
    with pytest.raises(EvaluationError, match="same users"):
        paired_tests([evaluation("a", values), evaluation("b", values[1:])])
    with pytest.raises(EvaluationError, match="same protocol"):
        paired_tests([evaluation("a", values), evaluation("b", values, protocol="paper")])
    with pytest.raises(EvaluationError, match="at least two"):
        paired_tests([evaluation("a", values)])
    with pytest.raises(EvaluationError, match="no metric 'HitRate@3'"):
        paired_tests([evaluation("a", values), evaluation("b", values)], "HitRate@3")


def test_seeds_are_summarized_with_both_kinds_of_spread() -> None:
    rng = np.random.default_rng(0)
    runs = rng.random((5, 200))
    summary = summarize_seeds([evaluation("a", values) for values in runs])["NDCG@10"]
    assert summary["mean"] == pytest.approx(runs.mean())
    assert summary["sd"] == pytest.approx(np.std(runs.mean(axis=1), ddof=1))
    assert summary["se"] == pytest.approx(stats.sem(runs.mean(axis=0)))


def test_one_seed_has_no_spread_over_seeds() -> None:
    values = np.random.default_rng(0).random(30)
    summary = summarize_seeds([evaluation("a", values)])["NDCG@10"]
    assert summary["sd"] == 0
    assert summary["se"] == pytest.approx(stats.sem(values))
    with pytest.raises(EvaluationError, match="no evaluations"):
        summarize_seeds([])


def test_the_seed_decides_the_bootstrap_and_nothing_else_does() -> None:
    rng = np.random.default_rng(0)
    results = [evaluation(name, rng.random(80)) for name in ("a", "a", "c")]
    table = paired_tests(results, random_state=4)
    assert table.equals(paired_tests(results, random_state=4))
    other = paired_tests(results, random_state=5)
    assert not table["ci_low"].equals(other["ci_low"])
    assert table["p_wilcoxon"].equals(other["p_wilcoxon"])
    assert table["model_a"].to_list() == ["a (1)", "a (1)", "a (2)"]


def test_drawing_distinct_lines_is_drawing_users() -> None:
    """The quick way of resampling has the mean and spread of the plain one."""
    values = np.random.default_rng(0).integers(-1, 2, (300, 2)).astype(float)
    drawn = resampled_means(values, 20_000, seed=3)
    rng = np.random.default_rng(7)
    plain = values[rng.integers(300, size=(20_000, 300))].mean(axis=1)
    for quick, slow in ((drawn[:, 0], plain[:, 0]), (drawn @ [1, -1], plain @ [1, -1])):
        asked = np.percentile(slow, [2.5, 97.5])
        assert np.percentile(quick, [2.5, 97.5]) == pytest.approx(asked, abs=0.06 * slow.std())
