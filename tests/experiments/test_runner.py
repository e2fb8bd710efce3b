"""Studies: which figures are made, from which part, and what is tested."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from transcf.data import k_core, leave_one_out, synthesize, temporal_cut
from transcf.data.split import Split
from transcf.errors import DataError, ParameterError
from transcf.evaluation import Validation, evaluate
from transcf.experiments import experiment
from transcf.experiments import study as studies
from transcf.experiments.search import Config, Search
from transcf.experiments.store import Store
from transcf.experiments.study import Study, available_studies, load_study, run_study
from transcf.interrupts import StopRequest
from transcf.models.baselines import InversePopularity, Popularity, Random
from transcf.models.bpr import BPR


@pytest.fixture
def folder(tmp_path) -> str:
    split = leave_one_out(synthesize(users=60, items=40, interactions=900, seed=1))
    return str(split.save(tmp_path / "split"))


def study(folder: str, **changes: Any) -> Study:
    content = {
        "title": "small",
        "protocol": "leave-last-out",
        "seeds": 2,
        "metrics": ["HitRate@7", "NDCG@3"],
        "datasets": [{"name": folder}],
        "models": [{"name": "popularity"}, {"name": "random"}],
    }
    return Study.from_dict(content | changes)


@pytest.mark.parametrize("part", ["validation", "test"])
def test_runs_hold_the_metrics_of_their_part_and_the_validation_figure(folder, part) -> None:
    (found,) = run_study(study(folder, subset=part))
    popular, random = found.runs
    split = Split.load(folder)
    train = split.before_test if part == "test" else split.train
    expected = evaluate(
        Popularity().fit(train), split, "leave-last-out", subset=part, k=(3, 7)
    ).metrics
    for name in ("HitRate@7", "NDCG@3"):
        assert popular.metrics[name]["mean"] == pytest.approx(expected[name].mean)
    judge = Validation.of(split, k=(3, 7))
    seeds = [judge(Random(random_state=seed).fit(split.train)) for seed in (0, 1)]
    assert random.validation == pytest.approx(sum(seeds) / 2)
    assert random.to_dict()["validation"] == random.validation


def test_an_interruption_between_two_short_runs_is_seen(folder, monkeypatch) -> None:
    request, seeds, fit = StopRequest(), list[int](), Random.fit

    def interrupted_fit(model: Random, *events: Any, **options: Any) -> Random:
        seeds.append(model.settings.random_state)
        request.asked = True
        return fit(model, *events, **options)

    monkeypatch.setattr(experiment, "stop_request", lambda: nullcontext(request))
    monkeypatch.setattr(Random, "fit", interrupted_fit)
    (found,) = run_study(study(folder, models=[{"name": "random"}], seeds=5))
    assert found.is_interrupted
    assert set(seeds) == {0}


def test_a_study_of_the_validation_part_needs_no_test_part(folder, tmp_path) -> None:
    split = Split.load(folder)
    nothing = split.test.select(np.zeros(len(split.test), dtype=bool))
    untested = str(replace(split, test=nothing).save(tmp_path / "untested"))
    (found,) = run_study(study(untested, subset="validation"))
    (expected,) = run_study(study(folder, subset="validation"))
    assert found.summaries == expected.summaries
    assert {done.evaluations[0].subset for done in found.runs} == {"validation"}
    (failed,) = run_study(study(untested))
    assert not failed.runs
    assert all("no held-out items" in str(error) for error in failed.failures.values())


def test_pairs_are_tested_by_a_metric_that_no_column_shows(folder) -> None:
    (found,) = run_study(study(folder, paired_tests="MRR@5"))
    assert found.tests.select("model_a", "model_b").rows() == [("popularity", "random")]
    split = Split.load(folder)
    means = [
        evaluate(Random(random_state=seed).fit(split.before_test), split, k=5).metrics["MRR@5"].mean
        for seed in (0, 1)
    ]
    assert found.tests["mean_b"].item() == pytest.approx(sum(means) / 2)


def test_tests_of_a_complete_table_are_made_once(folder) -> None:
    """They take seconds where there are many models and users, and results are written often."""
    seen: list[Any] = []
    protocols = ["leave-last-out", "leave-last-out-no-refit"]
    plan = study(folder, datasets=[{"name": folder, "protocols": protocols}])
    found = run_study(plan, on_result=lambda name, tables: seen.append(tables))
    assert [len(tables) for tables in seen] == [1, 1, 2, 2]
    assert [len(tables[-1].runs) for tables in seen] == [1, 2, 1, 2]
    assert all(tables[0] is found[0] for tables in seen[1:])
    assert seen[-1][1] is found[1]


def test_a_single_model_has_no_pairs(folder) -> None:
    (found,) = run_study(study(folder, models=[{"name": "popularity"}], metrics=["NDCG@10"]))
    assert found.tests.is_empty()
    assert found.p_values == {}


def test_what_is_done_survives_a_failure_and_an_interruption(folder, monkeypatch) -> None:
    def fail(self, train, validation=None, options=None):
        raise DataError("no data for you")

    def interrupt(self, train, validation=None, options=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(InversePopularity, "fit", fail)
    models = [{"name": "inverse-popularity"}, {"name": "popularity"}, {"name": "random"}]
    twice = [{"name": folder}, {"name": folder}]
    first, _ = run_study(study(folder, models=models, datasets=twice))
    assert [done.name for done in first.runs] == ["popularity", "random"]
    assert str(first.failures["inverse-popularity"]) == "no data for you"

    monkeypatch.setattr(Random, "fit", interrupt)
    (only,) = run_study(study(folder, models=models, datasets=twice))
    assert [done.name for done in only.runs] == ["popularity"]
    assert only.is_interrupted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["LOSS"]}, "no metric 'LOSS'"),
        ({"metrics": [5]}, "no metric 5"),
        ({"metrics": ["novelty@10"], "protocol": "paper"}, "or a protocol of full ranking"),
        ({"metrics": "NDCG@10"}, "metrics = 'NDCG@10': give a list"),
        ({"models": ["ease"]}, r"write \[\[models\]\] and name = 'ease'"),
        ({"models": [{"params": {}}]}, "A model of the study has no name: add it"),
        ({"models": [{"name": 3}]}, "name = 3: give text"),
        ({"datasets": [{"name": "ciao", "k": 5}]}, "has 'k', which is none of name, core"),
        ({"datasets": [{"name": "ciao", "protocols": ["lax"]}]}, "protocol=.lax."),
        ({"datasets": [{"name": "ciao", "protocols": "paper"}]}, "protocols = .paper.*a list"),
        ({"seed": 5}, "The study has 'seed', which is none of title"),
        ({"paired_tests": "NDCG@0"}, "no metric 'NDCG@0'"),
        ({"subset": "train"}, "subset='train' is not allowed"),
        ({"protocol": "lax"}, "protocol='lax'"),
        ({"seeds": 0}, "seeds = 0"),
        ({"seeds": "5"}, "seeds = '5'"),
        ({"models": []}, "at least one dataset, one model and one metric"),
        ({"metrics": []}, "at least one dataset, one model and one metric"),
        ({"models": [{"name": "ease"}, {"name": "ease"}]}, "several models 'ease' in one table"),
        ({"datasets": [{"name": "ciao", "max_seconds": "x"}]}, "max_seconds = 'x': give a number"),
        ({"budget": {"trials": 3, "finalists": "two"}}, "finalists='two' is not allowed"),
        ({"models": [{"name": "ease", "grid": {"regularization": 50.0}}]}, "a list of values"),
        ({"models": [{"name": "ease", "grid": {"regularization": []}}]}, "a list of values"),
        ({"models": [{"name": "ease", "params": 3}]}, "params = 3: give a table"),
        ({"models": [{"name": "ease", "label": "ease, mine"}]}, "leave the comma out"),
        ({"budget": "huge"}, "no budget 'huge'"),
        ({"models": [{"name": "ease", "budget": 0}]}, "trials=0 is not allowed"),
        ({"budget": {"trials": 3, "sampler": "best"}}, "sampler='best' is not allowed"),
        ({"models": [{"name": "ease", "config": 3}]}, "config = 3: give text"),
        ({"models": [{"name": "ease", "times": True}]}, "for ease . time: say how many settings"),
        ({"models": [{"name": "ease", "times": "yes", "budget": "small"}]}, "write true or false"),
        (
            {"models": [{"name": "ease", "protocols": "leave-last-out"}]},
            "protocols = .leave-last-out.*list",
        ),
        (
            {"models": [{"name": "ease", "budget": "small", "grid": {"regularization": [5.0]}}]},
            "a grid for ease and a budget",
        ),
    ],
)
def test_what_cannot_be_understood_is_refused_at_once(changes, message) -> None:
    with pytest.raises(ParameterError, match=message):
        study("nowhere", **changes)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"name": "oracle"}, "no model 'oracle'"),
        ({"name": "ease", "preset": "paper"}, "no preset 'paper'"),
        ({"name": "ease", "params": {"dim": 3}}, "no parameter 'dim'"),
        ({"name": "ease", "grid": {"regularization": [50.0, -1.0]}}, "regularization=-1.0"),
    ],
)
def test_settings_are_checked_before_data_is_opened(model, message) -> None:
    with pytest.raises(ParameterError, match=message):
        run_study(study("nowhere", models=[{"name": "popularity"}, model]))


@pytest.mark.parametrize("name", available_studies())
def test_the_studies_of_the_library_are_sound(name, monkeypatch) -> None:
    """Every model, preset and setting exists; only then is data asked for."""

    def opened(*arguments: object) -> None:
        raise DataError("opened")

    monkeypatch.setattr(studies, "_split", opened)
    with pytest.raises(DataError, match="opened"):
        run_study(load_study(name))


def test_published_figures_need_the_authors_split(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRANSCF_DATA", str(tmp_path))
    (tmp_path / "ciao").mkdir()
    (tmp_path / "ciao" / "rating.mat").write_bytes(b"raw")
    with pytest.raises(DataError, match="LOO"):
        run_study(study("ciao", protocol="paper"))


def test_a_part_of_a_study_is_the_same_as_in_the_whole(folder) -> None:
    whole = study(folder, models=[{"name": "popularity"}, {"name": "random", "label": "chance"}])
    (part,), (found,) = run_study(whole.only(None, ["chance"])), run_study(whole)
    assert part.summaries["chance"] == found.summaries["chance"]
    assert whole.only([folder], None) == whole
    with pytest.raises(ParameterError, match="no model 'random'; it has: popularity, chance"):
        whole.only(None, ["random"])
    with pytest.raises(ParameterError, match="no dataset 'elsewhere'"):
        whole.only(["elsewhere"], None)


def test_a_dataset_names_its_own_protocols(tmp_path) -> None:
    path = tmp_path / "events.parquet"
    log = synthesize(users=60, items=40, interactions=900, seed=1)
    log.to_frame().write_parquet(path)
    datasets = [{"name": str(path), "core": 3, "protocols": ["temporal", "leave-last-out"]},
                {"name": str(path)}]  # fmt: skip
    plan = study("", protocol="leave-last-out-no-refit", datasets=datasets, seeds=1)
    found = run_study(plan)
    names = ["temporal", "leave-last-out", "leave-last-out-no-refit"]
    assert [each.config.protocol for each in found] == names
    core = k_core(log, 3, 3)
    splits = [temporal_cut(core), leave_one_out(core), leave_one_out(log)]
    for each, split, name in zip(found, splits, names, strict=True):
        train = split.train if name.endswith("no-refit") else split.before_test
        expected = evaluate(Popularity().fit(train), split, name, k=(3, 7)).metrics
        assert each.summaries["popularity"]["NDCG@3"]["mean"] == pytest.approx(
            expected["NDCG@3"].mean
        )
        assert each.split == split.how


def test_a_search_of_a_study_is_replayed_from_the_store(folder, tmp_path, monkeypatch) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    settings = Config("bpr", {"dim": 4, "learning_rate": 0.07}).write(tmp_path / "best.toml")
    models = [
        {"name": "bpr", "params": {"epochs": 2}, "config": str(settings)},
        {"name": "bpr", "label": "as it is", "config": str(settings), "budget": "none"},
    ]
    plan = study(folder, models=models, budget={"trials": 5, "sampler": "tpe"}, seeds=1)
    store = Store(tmp_path / "runs")
    (found,) = run_study(plan, store=store)
    searched, plain = found.runs
    assert (searched.tried, plain.tried) == (5, 1)
    assert searched.trials[0].parameters["learning_rate"] == 0.07, "the file is where it begins"
    assert plain.first.parameters["dim"] == 4
    figures = [trial.validation for trial in searched.trials]
    best = searched.trials[figures.index(max(figures))].parameters
    assert {name: best[name] for name in searched.chosen} == dict(searched.chosen)
    monkeypatch.setattr(BPR, "fit", None)
    (again,) = run_study(plan, store=store)
    assert again.runs[0].stored == again.runs[0].cells == 6
    assert again.summaries == found.summaries
    assert again.runs[0].minutes == searched.minutes


def test_a_budget_draws_as_compare_does_and_times_only_where_they_are_asked_for(folder) -> None:
    models = [
        {"name": "bpr", "params": {"dim": 4, "epochs": 2}},
        {"name": "bpr", "params": {"dim": 4, "epochs": 2}, "times": True},
        {"name": "transcf-mixture", "params": {"dim": 4, "epochs": 1}, "budget": "none"},
        {"name": "itemknn", "grid": {"n_neighbors": [5, 10]}},
    ]
    (found,) = run_study(study(folder, models=models, budget="small", seeds=1))
    assert [done.name for done in found.runs] == ["bpr", "bpr + time", "transcf-mixture", "itemknn"]
    assert [done.tried for done in found.runs] == [3, 3, 1, 2]
    plain, timed, still, _ = found.runs
    fixed = {"dim": 4, "epochs": 2}
    untimed = {**fixed, "recency": 0.0, "trend": 0.0}
    assert dict(plain.chosen) in list(Search("bpr", 3, fixed=untimed).settings())[:3]
    assert dict(timed.chosen) in list(Search("bpr", 3, fixed=fixed, timed=True).settings())[:3]
    assert still.first.parameters["recency"] == plain.first.parameters["recency"] == 0.0


def test_old_names_of_a_study_mean_the_new_model(folder) -> None:
    params = {"form": "mixture", "rho": 0.5, "dim": 4, "epochs": 1}
    plan = study(folder, models=[{"name": "transcf", "params": params}], budget=2, seeds=1)
    with pytest.warns(FutureWarning, match="TransCFMixture"):
        (found,) = run_study(plan)
    (done,) = found.runs
    assert done.first.model == "TransCFMixture"
    assert {trial.parameters["history_decay"] for trial in done.trials} == {0.5}


def test_a_model_may_be_in_the_tables_of_some_protocols_only(folder) -> None:
    models = [{"name": "popularity"}, {"name": "random", "protocols": ["leave-last-out"]}]
    datasets = [{"name": folder, "protocols": ["leave-last-out", "leave-last-out-no-refit"]}]
    found = run_study(study(folder, models=models, datasets=datasets))
    names = [[done.name for done in each.runs] for each in found]
    assert names == [["popularity", "random"], ["popularity"]]
    only = study(folder, models=models[1:], datasets=datasets)
    assert len(run_study(only)) == 1, "no table without models"


def test_a_model_may_be_in_the_tables_of_some_datasets(tmp_path) -> None:
    paths = [tmp_path / name for name in ("one.parquet", "two.parquet")]
    for path in paths:
        synthesize(users=60, items=40, interactions=900, seed=1).to_frame().write_parquet(path)
    datasets = [{"name": str(path)} for path in paths]
    models = [{"name": "popularity"}, {"name": "random", "datasets": [str(paths[1])]}]
    plan = study("", datasets=datasets, models=models, seeds=1)
    named = [[done.name for done in found.runs] for found in run_study(plan)]
    assert named == [["popularity"], ["popularity", "random"]]
    assert len(run_study(plan.only([str(paths[0])], None))) == 1
    models[1]["datasets"] = ["elsewhere"]
    with pytest.raises(ParameterError, match="no dataset 'elsewhere'"):
        study("", datasets=datasets, models=models)
