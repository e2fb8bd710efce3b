"""Comparisons: what is chosen, what is marked, and what is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import wilcoxon

from transcf.data.split import Split
from transcf.data.splitters import leave_one_out, temporal_cut
from transcf.data.synthetic import synthesize
from transcf.errors import NotFittedError, ParameterError
from transcf.evaluation import Validation, evaluate
from transcf.evaluation.results import LEVEL
from transcf.experiments.experiment import (
    Candidate,
    Experiment,
    candidates_of,
    compare,
    compare_models,
)
from transcf.experiments.report import results_of, table_of, write_results
from transcf.experiments.results import CandidateResult, Comparison
from transcf.experiments.run import EvalConfig
from transcf.experiments.store import Store
from transcf.models.baselines import Popularity, Random
from transcf.models.bpr import BPR
from transcf.models.ease import EASE
from transcf.models.params import values_of
from transcf.models.registry import available, model_class

STRENGTHS = (1.0, 30.0, 1000.0)


def run(
    candidate: Candidate, split: Split, config: EvalConfig, seeds: Sequence[int]
) -> CandidateResult:
    return Experiment(split, config, seeds).run(candidate)


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_one_out(synthesize(users=200, items=60, interactions=3000, seed=1))


@pytest.fixture(scope="module")
def found(split: Split) -> Comparison:
    choices = [{"regularization": value} for value in STRENGTHS]
    candidates = [
        Candidate("popularity", "popularity"),
        Candidate("random", "random"),
        Candidate("tuned", "ease", choices=choices),
    ]
    experiment = Experiment(split, EvalConfig("leave-last-out"), [0, 1])
    return compare_models("made | up", candidates, experiment, "NDCG@10")


def test_a_comparison_is_a_frame_and_html(found: Comparison) -> None:
    frame = found.to_frame()
    assert frame["model"].to_list() == [done.name for done in found.runs]
    for row in frame.iter_rows(named=True):
        summary = found.summaries[row["model"]]["NDCG@10"]
        assert (row["NDCG@10"], row["NDCG@10 se"]) == (summary["mean"], summary["se"])
        assert row["p"] == found.p_values.get(row["model"])
    assert frame["NDCG@10 sd"].is_null().to_list() == [True, False, True]
    html = found._repr_html_()
    assert "made | up" in html
    assert html.count("<tr>") == 4


@pytest.mark.parametrize("models", [5, None, 1.5, object()])
def test_what_is_no_model_is_refused(models: Any, split: Split) -> None:
    with pytest.raises(ParameterError, match="is not a model"):
        compare(models, split)
    with pytest.raises(ParameterError, match="is not a split"):
        Validation.of(models)


def test_settings_are_those_that_are_best_on_validation_data(
    found: Comparison, split: Split
) -> None:
    judge = Validation.of(split)
    figures = {value: judge(EASE(regularization=value).fit(split.train)) for value in STRENGTHS}
    tuned = found.runs[2]
    best = max(figures, key=figures.__getitem__)
    assert tuned.chosen == {"regularization": best}
    assert tuned.validation == pytest.approx(figures[best])
    direct = evaluate(EASE(regularization=best).fit(split.before_test), split)
    assert tuned.metrics["NDCG@10"]["mean"] == pytest.approx(direct.metrics["NDCG@10"].mean)


def test_seeds_are_run_where_they_change_something(found: Comparison, split: Split) -> None:
    assert [len(done.evaluations) for done in found.runs] == [1, 2, 1]
    means = [
        evaluate(Random(random_state=seed).fit(split.before_test), split).metrics["HitRate@10"].mean
        for seed in (0, 1)
    ]
    assert found.summaries["random"]["HitRate@10"]["mean"] == pytest.approx(np.mean(means))


def test_the_best_is_told_apart_by_tests_of_all_pairs(found: Comparison) -> None:
    means = {name: entry["NDCG@10"]["mean"] for name, entry in found.summaries.items()}
    assert means[found.best("NDCG@10")] == max(means.values())
    figures = {done.name: done.averaged().per_user["NDCG@10"].to_numpy() for done in found.runs}
    p_values = {
        frozenset(pair): wilcoxon(*(figures[name] for name in pair), zero_method="wilcox").pvalue
        for pair in combinations(figures, 2)
    }
    corrected, largest = {}, 0.0
    for place, pair in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, p_values[pair] * (len(p_values) - place))
        corrected[pair] = min(1.0, largest)
    best = found.best("NDCG@10")
    others = [name for name in figures if name != best]
    assert found.p_values == pytest.approx({n: corrected[frozenset({n, best})] for n in others})
    behind = {name for name in others if found.p_values[name] < LEVEL}
    assert set(found.indistinguishable) == set(others) - behind
    assert found.to_dict()["indistinguishable"] == found.indistinguishable


def test_every_figure_of_the_table_is_the_right_one(found: Comparison) -> None:
    table = table_of(found)
    for row, done in zip(table.rows, found.runs, strict=True):
        cells = dict(zip(table.columns, row, strict=True))
        for metric in ("HitRate@10", "HitRate@20", "NDCG@10", "NDCG@20"):
            entry = done.metrics[metric]
            assert str(cells[metric]).startswith(f"{entry['mean']:.4f} ± {entry['se']:.4f}")
            assert str(cells[metric]).endswith("*") == (found.best(metric) == done.name)
        assert cells["model"] == done.name
    assert "regularization=" in table.rows[2][-1]
    assert f"{4 * 60 * 60 / 1024:.1f} kB" in table.rows[2], "weights of all pairs of items"


def test_files_hold_the_table_and_replace_nothing_else(found: Comparison, tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    for _ in range(2):
        results = results_of(found, "transcf compare")
        written, missing = write_results(results, tmp_path, "comparison")
    assert missing == ""
    there = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in there} == {"diary.txt", *(path.name for path in written)}
    page, *figures, markdown, kept = written
    assert [path.name for path in (page, markdown, kept)] == [
        f"comparison.{ending}" for ending in ("html", "md", "json")
    ]
    assert page.read_text().count("<svg") == len(figures) > 0
    for done in found.runs:
        assert f"| {done.name} |" in markdown.read_text()
        assert f"{done.metrics['NDCG@10']['mean']:.4f}" in page.read_text()
    (table,) = json.loads(kept.read_text())["datasets"]
    assert [entry["model"] for entry in table["models"]] == ["popularity", "random", "tuned"]
    assert table["models"][2]["bytes"] == 4 * 60 * 60
    tried = {one["parameters"]["regularization"]: one for one in table["models"][2]["trials"]}
    assert list(tried) == list(STRENGTHS)
    best = max(tried, key=lambda value: tried[value]["validation"])
    assert table["models"][2]["chosen"] == {"regularization": best}


@pytest.fixture(scope="module")
def by_library(split: Split) -> Comparison:
    models = [EASE(regularization=5.0), "ItemKNN", ("ease", {"regularization": 50.0})]
    return compare(models, split, metric="MRR@5", k=[5])


def test_compare_takes_names_pairs_and_objects(by_library: Comparison, split: Split) -> None:
    assert [done.name for done in by_library.runs] == [
        "popularity", "inverse-popularity", "random", "recent-popularity", "ease (1)", "itemknn",
        "ease (2)",
    ]  # fmt: skip
    for name, strength in (("ease (1)", 5.0), ("ease (2)", 50.0)):
        direct = evaluate(EASE(regularization=strength).fit(split.before_test), split, k=(5,))
        found = by_library.summaries[name]["MRR@5"]
        assert found["mean"] == pytest.approx(direct.metrics["MRR@5"].mean)
    assert by_library.metric == "MRR@5"
    assert len(by_library.tests) == 21


def test_a_comparison_prints_as_its_table(by_library: Comparison) -> None:
    lines = str(by_library).splitlines()
    table = table_of(by_library)
    assert repr(by_library) == str(by_library)
    assert lines[0] == table.title
    assert [line[: line.find("  ")] for line in lines[1:9]] == [
        "model", *(done.name for done in by_library.runs),
    ]  # fmt: skip
    assert len(set(map(len, lines[1:9]))) == 1
    assert lines[9:] == list(table.notes)
    nothing = Comparison(
        "data", EvalConfig("leave-last-out"), "NDCG@10", [], {"bad": ValueError("reasons")}
    )
    assert str(nothing) == "data: no model was run\nmodel\nbad is missing: reasons"


def test_an_object_lends_its_settings_and_stays_as_it_is(split: Split) -> None:
    mine = EASE(regularization=5.0)
    found = compare({"mine": mine}, split, trivial_baselines=False)
    (done,) = found.runs
    assert (done.name, done.first.parameters) == ("mine", values_of(mine.settings))
    with pytest.raises(NotFittedError):
        mine.recommend()
    # What is not set by hand may be searched, and nothing else.
    named = candidates_of([mine, EASE()], trivial_baselines=False)
    fixed, free = (candidate.within("small") for candidate in named)
    assert (len(fixed.choices), len(free.choices)) == (1, 3)


def test_a_seed_set_by_hand_is_run_once(split: Split) -> None:
    models = {"one": Random(random_state=5), "several": "random"}
    found = compare(models, split, seeds=2, seed=5, trivial_baselines=False)
    one, several = found.runs
    assert [len(done.evaluations) for done in (one, several)] == [1, 2]
    first = several.evaluations[0].metrics["NDCG@10"].mean
    assert one.metrics["NDCG@10"]["mean"] == pytest.approx(first)


def test_compare_splits_logs_and_tables_as_the_command_line_does(tmp_path: Path) -> None:
    log = synthesize(users=60, items=40, interactions=900, seed=1)
    path = tmp_path / "events.parquet"
    log.to_frame().write_parquet(path)
    found = [compare("popularity", data, dataset="x") for data in (log, log.to_frame(), path)]
    assert len({json.dumps(each.summaries) for each in found}) == 1
    assert compare("random", path).dataset == str(path)
    sampled = compare("popularity", leave_one_out(log), protocol="paper")
    assert sampled.runs[0].full_ranking
    every = [c.model for c in candidates_of("all")]
    left_out = {name for name in available() if name in model_class(name)._not_in_all}
    assert "transcf-emb" in left_out
    assert every == [name for name in available() if name not in left_out]


def test_data_in_the_place_of_models_is_told_so(split: Split) -> None:
    for data in (split, split.train, split.train.to_frame(), split.train.to_frame().to_pandas()):
        with pytest.raises(ParameterError, match="Models come first and data second"):
            compare(data, ["ease"])


@pytest.mark.parametrize(
    ("models", "options", "message"),
    [
        (["oracle"], {}, "no model 'oracle'"),
        ([3], {}, "3 is no model: give a name"),
        ([("ease", {"dim": 3})], {}, "no parameter 'dim'"),
        (["popularity", EASE(regularization=-1.0)], {}, r"regularization=-1\.0"),
        ("ease", {"metric": "NDCG@3"}, "metric='NDCG@3' is not computed"),
        ("ease", {"budget": "huge"}, "no budget 'huge'"),
        ("ease", {"seeds": 0}, "seeds=0"),
        ("ease", {"ties": "odd"}, "ties='odd'"),
        ("ease", {"subset": "train"}, "subset='train'"),
        ("ease", {"protocol": "lax"}, "protocol='lax'"),
        ("ease", {"k": [0]}, r"k=\[0\]"),
    ],
)
def test_what_compare_cannot_do_is_refused_before_data_is_opened(
    models: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        compare(models, "nowhere", **options)


def test_one_failure_does_not_stop_the_others(split: Split) -> None:
    bad = Candidate("bad", "ease", {"regularization": -1.0})
    good = [Candidate("popularity", "popularity"), Candidate("random", "random")]
    found = compare_models(
        "data", [bad, *good], Experiment(split, EvalConfig("leave-last-out")), "NDCG@10"
    )
    assert [done.name for done in found.runs] == ["popularity", "random"]
    assert "regularization=-1.0" in str(found.failures["bad"])
    assert any("bad is missing" in note for note in table_of(found).notes)
    with pytest.raises(ParameterError, match=r"regularization=-1\.0"):
        compare_models("data", [bad], Experiment(split, EvalConfig("leave-last-out")), "NDCG@10")


def test_epochs_and_settings_are_chosen_at_the_length_that_is_judged(split: Split) -> None:
    choices = [{"regularization": value} for value in STRENGTHS]
    done = run(Candidate("ease", "ease", choices=choices), split, EvalConfig(k=(3,)), [0])
    judge = Validation.of(split, k=(3,))
    assert judge.metric == "NDCG@3"
    figures = [judge(EASE(**choice).fit(split.train)) for choice in choices]
    assert done.validation == pytest.approx(max(figures))


def test_a_setting_that_diverges_is_not_chosen(split: Split) -> None:
    params = {"epochs": 3, "dim": 4, "norm_constraint": "none"}
    wild, tame = {"learning_rate": 1e30}, {"learning_rate": 0.05}
    candidate = Candidate("transcf", "transcf", params, [wild, tame])
    done = run(candidate, split, EvalConfig("leave-last-out"), [0])
    assert done.chosen == tame
    assert done.tried == 1
    assert any("a setting did not train" in note for note in done.notes)


def test_a_setting_that_is_none_is_an_error(split: Split) -> None:
    choices = [{"regularization": -1.0}, {"regularization": 50.0}]
    with pytest.raises(ParameterError, match=r"regularization=-1\.0"):
        run(Candidate("ease", "ease", choices=choices), split, EvalConfig("leave-last-out"), [0])


def test_figures_of_the_part_that_chose_say_so(split: Split) -> None:
    config = EvalConfig("leave-last-out", subset="validation")
    choices = [{"regularization": 10.0}, {"regularization": 50.0}]
    done = run(Candidate("ease", "ease", choices=choices), split, config, [0])
    assert any("also chose" in note for note in done.notes)
    untimed = Candidate("ease", "ease", {"trend": 0})
    assert not run(untimed, split, config, [0]).notes


def test_ties_are_counted_alike_when_choosing_and_when_judging(split: Split) -> None:
    config = EvalConfig("leave-last-out", ties="optimistic", subset="validation")
    done = run(Candidate("popularity", "popularity"), split, config, [0])
    assert done.validation == pytest.approx(done.metrics["NDCG@10"]["mean"])


def test_progress_is_reported_step_by_step(split: Split) -> None:
    steps: list[str] = []
    candidate = Candidate("mine", "transcf-mixture", {"epochs": 2, "dim": 4}, [{}, {"dim": 8}])
    Experiment(split, EvalConfig("leave-last-out"), [0, 1], steps.append).run(candidate)

    def refit(seed: int) -> list[str]:
        """The epochs before the best one are run again on more data."""
        step = f"mine, seed {seed}, refit"
        epochs = [s for s in steps if s.startswith(f"{step}, epoch")]
        assert epochs == [f"{step}, epoch {n + 1}" for n in range(len(epochs))]
        assert len(epochs) in (1, 2)
        return [step, *epochs]

    assert steps == [
        "mine, setting 1 of 2", "mine, setting 1 of 2, epoch 1", "mine, setting 1 of 2, epoch 2",
        "mine, setting 2 of 2", "mine, setting 2 of 2, epoch 1", "mine, setting 2 of 2, epoch 2",
        *refit(0), "mine, seed 1", "mine, seed 1, epoch 1", "mine, seed 1, epoch 2", *refit(1),
    ]  # fmt: skip


def test_sampled_figures_stand_beside_the_full_ranking(split: Split) -> None:
    from transcf.data.split import draw_candidates

    sampled = draw_candidates(split, n=20)
    done = run(Candidate("popularity", "popularity"), sampled, EvalConfig("paper"), [0])
    direct = evaluate(Popularity().fit(split.train), split)
    assert done.full_ranking["NDCG@10"]["mean"] == pytest.approx(direct.metrics["NDCG@10"].mean)
    assert any("rank rare items first" in note for note in done.notes)


def test_an_interruption_ends_it_with_what_is_there(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("popularity", "random", "ease", "itemknn")
    candidates = [Candidate(name, name) for name in names]
    fit = EASE.fit

    def interrupted(model: EASE, *words: object) -> EASE:
        fit(model, *words)
        model.report_["ending"] = "interrupted"
        return model

    monkeypatch.setattr(EASE, "fit", interrupted)
    found = compare_models(
        "data", candidates, Experiment(split, EvalConfig("leave-last-out")), "NDCG@10"
    )
    assert [done.name for done in found.runs] == ["popularity", "random"]
    assert found.is_interrupted
    assert "interrupted" in str(found.failures["ease"])
    with pytest.raises(KeyboardInterrupt):
        compare_models(
            "data", candidates[2:], Experiment(split, EvalConfig("leave-last-out")), "NDCG@10"
        )


@pytest.mark.parametrize(("protocol", "make"), [("temporal", temporal_cut), (None, leave_one_out)])
def test_the_judged_model_has_learned_from_train_and_validation(protocol: str, make: Any) -> None:
    split = make(synthesize(users=200, items=60, interactions=3000, seed=1))
    params: dict[str, Any] = {"dim": 8, "validate_every": 1, "epochs": 4, "decay": "none"}
    params |= {"bias_regularization": 0.02, "trend": 0}
    choices = [{"learning_rate": 0.001}, {"learning_rate": 0.2}]
    done = run(Candidate("bpr", "bpr", params, choices), split, EvalConfig(protocol), [0, 1])
    chosen = [BPR(**params, **choice, random_state=0).fit(split.train, Validation.of(split))
              for choice in choices]  # fmt: skip
    judge = Validation.of(split)
    best = max(range(2), key=lambda number: judge(chosen[number]))
    assert done.chosen == choices[best]
    epochs = chosen[best].best_epoch_
    fresh = BPR(**{**params, "epochs": epochs}, **choices[best], random_state=0)
    fresh.fit(split.before_test)
    first = done.evaluations[0]
    assert first.per_user.equals(evaluate(fresh, split).per_user)
    assert first.protocol == ("leave-last-out" if protocol is None else protocol)
    other = BPR(**params, **choices[best], random_state=1).fit(split.train, judge)
    assert done.validation == pytest.approx((judge(chosen[best]) + judge(other)) / 2)


def test_the_old_way_is_there_under_its_name(split: Split) -> None:
    done = run(Candidate("ease", "ease"), split, EvalConfig("leave-last-out-no-refit"), [0])
    direct = evaluate(EASE().fit(split.train), split)
    assert done.evaluations[0].protocol == direct.protocol == "leave-last-out-no-refit"
    assert done.evaluations[0].metrics == direct.metrics


def test_finalists_are_run_again_with_other_seeds(split: Split) -> None:
    space = {"learning_rate": {"low": 0.001, "high": 0.2, "log": True, "points": [0.01, 0.1]}}
    budget = {"trials": 4, "sampler": "tpe", "space": space, "finalists": 2}
    candidate = Candidate("bpr", "bpr", {"dim": 4, "epochs": 2}).within(budget)
    done = run(candidate, split, EvalConfig("leave-last-out"), [0, 1])
    assert done.tried == 4
    assert done.runs == 2
    seeds = [trial.parameters["random_state"] for trial in done.trials]
    assert seeds == [0] * 4 + [1001, 1002] * 2
    rates = [trial.parameters["learning_rate"] for trial in done.trials]
    best = sorted(range(4), key=lambda n: -done.trials[n].validation)[:2]
    assert [rates[4], rates[6]] == [rates[n] for n in best], "the best two of the first seed"
    means = {
        rate: np.mean([t.validation for t in done.trials if t.parameters["learning_rate"] == rate])
        for rate in (rates[4], rates[6])
    }
    chosen = done.chosen.get("learning_rate", rates[0])
    assert means[chosen] == max(means.values())
    assert all(0.001 <= rate <= 0.2 for rate in rates)


def test_a_limit_of_time_ends_every_fit_and_is_part_of_the_key(
    split: Split, tmp_path: Path
) -> None:
    candidate, store = Candidate("bpr", "bpr", {"dim": 4, "epochs": 20}), Store(tmp_path)
    for limit, epochs in ((1e-9, 1), (None, 20)):
        config = EvalConfig("leave-last-out", max_seconds=limit)
        found = Experiment(split, config, [0], store=store).run(candidate)
        assert found.curve[-1]["epoch"] == epochs
    assert len(store.all_keys()) == 2
