from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import Result

import transcf
from transcf.data import leave_one_out, synthesize, write_csv
from transcf.data.datasets import absolute_name
from transcf.data.split import Split, draw_candidates
from transcf.evaluation import evaluate
from transcf.experiments.store import Store
from transcf.models.base import Recommender
from transcf.models.baselines import Random
from transcf.models.checkpoint import CheckpointFile
from transcf.models.registry import available

Answer = Callable[..., Any]
Refusal = Callable[..., str]
Command = Callable[..., Result]

# An independent computation: HitRate@10, HitRate@20, NDCG@10, NDCG@20 on Delicious' test items.
PUBLISHED = {
    "popularity": (0.0422, 0.0739, 0.0204, 0.0286),
    "inverse-popularity": (0.1755, 0.3773, 0.0568, 0.1070),
    "ease": (0.2005, 0.3021, 0.1089, 0.1344),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_known_figures(model: str, answer: Answer, real_data: Callable[[str], Path]) -> None:
    settings = ("--set", "regularization=300") if model == "ease" else ()
    folder = real_data("delicious")
    found = answer("evaluate", folder, "--model", model, *settings, "--protocol", "paper")
    assert found["users"] == 758
    figures = [
        found["metrics"][name]["mean"]
        for name in ("HitRate@10", "HitRate@20", "NDCG@10", "NDCG@20")
    ]
    assert [round(figure, 4) for figure in figures] == list(PUBLISHED[model])
    assert sum(found["skipped"].values()) == 1050 - 758


def test_evaluate_has_the_promised_form(answer: Answer, log_file: Path) -> None:
    found = answer("evaluate", log_file, "--model", "random", "--seeds", 3, "-k", "5")
    assert {"model", "protocol", "users", "metrics", "seconds", "skipped", "parameters", "ties",
            "dataset"} <= set(found)  # fmt: skip
    assert (found["model"], found["protocol"], found["runs"]) == ("random", "temporal", 3)
    assert set(found["metrics"]["HitRate@5"]) == {"mean", "sd", "se"}
    assert found["metrics"]["NDCG@5"]["sd"] > 0
    single = [
        answer("evaluate", log_file, "--model", "random", "--seed", seed, "-k", "5")
        for seed in range(3)
    ]
    mean = sum(one["metrics"]["NDCG@5"]["mean"] for one in single) / 3
    assert math.isclose(found["metrics"]["NDCG@5"]["mean"], mean, rel_tol=1e-12)


def test_a_filter_comes_before_the_split(
    answer: Answer, refusal: Refusal, log_file: Path, tmp_path: Path
) -> None:
    log = transcf.k_core(transcf.read_interactions(log_file), 12, 12)
    split = transcf.temporal_cut(log)
    expected = evaluate(transcf.ItemKNN().fit(split.train), split)
    words = log_file, "--model", "itemknn", "--protocol", "temporal-no-refit", "--filter", "12-core"
    found = answer("--store", "none", "evaluate", *words)
    assert found["users"] == expected.users
    assert found["metrics"]["NDCG@10"]["mean"] == pytest.approx(expected.metrics["NDCG@10"].mean)
    saved = answer("fit", *words[:3], "--filter", "12-core", "--out", tmp_path / "model")
    assert saved["interactions"] == len(log)
    assert "12-cores" in refusal("evaluate", *words[:3], "--filter", "12-cores")


def test_a_model_without_chance_runs_once(answer: Answer, log_file: Path) -> None:
    found = answer("evaluate", log_file, "--model", "ease", "--seeds", 5)
    assert found["runs"] == 1
    assert found["metrics"]["HitRate@10"]["sd"] == 0


def test_full_ranking_stands_beside_sampled_figures(answer: Answer, log_file: Path) -> None:
    sampled = answer("evaluate", log_file, "--model", "ease", "--protocol", "paper")
    strict = answer(
        "evaluate", log_file, "--model", "ease", "--protocol", "leave-last-out-no-refit"
    )
    assert sampled["full_ranking"]["NDCG@10"]["mean"] == strict["metrics"]["NDCG@10"]["mean"]
    assert "full_ranking" not in strict
    assert any("rare" in note for note in sampled["notes"])


@pytest.mark.parametrize("formats", [("",), ("--json",), ("", "--json"), ("--json", "")])
def test_the_output_format_does_not_change_what_is_computed(
    formats: tuple[str, ...],
    command: Command,
    log_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fits = []
    fit = Recommender._fit

    def counting(model: Recommender[Any], *words: Any, **more: Any) -> Recommender[Any]:
        fits.append(model.name)
        return fit(model, *words, **more)

    monkeypatch.setattr(Recommender, "_fit", counting)
    words = ("--store", tmp_path / "runs", "evaluate", log_file, "--model", "popularity")
    for output in formats:
        assert command(*words, *filter(None, [output])).exit_code == 0
    assert fits == ["popularity"]
    assert len(Store(tmp_path / "runs").all_keys()) == 1


def test_fit_then_evaluate_equals_evaluate(
    answer: Answer, refusal: Refusal, log_file: Path, tmp_path: Path
) -> None:
    data = tmp_path / "events.csv"
    data.write_bytes(log_file.read_bytes())
    folder = tmp_path / "model"
    bpr = ("--model", "bpr", "--set", "dim=8", "--set", "epochs=3", "--set", "validate_every=1")
    leaving = ("leave-last-out", "leave-last-out-no-refit", "sequential")
    for protocol in ("temporal", *leaving, "paper"):
        words = (*bpr, "--seed", 4, "--protocol", protocol)
        answer("fit", data, *words, "--out", folder, "--hold-out", "--overwrite")
        saved, direct = answer("evaluate", folder), answer("evaluate", data, *words)
        assert saved["metrics"] == direct["metrics"]
        assert saved["protocol"] == direct["protocol"] == protocol
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["model"]
    ease = ("--model", "ease", "--set", "regularization=50")
    fitted = answer(
        "--threads", 1, "fit", data, *ease, "--out", folder, "--hold-out", "--overwrite"
    )
    assert fitted["parameters"]["regularization"] == 50
    saved = answer("evaluate", folder)
    assert saved["protocol"] == fitted["protocol"] == "temporal"
    assert saved["metrics"] == answer("evaluate", data, *ease)["metrics"]
    assert "this split holds out the newest 10 %" in refusal(
        "evaluate", folder, "--protocol", "leave-last-out"
    )
    assert "of the validation interactions" in refusal("evaluate", folder, "--subset", "validation")
    assert transcf.load(folder).report_["dataset"] == str(data.resolve())
    data.write_text("\n".join(data.read_text().splitlines()[:-50]))
    assert "has changed" in refusal("evaluate", folder)


def test_evaluate_of_a_model_without_its_data(
    refusal: Refusal, answer: Answer, log_file: Path, tmp_path: Path
) -> None:
    log = transcf.read_interactions(log_file)
    transcf.Popularity().fit(log).save(tmp_path / "model")
    assert "does not say what" in refusal("evaluate", tmp_path / "model")
    assert "leave out --model" in refusal("evaluate", tmp_path / "model", "--model", "ease")


def test_compare_has_the_floor_and_the_test(answer: Answer, log_file: Path) -> None:
    found = answer(
        "compare", log_file, "--out", "none", "--models", "ease", "--set", "ease.regularization=5"
    )
    names = [entry["model"] for entry in found["models"]]
    floor = ["popularity", "inverse-popularity", "random", "recent-popularity"]
    assert names == [*floor, "ease"]
    assert found["models"][-1]["parameters"]["regularization"] == 5
    assert len(found["tests"]) == 10
    assert {"model_a", "model_b", "difference", "p_holm"} <= set(found["tests"][0])


def test_compare_for_people_marks_the_best(
    command: Command, answer: Answer, log_file: Path
) -> None:
    result = command(
        "compare", log_file, "--out", "none", "--models", "itemknn,ease", "--protocol", "paper"
    )
    assert result.exit_code == 0, result.output
    found = answer(
        "compare", log_file, "--out", "none", "--models", "itemknn,ease", "--protocol", "paper"
    )
    best = max(found["models"], key=lambda entry: entry["metrics"]["NDCG@10"]["mean"])
    metric = best["metrics"]["NDCG@10"]
    line = next(line for line in result.stdout.splitlines() if f" {best['model']} " in line)
    assert f"{metric['mean']:.4f} ± {metric['se']:.4f} *" in line
    assert "full ranking" in result.stdout
    assert "inverse-popularity" in result.stdout


def test_models_lists_every_registered_one(command: Command, answer: Answer) -> None:
    found = {entry["name"]: entry for entry in answer("models")}
    assert set(found) == set(available())
    assert found["ease"]["parameters"]["regularization"]["allowed"] == "a number above 0"
    assert all(name in command("models").stdout for name in available())


def test_demo_shows_a_table_and_recommendations(command: Command, answer: Answer) -> None:
    found = answer("demo")
    assert len(found["recommendations"]) == 5
    figures = {entry["model"]: entry["metrics"]["NDCG@10"]["mean"] for entry in found["models"]}
    assert figures["ease"] > figures["popularity"] > figures["random"]
    shown = command("demo").stdout
    assert "recommends to" in shown
    assert found["recommendations"][0]["item_id"] in shown


WRONG = {
    "no model": ((), "--model is missing"),
    "unknown model": (("--model", "eas"), "no model 'eas'"),
    "misspelled model": (("--model", "als"), "Did you mean 'ials' or 'eals'?"),
    "unknown parameter": (("--model", "ease", "--set", "reg=1"), "no parameter 'reg'"),
    "misspelled parameter": (("--model", "bpr", "--set", "dims=3"), "Did you mean 'dim'?"),
    "bad value": (("--model", "ease", "--set", "regularization=-1"), "regularization=-1"),
    "no value": (("--model", "ease", "--set", "regularization"), "NAME=VALUE"),
    "bad protocol": (("--model", "ease", "--protocol", "odd"), "protocol='odd' is not allowed"),
    "misspelled protocol": (
        ("--model", "ease", "--protocol", "leave-last"),
        "mean 'leave-last-out'",
    ),
    "bad part": (("--model", "ease", "--subset", "odd"), "subset='odd'"),
    "bad length": (("--model", "ease", "-k", "0"), "-k 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_get_one_sentence(case: str, refusal: Refusal, log_file: Path) -> None:
    words, expected = WRONG[case]
    message = refusal("evaluate", log_file, *words)
    assert expected in message
    assert message.count("\n") == 1


def test_a_misspelled_dataset_is_recognised(refusal: Refusal) -> None:
    assert "Did you mean 'delicious'?" in refusal("data", "info", "delicous")
    assert "Did you mean 'delicious'?" in refusal("data", "download", "Delicius")


def test_one_seed_has_no_spread(command: Command, log_file: Path) -> None:
    one = command("--store", "none", "evaluate", log_file, "--model", "random").stdout
    two = command("--store", "none", "evaluate", log_file, "--model", "random", "--seeds", 2).stdout
    lines = [next(line for line in shown.splitlines() if "NDCG@10" in line) for shown in (one, two)]
    assert [cell.strip() for cell in lines[0].split("│")][4] == "-"
    assert float([cell.strip() for cell in lines[1].split("│")][4]) > 0


def test_a_tilde_in_a_path_is_the_home_folder(
    answer: Answer, log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    answer("fit", log_file, "--model", "popularity", "--out=~/model", "--hold-out")
    answer("recommend", "~/model", "--all", "--out=~/lists.csv")
    answer("evaluate", "~/model")
    answer("refit", "~/model", log_file, "--out=~/other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lists.csv", "model", "other"]


def test_compare_runs_a_model_once_whatever_its_capitals(answer: Answer, log_file: Path) -> None:
    settings = ("--set", "Ease.regularization=5")
    models = ("--models", "EASE, ease,transcf_DOT", "--set", "transcf-dot.epochs=1")
    found = answer("compare", log_file, "--out", "none", *models, *settings)
    names = [entry["model"] for entry in found["models"]]
    assert names[-3:] == ["recent-popularity", "ease", "transcf-dot"]
    assert found["models"][4]["parameters"]["regularization"] == 5


def test_compare_runs_the_class_that_old_parameters_mean(answer: Answer, log_file: Path) -> None:
    old = ("--set", "transcf.form=mixture", "--set", "transcf.rho=0.5", "--set", "transcf.epochs=1")
    found = answer("compare", log_file, "--out", "none", "--models", "transcf", *old)
    last = found["models"][-1]
    assert (last["model"], last["class"]) == ("transcf-mixture", "TransCFMixture")
    assert last["parameters"]["history_decay"] == 0.5


@pytest.fixture
def no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*_: object) -> None:
        raise AssertionError("fitted before all options were checked")

    monkeypatch.setattr(transcf.Popularity, "fit", fit)


@pytest.mark.usefixtures("no_fit")
def test_nothing_is_fitted_in_vain(refusal: Refusal, log_file: Path, tmp_path: Path) -> None:
    for metric in ("HitRate@5", "odd"):
        assert f"metric='{metric}' is not" in refusal("compare", log_file, "--metric", metric)
    file = tmp_path / "diary.txt"
    file.write_text("dear diary")
    fit = ("fit", log_file, "--model", "popularity", "--out")
    assert "is not a folder" in refusal(*fit, file)
    assert "holds other files" in refusal(*fit, tmp_path)


def test_a_strict_model_is_judged_by_sampled_candidates(
    answer: Answer, refusal: Refusal, log_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    old = ("--protocol", "leave-last-out-no-refit")
    answer("fit", log_file, "--model", "ease", "--out", folder, "--seed", 4, "--hold-out", *old)
    found = answer("evaluate", folder, "--protocol", "paper")
    direct = answer("evaluate", log_file, "--model", "ease", "--protocol", "paper", "--seed", 4)
    assert found["metrics"] == direct["metrics"]
    assert "leave out --seed." in refusal("evaluate", folder, "--seed", 0)
    assert "leave out --set, --seeds." in refusal("evaluate", folder, "--seeds", 2, "--set", "a=1")


def test_an_interrupted_fit_can_be_resumed(
    command: Command, answer: Answer, log_file: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    small = ("--model", "transcf", "--set", "dim=4", "--set", "epochs=3")
    folder, kept = tmp_path / "model", tmp_path / "model.checkpoint"
    whole = answer("fit", log_file, *small, "--out", tmp_path / "whole")

    def interrupt(_: object) -> bool:
        signal.raise_signal(signal.SIGINT)
        return True

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFile, "is_due", interrupt)
        stopped = command("fit", log_file, *small, "--out", folder)
    assert stopped.exit_code == 130
    assert "--resume" in stopped.stderr
    assert kept.is_dir()
    assert not folder.exists(), "what was learned from a part of the events is no model for use"
    resumed = command("fit", log_file, *small, "--out", folder, "--resume", "--json")
    assert "holds no checkpoint" not in resumed.stderr
    assert json.loads(resumed.stdout)["best_epoch"] == whole["best_epoch"]
    assert not kept.exists()
    tensors = [path / "model.safetensors" for path in (folder, tmp_path / "whole")]
    assert tensors[0].read_bytes() == tensors[1].read_bytes()
    again = ("--resume", "--overwrite", "--json")
    anew = command("fit", log_file, *small, "--out", folder, *again)
    assert "holds no checkpoint" in anew.stderr


def test_events_that_ratings_leave_out_are_counted(
    command: Command, log_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "rated.csv"
    bad = pl.when(pl.int_range(pl.len()) < 3).then(0.0).otherwise(pl.col("rating"))
    pl.read_csv(log_file).with_columns(rating=bad).write_csv(file)
    words = {
        "evaluate": (),
        "fit": ("--out", tmp_path / "model"),
        "compare": (
            "--out",
            "none",
        ),
    }
    for name, more in words.items():
        chosen = ("--models", "ease") if name == "compare" else ("--model", "ease")
        said = command(name, file, *chosen, *more).stderr
        assert "3 events with ratings of 0 or below left out (--min-rating)" in said, name


@pytest.mark.parametrize("model", ["ease", "bpr"])
def test_a_model_for_use_learns_from_everything(
    answer: Answer, refusal: Refusal, log_file: Path, tmp_path: Path, model: str
) -> None:
    folder, log = tmp_path / "model", transcf.read_interactions(log_file)
    fitted = answer("fit", log_file, "--model", model, "--out", folder)
    assert fitted["interactions"] == len(log)
    assert fitted["fitted_on"].startswith(f"all {len(log):,} events")
    owned = set(log.to_frame().select("user_id", "item_id").iter_rows())
    listed = transcf.load(folder).recommend(k=10).select("user_id", "item_id")
    assert not owned & set(listed.iter_rows())
    assert "was fitted on all events" in refusal("evaluate", folder)
    assert "holds a model already" in refusal("fit", log_file, "--model", model, "--out", folder)
    answer("fit", log_file, "--model", model, "--out", folder, "--overwrite")


def test_a_log_too_small_to_hold_out_from_is_fitted_all_the_same(
    answer: Answer, tmp_path: Path
) -> None:
    file = tmp_path / "few.csv"
    file.write_text("user,item\nann,x\nbob,x\nbob,y\n")
    few = ("--model", "bpr", "--set", "dim=2", "--set", "epochs=2")
    fitted = answer("fit", file, *few, "--out", tmp_path / "model")
    assert fitted["interactions"] == 3
    assert "without choosing an epoch" in fitted["fitted_on"]


def test_paths_become_absolute_and_names_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("delicious", "own"):
        Path(name).touch()
    assert [absolute_name(name) for name in ("synthetic", "ciao", "delicious", "own")] == [
        "synthetic", "ciao", str(tmp_path / "delicious"), str(tmp_path / "own")]  # fmt: skip


def test_a_study_that_is_no_toml_gets_one_sentence(refusal: Refusal, tmp_path: Path) -> None:
    for content in (b"title = ", b"\xff"):
        (tmp_path / "own.toml").write_bytes(content)
        assert "own.toml is not a TOML file" in refusal("study", tmp_path / "own.toml")


def test_compare_refuses_settings_of_nobody(refusal: Refusal, log_file: Path) -> None:
    wrong = ("--models", "ease", "--set", "itemknn.shrinkage=1")
    assert "names none of the models" in refusal("compare", log_file, *wrong)


def test_a_model_never_lands_on_other_files(
    refusal: Refusal, log_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    message = refusal("fit", log_file, "--model", "popularity", "--out", tmp_path)
    assert "diary.txt" in message


def test_doctor_tells_what_is_there(command: Command, answer: Answer) -> None:
    found = answer("doctor")
    assert found["transcf"] == transcf.__version__
    assert found["packages"]["numpy"]
    assert found["machine"]["cores"] >= 1
    assert json.dumps(found["extras"])
    assert "numpy" in command("doctor").stdout


def test_compare_tries_settings_and_writes_what_it_prints(
    command: Command, log_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    words = ("compare", log_file, "--models", "ease", "--budget", "small", "--out", out)
    result = command(*words)
    assert result.exit_code == 0, result.output
    assert "at most 3 on validation data" in result.stdout
    content = _written(out)
    assert content["models"][-1]["tried"] == 3
    assert f"{content['models'][-1]['metrics']['NDCG@10']['mean']:.4f}" in result.stdout
    again = f"transcf compare {log_file} --models ease --budget small"
    for name in ("comparison.md", "comparison.html"):
        assert again in (out / name).read_text()


def test_compare_takes_settings_of_the_floor_that_joins_by_itself(
    answer: Answer, log_file: Path
) -> None:
    own = ("--models", "ease", "--set", "recent-popularity.half_life=.1")
    found = answer("compare", log_file, "--out", "none", *own)["models"]
    names = [entry["model"] for entry in found]
    assert names == ["popularity", "inverse-popularity", "random", "recent-popularity", "ease"]
    assert (found[3]["parameters"]["half_life"], found[3]["tried"]) == (0.1, 1)


def test_compare_chooses_by_the_length_that_is_judged(command: Command, log_file: Path) -> None:
    words = ("compare", log_file, "--out", "none", "--models", "ease", "--budget", "small")
    assert "on validation data (NDCG@5)" in command(*words, "-k", "5").stdout
    assert "on validation data (NDCG@10)" in command(*words, "-k", "5,10").stdout


def test_tune_writes_settings_that_other_commands_take(
    answer: Answer, refusal: Refusal, log_file: Path, tmp_path: Path
) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    best, record = tmp_path / "best.toml", tmp_path / "trials.sqlite"
    words = ("--store", "none", "tune", log_file, "--model", "ease", "--trials", 3)
    words = (*words, "--sampler", "grid", "--storage", record)
    found = answer(*words, "--out", best)
    assert (found["trials"], found["complete"], len(found["table"])) == (3, 3, 3)
    fitted = answer("fit", log_file, "--config", best, "--out", tmp_path / "model")
    assert fitted["model"] == "ease"
    assert {name: fitted["parameters"][name] for name in found["best"]} == found["best"]
    judged = answer("evaluate", log_file, "--config", best, "--set", "regularization=7")
    assert judged["parameters"]["regularization"] == 7
    words = ("compare", log_file, "--models", "itemknn", "--config", best, "--out", "none")
    compared = answer(*words)["models"]
    assert [one["model"] for one in compared][-2:] == ["itemknn", "ease"]
    assert compared[-1]["parameters"] == fitted["parameters"]
    assert "settings of ease, not of bpr" in refusal(
        "evaluate", log_file, "--model", "bpr", "--config", best
    )
    assert "the same model" in refusal(*words, "--config", best)
    refused = refusal("tune", log_file, "--model", "ease", "--sampler", "best")
    assert "sampler='best' is not allowed" in refused
    assert "There is no file" in refusal("evaluate", log_file, "--config", tmp_path / "none.toml")


def test_an_interrupted_search_keeps_its_trials_and_goes_on(
    command: Command, log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    fit, fits = transcf.EASE.fit, 0

    def interrupt(self: Any, *words: Any) -> Any:
        nonlocal fits
        fits += 1
        if fits in (1, 4):
            raise KeyboardInterrupt
        return fit(self, *words)

    monkeypatch.setattr(transcf.EASE, "fit", interrupt)
    words = (
        "--store",
        "none",
        "tune",
        log_file,
        "--model",
        "ease",
        "--trials",
        4,
        "--sampler",
        "grid",
    )
    words = (*words, "--storage", tmp_path / "trials.sqlite")
    first = command(*words)
    assert (first.exit_code, first.stdout) == (130, "")
    assert "interrupted" in first.stderr
    second = command(*words, "--json")
    assert second.exit_code == 130
    assert "2/4 trials" in second.stderr
    assert "best NDCG@10" in second.stderr
    assert json.loads(second.stdout)["trials"] == 2
    third = command(*words, "--json")
    assert third.exit_code == 0
    assert "2 trials are in" in third.stderr
    assert [one["regularization"] for one in json.loads(third.stdout)["table"]][1:] == [3, 10, 30]


def test_compare_checks_budget_and_folder_first(refusal: Refusal, log_file: Path) -> None:
    assert "no budget 'huge'" in refusal("compare", log_file, "--budget", "huge")
    assert "use .html, .md or .json" in refusal("compare", log_file, "--out", log_file)


def test_what_is_set_by_hand_is_not_searched(answer: Answer, log_file: Path) -> None:
    fixed = ("--models", "itemknn", "--set", "itemknn.shrinkage=7", "--budget", "small")
    found = answer("compare", log_file, "--out", "none", *fixed)["models"][-1]
    assert found["tried"] == 3
    assert found["parameters"]["shrinkage"] == 7
    assert "shrinkage" not in found["chosen"]


def test_compare_goes_on_without_an_optional_part(
    command: Command, log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    result = command("compare", log_file, "--models", "ease,cdae", "--out", tmp_path)
    assert result.exit_code == 1, "a script learns of it, too"
    assert "transcf: cdae could not be fitted: the notes say why.\n" in result.stderr
    assert "cdae is missing: Fitting CDAE needs an optional part" in result.stdout
    assert [entry["model"] for entry in _written(tmp_path)["models"]][-1] == "ease"


def _written(folder: Path) -> dict:
    (table,) = json.loads((folder / "comparison.json").read_text())["datasets"]
    return table


STUDY = """
title = "A small study"
protocol = "paper"
seeds = 2
metrics = ["HitRate@10"]
paired_tests = "NDCG@10"
[[datasets]]
name = "{folder}"
published.random = {{ "HitRate@10" = 0.1234 }}
[[models]]
name = "popularity"
[[models]]
name = "random"
label = "pure chance"
"""


def test_a_study_prints_what_it_found_beside_what_was_published(
    command: Command, answer: Answer, refusal: Refusal, tmp_path: Path
) -> None:
    log = synthesize(users=80, items=150, interactions=900, seed=4)
    folder = draw_candidates(leave_one_out(log)).save(tmp_path / "split")
    file = tmp_path / "own.toml"
    file.write_text(STUDY.format(folder=folder))
    (found,) = answer("study", file)["datasets"]
    assert found["published"] == {"pure chance": {"HitRate@10": 0.1234}}
    chance = found["models"][1]
    direct = [
        evaluate(Random(random_state=seed).fit(split.train), split, "paper")
        .metrics["HitRate@10"]
        .mean
        for split in [Split.load(folder)]
        for seed in (0, 1)
    ]
    assert chance["metrics"]["HitRate@10"]["mean"] == pytest.approx(sum(direct) / 2)
    assert [test["model_b"] for test in found["tests"]] == ["pure chance"]

    table = command("study", file, "--models", "pure chance").stdout
    assert f"{chance['metrics']['HitRate@10']['mean']:.4f} ±" in table
    assert "Published values and ours" in table
    assert "0.1234" in table
    assert "popularity" not in table.replace("inverse-popularity", "")
    assert "rank rare items first" in table
    assert "no model 'random'" in refusal("study", file, "--models", "random")
    elsewhere = 'datasets = ["synthetic"]\n[[datasets]]\nname = "synthetic"\n'
    file.write_text(STUDY.format(folder=folder) + elsewhere)
    none = refusal("study", file, "--datasets", folder, "--models", "pure chance")
    assert "runs none of these models on these datasets" in none


def test_a_study_leaves_a_report_and_results_behind(
    answer: Answer, refusal: Refusal, tmp_path: Path
) -> None:
    log = synthesize(users=80, items=150, interactions=900, seed=4)
    folder = draw_candidates(leave_one_out(log)).save(tmp_path / "split")
    file, report, results = (tmp_path / name for name in ("own.toml", "r.html", "r.json"))
    file.write_text(STUDY.format(folder=folder))
    printed = answer("study", file, "--out", report, "--out", results)
    assert json.loads(results.read_text()) == printed
    assert printed["command"] == f"transcf study {file}"
    assert "pure chance" in report.read_text()
    assert "use .html, .md or .json" in refusal("study", file, "--out", tmp_path / "r.pdf")
    (tmp_path / "folder.md").mkdir()
    assert "is a folder" in refusal("study", file, "--out", tmp_path / "folder.md")
    (tmp_path / "file").write_text("")
    assert "is not a folder" in refusal("compare", folder, "--out", tmp_path / "file")


def test_categories_come_from_a_file_beside_the_log(answer: Answer, tmp_path: Path) -> None:
    log = synthesize(users=60, items=40, interactions=900)
    events, shelves = (tmp_path / f"{name}.csv" for name in ("events", "shelves"))
    write_csv(log, events)
    log.categories.write_csv(shelves)
    few = ("--model", "bpr", "--set", "dim=8", "--set", "epochs=1")
    answer(
        "fit",
        events,
        *few,
        "--read",
        f"categories={shelves}",
        "--hold-out",
        "--out",
        tmp_path / "model",
    )
    model = transcf.load(tmp_path / "model")
    assert model.report_["reading"] == {"categories": str(shelves)}
    assert answer("evaluate", tmp_path / "model")["metrics"]


def test_old_names_work_with_a_warning(command: Any, log_file: Path, tmp_path: Path) -> None:
    small = ("--set", "dim=4", "--set", "epochs=1", "--set", "form=mixture", "--set", "rho=0.5")
    result = command("fit", log_file, "--model", "transcf", *small, "--out", tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert "history_decay" in result.stderr
    model = transcf.load(tmp_path / "model")
    assert type(model).__name__ == "TransCFMixture"
    assert model.history_decay == 0.5


def test_common_mistakes_are_named(
    answer: Answer, refusal: Refusal, log_file: Path, tmp_path: Path
) -> None:
    headless, folder = tmp_path / "headless.csv", tmp_path / "model"
    headless.write_text("ann,tea\nbob,milk\n")
    answer("fit", log_file, "--model", "popularity", "--out", folder)
    assert "--read header=no" in refusal("data", "info", headless)
    assert "is a saved model, not data" in refusal("fit", folder, "--model", "ease", "--out", "x")
    assert "is not a saved model" in refusal("evaluate", tmp_path)
    assert "'analysis', 'all'" in refusal("reproduce", "figures")
