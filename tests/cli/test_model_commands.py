from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import transcf
from transcf.models.registry import available

Answer = Callable[..., Any]
Refusal = Callable[..., str]
Command = Callable[..., Result]

# The issue's independent computation: H@10, H@20, N@10, N@20 on Delicious' test items.
PUBLISHED = {
    ("popularity", "pessimistic"): (0.0422, 0.0739, 0.0204, 0.0286),
    ("inverse-popularity", "pessimistic"): (0.1755, 0.3773, 0.0568, 0.1070),
    ("inverse-popularity", "realistic"): (0.2612, 0.4789, 0.1015, 0.1564),
    ("ease", "pessimistic"): (0.2005, 0.3021, 0.1089, 0.1344),
}


@pytest.mark.parametrize(("model", "ties"), PUBLISHED)
def test_known_figures(
    model: str, ties: str, answer: Answer, real_data: Callable[[str], Path]
) -> None:
    settings = ("--set", "regularization=300") if model == "ease" else ()
    folder = real_data("delicious")
    found = answer(
        "evaluate", folder, "--model", model, *settings, "--protocol", "paper", "--ties", ties
    )
    assert found["users"] == 758
    figures = [found["metrics"][name]["mean"] for name in ("H@10", "H@20", "N@10", "N@20")]
    assert [round(figure, 4) for figure in figures] == list(PUBLISHED[model, ties])
    assert sum(found["skipped"].values()) == 1050 - 758


def test_evaluate_has_the_promised_form(answer: Answer, log_file: Path) -> None:
    found = answer("evaluate", log_file, "--model", "random", "--seeds", 3, "--at", "5")
    assert {"model", "protocol", "users", "metrics", "seconds", "skipped", "parameters", "ties",
            "dataset"} <= set(found)  # fmt: skip
    assert (found["model"], found["protocol"], found["runs"]) == ("random", "strict", 3)
    assert set(found["metrics"]["H@5"]) == {"mean", "sd", "se"}
    assert found["metrics"]["N@5"]["sd"] > 0
    single = [
        answer("evaluate", log_file, "--model", "random", "--seed", seed, "--at", "5")
        for seed in range(3)
    ]
    mean = sum(one["metrics"]["N@5"]["mean"] for one in single) / 3
    assert math.isclose(found["metrics"]["N@5"]["mean"], mean, rel_tol=1e-12)


def test_a_model_without_chance_runs_once(answer: Answer, log_file: Path) -> None:
    found = answer("evaluate", log_file, "--model", "ease", "--seeds", 5)
    assert found["runs"] == 1
    assert found["metrics"]["H@10"]["sd"] == 0


def test_full_ranking_stands_beside_sampled_figures(answer: Answer, log_file: Path) -> None:
    sampled = answer("evaluate", log_file, "--model", "ease", "--protocol", "paper")
    strict = answer("evaluate", log_file, "--model", "ease")
    assert sampled["full_ranking"]["N@10"]["mean"] == strict["metrics"]["N@10"]["mean"]
    assert "full_ranking" not in strict
    assert any("rare" in note for note in sampled["notes"])


def test_fit_then_evaluate_equals_evaluate(
    answer: Answer, refusal: Refusal, log_file: Path, tmp_path: Path
) -> None:
    data = tmp_path / "events.csv"
    data.write_bytes(log_file.read_bytes())
    ease = ("--model", "ease", "--set", "regularization=50")
    folder = tmp_path / "model"
    fitted = answer("fit", data, *ease, "--out", folder, "--seed", 4, "--threads", 1)
    assert fitted["parameters"]["regularization"] == 50
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["model"]
    saved = answer("evaluate", folder)
    assert saved["metrics"] == answer("evaluate", data, *ease, "--seed", 4)["metrics"]
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
    found = answer("compare", log_file, "--models", "ease", "--set", "ease.regularization=5")
    names = [entry["model"] for entry in found["models"]]
    assert names == ["popularity", "inverse-popularity", "random", "ease"]
    assert found["models"][-1]["parameters"]["regularization"] == 5
    assert len(found["tests"]) == 6
    assert {"model_a", "model_b", "difference", "p_holm"} <= set(found["tests"][0])


def test_compare_for_people_marks_the_best(
    command: Command, answer: Answer, log_file: Path
) -> None:
    result = command("compare", log_file, "--models", "itemknn,ease", "--protocol", "paper")
    assert result.exit_code == 0, result.output
    found = answer("compare", log_file, "--models", "itemknn,ease", "--protocol", "paper")
    best = max(found["models"], key=lambda entry: entry["metrics"]["N@10"]["mean"])
    figure = f"{best['metrics']['N@10']['mean']:.4f}*"
    line = next(line for line in result.stdout.splitlines() if f" {best['model']} " in line)
    assert figure in line
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
    figures = {entry["model"]: entry["metrics"]["N@10"]["mean"] for entry in found["models"]}
    assert figures["ease"] > figures["popularity"] > figures["random"]
    shown = command("demo").stdout
    assert "recommends to" in shown
    assert found["recommendations"][0]["item_id"] in shown


WRONG = {
    "no model": ((), "--model is missing"),
    "unknown model": (("--model", "eas"), "no model 'eas'"),
    "unknown parameter": (("--model", "ease", "--set", "reg=1"), "no parameter 'reg'"),
    "bad value": (("--model", "ease", "--set", "regularization=-1"), "regularization=-1"),
    "no value": (("--model", "ease", "--set", "regularization"), "NAME=VALUE"),
    "bad protocol": (("--model", "ease", "--protocol", "odd"), "--protocol odd"),
    "bad ties": (("--model", "ease", "--ties", "odd"), "--ties odd"),
    "bad part": (("--model", "ease", "--part", "odd"), "--part odd"),
    "bad length": (("--model", "ease", "--at", "0"), "--at 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_get_one_sentence(case: str, refusal: Refusal, log_file: Path) -> None:
    words, expected = WRONG[case]
    message = refusal("evaluate", log_file, *words)
    assert expected in message
    assert message.count("\n") == 1


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
