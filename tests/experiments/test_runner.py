"""Studies: which figures are made, from which part, and what is tested."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from transcf.data import leave_one_out, synthesize
from transcf.data.split import Split
from transcf.errors import EvaluationError, ParameterError
from transcf.evaluation import Validation, evaluate
from transcf.experiments import Study, run_study
from transcf.experiments.runner import paired_tests
from transcf.models.popularity import Popularity
from transcf.models.random import Random


@pytest.fixture
def folder(tmp_path) -> str:
    split = leave_one_out(synthesize(users=60, items=40, interactions=900, seed=1))
    return str(split.save(tmp_path / "split"))


def study(folder: str, **changes: Any) -> Study:
    content = {
        "title": "small",
        "protocol": "strict",
        "seeds": 2,
        "metrics": ["H@7", "N@3"],
        "datasets": [{"name": folder}],
        "models": [{"name": "popularity"}, {"name": "random"}],
    }
    return Study.from_dict(content | changes)


@pytest.mark.parametrize("part", ["validation", "test"])
def test_rows_hold_the_metrics_of_their_part_and_the_validation_figure(folder, part) -> None:
    popular, random = run_study(study(folder, part=part))
    split = Split.load(folder)
    expected = evaluate(Popularity().fit(split.train), split, part=part, at=(3, 7)).metrics
    assert list(popular.metrics) == ["H@7", "N@3"]
    for name in popular.metrics:
        assert popular.metrics[name]["mean"] == pytest.approx(expected[name].mean)
    judge = Validation.of(split)
    seeds = [judge(Random(random_state=seed).fit(split.train)) for seed in (0, 1)]
    assert random.validation == pytest.approx(sum(seeds) / 2)
    assert random.to_dict()["validation"] == random.validation


def test_a_study_of_the_validation_part_needs_no_test_part(folder, tmp_path) -> None:
    split = Split.load(folder)
    nothing = split.test.select(np.zeros(len(split.test), dtype=bool))
    untested = str(replace(split, test=nothing).save(tmp_path / "untested"))
    found = list(run_study(study(untested, part="validation")))
    assert [row.metrics for row in found] == [
        row.metrics for row in run_study(study(folder, part="validation"))
    ]
    assert {row.evaluations[0].part for row in found} == {"validation"}
    with pytest.raises(EvaluationError, match="no held-out items"):
        list(run_study(study(untested)))


def test_pairs_are_tested_by_a_metric_that_no_column_shows(folder) -> None:
    rows = list(run_study(study(folder, compare="MRR@5")))
    table = paired_tests(rows, "MRR@5")
    assert table.select("dataset", "model_a", "model_b").rows() == [
        (folder, "popularity", "random")
    ]
    split = Split.load(folder)
    means = [
        evaluate(Random(random_state=seed).fit(split.train), split, at=(5,)).metrics["MRR@5"].mean
        for seed in (0, 1)
    ]
    assert table["mean_b"].item() == pytest.approx(sum(means) / 2)


def test_a_single_model_has_no_pairs(folder) -> None:
    one = study(folder, models=[{"name": "popularity"}], metrics=["N@10"])
    assert paired_tests(list(run_study(one)), "N@10").is_empty()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["AUC"]}, "no metric 'AUC'"),
        ({"compare": "N@0"}, "no metric 'N@0'"),
        ({"part": "train"}, "part = 'train'"),
    ],
)
def test_what_cannot_be_computed_is_refused_before_anything_runs(changes, message) -> None:
    with pytest.raises(ParameterError, match=message):
        study("nowhere", **changes)


def test_a_part_of_a_study_is_the_same_as_in_the_whole(folder) -> None:
    whole = study(folder, models=[{"name": "popularity"}, {"name": "random", "label": "chance"}])
    (row,) = run_study(whole.only(None, ["chance"]))
    assert row.metrics == list(run_study(whole))[1].metrics
    assert whole.only([folder], None) == whole
    with pytest.raises(ParameterError, match="no model 'random'; it has: popularity, chance"):
        whole.only(None, ["random"])
    with pytest.raises(ParameterError, match="no dataset 'elsewhere'"):
        whole.only(["elsewhere"], None)
