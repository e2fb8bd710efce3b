"""What commands say about their figures: what was held out, what names mean, how a study looks."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import Result

import transcf
from transcf.data import splitters
from transcf.data.synthetic import write_csv
from transcf.evaluation.metrics import METRICS
from transcf.experiments.study import Study, available_studies, study_example
from transcf.tables import MEANINGS

Answer = Callable[..., Any]
Refusal = Callable[..., str]
Command = Callable[..., Result]

NEWEST = (
    "the newest 10 % of the events for test, the newest 10 % of the events before them for "
    "validation"
)
ANY = (
    "one event of each user at random for test, another for validation, seed 4 (the log has no "
    "timestamps)"
)


@pytest.fixture
def untimed(log_file: Path, tmp_path: Path) -> Path:
    path = tmp_path / "untimed.csv"
    pl.read_csv(log_file).select("user_id", "item_id").write_csv(path)
    return path


def test_every_command_names_the_split(
    command: Command, answer: Answer, log_file: Path, untimed: Path, tmp_path: Path
) -> None:
    compared = ("--out", "none", "--models", "ease")
    for data, seed, how in ((log_file, (), NEWEST), (untimed, ("--seed", 4), ANY)):
        assert answer("evaluate", data, "--model", "ease", *seed)["split"] == how
        assert f"held out: {how}" in command("evaluate", data, "--model", "ease", *seed).stdout
        found = answer("compare", data, *compared, *seed)
        assert found["split"] == how
        assert {entry["split"] for entry in found["models"]} == {how}
        assert f"Held out: {how}." in command("compare", data, *compared, *seed).stdout
        out = tmp_path / data.stem
        fit = ("fit", data, "--model", "ease", "--out", out, "--hold-out", *seed)
        assert answer(*fit)["split"] == how
        assert how in command(*fit, "--overwrite").stdout
        assert answer("evaluate", out)["split"] == how
        log = transcf.read_interactions(data)
        own = transcf.leave_one_out(log, seed=4) if seed else transcf.temporal_cut(log)
        assert own.how == how  # one rule for both


def test_studies_name_the_split_and_explain_their_figures(
    command: Command, answer: Answer, untimed: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'title = "x"\nprotocol = "leave-last-out"\nseeds = 1\n'
        'metrics = ["Recall@5", "AUC", "ILD@5"]\n'
        f'[[datasets]]\nname = "{untimed}"\n[[models]]\nname = "popularity"\n'
        '[[models]]\nname = "ease"\n'
    )
    how = ANY.replace("seed 4", "seed 0")
    (found,) = answer("study", plan)["datasets"]
    assert found["split"] == how
    split = transcf.open_split(untimed)
    fitted = transcf.EASE().fit(split.before_test)
    expected = transcf.evaluate(fitted, split, k=5, beyond=True).metrics
    for name in ("Recall@5", "AUC", "ILD@5"):
        assert found["models"][1]["metrics"][name]["mean"] == pytest.approx(expected[name].mean)
    shown = command("study", plan).stdout
    assert f"Held out: {how}." in shown
    for kind in ("Recall", "AUC", "ILD"):
        assert MEANINGS[kind] in shown
    assert "± = standard error over users" in shown


def test_every_figure_has_a_meaning() -> None:
    assert set(METRICS) < set(MEANINGS)


def test_tables_explain_what_they_show(command: Command, log_file: Path) -> None:
    shown = command("evaluate", log_file, "--model", "ease", "--beyond").stdout
    assert all(f"{kind} = {text}" in shown.replace("@N", "") for kind, text in MEANINGS.items())
    assert "se = standard error over users" in shown
    shown = command("compare", log_file, "--out", "none", "--models", "ease").stdout
    assert (
        f"HitRate@N = {MEANINGS['HitRate']}; NDCG@N = {MEANINGS['NDCG']}; ± = standard error"
        in shown
    )
    assert "MRR" not in shown


def test_study_without_a_name_lists_them_and_shows_a_file_that_is_one(command: Command) -> None:
    text = command("study").stdout
    assert ", ".join(available_studies()) in text
    assert study_example() in text
    study = Study.from_dict(tomllib.loads(study_example()))
    assert study.models[0].grid == {"learning_rate": [0.02, 0.05]}
    known = set(re.findall(r"^\[?\[?([a-z_]+)", study_example(), re.MULTILINE))
    assert {
        "title",
        "seeds",
        "paired_tests",
        "subset",
        "datasets",
        "core",
        "label",
        "grid",
    } <= known


def test_a_study_with_something_missing_is_told_so(refusal: Refusal, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('title = "x"\nmetrics = ["NDCG@10"]\ndatasets = []\nmodels = []\n')
    said = refusal("study", plan)
    assert "The study has no protocol: add it" in said
    assert "__init__" not in said


def test_the_metric_moves_with_the_lengths(
    answer: Answer, refusal: Refusal, log_file: Path
) -> None:
    compared = ("compare", log_file, "--out", "none", "--models", "ease")
    for at, metric in (("5", "NDCG@5"), ("20,10", "NDCG@10"), ("3,7", "NDCG@3")):
        found = answer(*compared, "-k", at)
        assert (found["metric"], found["tests"][0]["metric"]) == (metric, metric)
    assert transcf.compare("ease", log_file, k=5).metric == "NDCG@5"
    assert "metric='NDCG@10' is not computed" in refusal(
        *compared, "-k", "5", "--metric", "NDCG@10"
    )
    assert "--beyond" in refusal(*compared, "--metric", "AUC")


def test_beyond_accuracy_on_the_command_line(
    command: Command, answer: Answer, log_file: Path
) -> None:
    split = transcf.open_split(log_file)
    expected = transcf.evaluate(transcf.EASE().fit(split.before_test), split, beyond=True)
    found = answer("evaluate", log_file, "--model", "ease", "--beyond")
    assert list(found["metrics"]) == list(expected.metrics)
    assert found["metrics"]["novelty@20"]["mean"] == expected.metrics["novelty@20"].mean
    assert found["catalogue"] == expected.catalogue
    compared = ("compare", log_file, "--out", "none", "--models", "ease", "--beyond")
    tested = answer(*compared, "--metric", "ILD@20")
    assert tested["tests"][0]["metric"] == "ILD@20"
    heads, ease = (
        next(line for line in command(*compared).stdout.splitlines() if f" {word} " in line)
        for word in ("model", "ease")
    )
    cells = dict(zip(*(re.split("[│┃]", line)[1:-1] for line in (heads, ease)), strict=True))
    cells = {name.strip(): cell.strip() for name, cell in cells.items()}
    assert cells["gini@10"] == f"{expected.catalogue['gini@10']:.4f}"
    assert cells["novelty@10"] == str(expected.metrics["novelty@10"])
    assert "AUC" in cells
    sampled = answer("evaluate", log_file, "--model", "ease", "--beyond", "--protocol", "paper")
    assert "AUC" in sampled["metrics"]
    assert "novelty@10" not in sampled["metrics"]
    split = transcf.open_split(log_file, "paper")
    expected = transcf.evaluate(transcf.EASE().fit(split.train), split, beyond=True)
    assert sampled["full_ranking"]["novelty@10"]["mean"] == expected.metrics["novelty@10"].mean


def test_one_of_something_is_not_many(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    rows = [("ann", item) for item in "abcd"] + [("bob", "d"), ("bob", "c"), ("eve", "e")]
    pl.DataFrame(rows, schema=["user_id", "item_id"], orient="row").with_columns(
        timestamp=pl.int_range(len(rows))
    ).write_csv(path)
    shown = command("evaluate", path, "--model", "popularity").output
    assert "1 user, pessimistic ties" in shown, shown
    shown = command("compare", path, "--out", "none", "--models", "popularity").output
    assert "1 user, pessimistic ties" in shown
    split = transcf.open_split(path)
    assert "1 user," in str(transcf.evaluate(transcf.Popularity().fit(split.train), split))
    html = transcf.Popularity().fit([("ann", "a")])._repr_html_()
    assert "fitted on 1 user and 1 item" in html


def test_variants_of_a_model_show_what_makes_them_and_no_more(
    command: Command, answer: Answer
) -> None:
    found = {entry["name"]: entry for entry in answer("models")}
    assert list(found["transcf-alt"]["parameters"]) == ["variant"]
    assert found["transcf-alt"]["summary"] == "As transcf, with variant=alt."
    assert "margin" in found["transcf"]["parameters"]
    whole = answer("models", "transcf-alt")["parameters"]
    assert set(whole) == set(found["transcf"]["parameters"])
    assert whole["variant"]["default"] == "alt"
    shown = command("models", "transcf").stdout
    for name in found["transcf"]["parameters"]:
        assert len(re.findall(rf"^│ {name} +│", shown, re.MULTILINE)) == 1


def test_few_items_need_no_word_about_categories(
    command: Command, refusal: Refusal, tmp_path: Path
) -> None:
    size = ("--users", 4, "--items", 5)
    done = command("data", "synthesize", *size, "--interactions", 8, tmp_path / "few.csv")
    assert done.exit_code == 0, done.output
    log = transcf.synthesize(4, 5, 8)
    assert pl.read_csv(tmp_path / "few.csv").equals(
        pl.read_csv(write_csv(log, tmp_path / "same.csv"))
    )
    said = refusal("data", "synthesize", *size, "--interactions", 800, tmp_path / "no.csv")
    assert "interactions=800" in said
    assert "categories" not in said


def test_fit_reads_its_data_once(
    answer: Answer, log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, seen = splitters.read_interactions, []

    def counting(path: Any, **reading: Any) -> Any:
        seen.append(path)
        return read(path, **reading)

    monkeypatch.setattr(splitters, "read_interactions", counting)
    fitted = answer("fit", log_file, "--model", "ease", "--out", tmp_path / "model")
    assert len(seen) == 1
    assert fitted["interactions"] == len(read(log_file))
