"""`transcf refit` and `transcf partial-fit`: saved models learn from new events."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

import transcf
from transcf.io import model_dir
from transcf.models.checkpoint import CheckpointFile

Command = Callable[..., Result]
Answer = Callable[..., Any]

SMALL = ("--set", "dim=4", "--set", "epochs=3")


@pytest.fixture
def halves(log_file: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The older and the newer lines of a log."""
    head, *lines = log_file.read_text().splitlines()
    paths = tmp_path / "old.csv", tmp_path / "new.csv"
    for path, part in zip(paths, (lines[:2000], lines[2000:]), strict=True):
        path.write_text("\n".join([head, *part, ""]))
    return paths


def tensors(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_refit_learns_from_everything_what_python_does(
    answer: Answer, log_file: Path, halves: tuple[Path, Path], tmp_path: Path
) -> None:
    old, new = tmp_path / "model", tmp_path / "renewed"
    answer("fit", halves[0], "--model", "bpr", *SMALL, "--out", old, "--hold-out")
    model, before = transcf.load(old), tensors(old)
    found = answer("refit", old, log_file, "--out", new)
    log = transcf.read_interactions(log_file)
    model.refit(log)
    renewed = transcf.load(new)
    assert renewed.recommend().equals(model.recommend())
    assert renewed.get_params() == model.get_params()
    assert found["interactions"] == len(log)
    assert found["fitted_on"].startswith(
        f"all {len(log):,} events, up to epoch {model.best_epoch_}"
    )
    assert renewed.report_["dataset"] == str(log_file.resolve())
    assert tensors(old) == before
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["model", "renewed"]


def test_refit_replaces_a_model_when_told_to(
    command: Command, answer: Answer, refusal: Answer, halves: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    answer("fit", halves[0], "--model", "ease", "--out", folder)
    before = tensors(folder)
    sentence = refusal("refit", folder, halves[1])
    assert "--out DIR, or --overwrite" in sentence
    assert "holds a model already" in refusal("refit", folder, halves[1], "--out", folder)
    assert "is neither a file" in refusal("refit", folder, tmp_path / "none", "--overwrite")
    assert "no model.json" in refusal("refit", tmp_path, halves[1], "--out", tmp_path / "x")
    assert tensors(folder) == before
    shown = command("refit", folder, halves[1], "--overwrite", "--yes")
    assert shown.exit_code == 0, shown.output
    assert "fitted_on" in shown.stdout
    assert transcf.load(folder).report_["interactions"] == len(transcf.read_interactions(halves[1]))
    assert "was fitted on all events" in refusal("evaluate", folder)


@pytest.mark.parametrize("out", [False, True])
def test_refit_replaces_no_model_by_a_smaller_one_unasked(
    command: Command, answer: Answer, refusal: Answer, log_file: Path, tmp_path: Path, out: bool
) -> None:
    folder, today = tmp_path / "model", tmp_path / "today.csv"
    today.write_text("user_id,item_id\nu001,i01\nu002,i02\nu003,i03\n")
    answer("fit", log_file, "--model", "popularity", "--out", folder)
    before = tensors(folder)
    place = ("--out", folder, "--overwrite") if out else ("--overwrite",)
    sentence = refusal("refit", folder, today, *place)
    assert all(word in sentence for word in ("147 of the 150 users", "57 of the 60 items"))
    assert all(word in sentence for word in ("3 events", "2,500", "--yes"))
    assert tensors(folder) == before
    other = command("refit", folder, today, "--out", tmp_path / "other")
    assert (other.exit_code, "147 of the 150 users" in other.stderr) == (0, True)
    replaced = command("refit", folder, today, *place, "--yes")
    assert (replaced.exit_code, "147 of the 150 users" in replaced.stderr) == (0, True)
    assert len(transcf.load(folder).users_) == 3
    answer("refit", folder, log_file, *place)  # nothing is lost


def test_refit_reads_several_files_as_one_log(
    answer: Answer, log_file: Path, halves: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    answer("fit", log_file, "--model", "ease", "--out", folder)
    before = tensors(folder)
    found = answer("refit", folder, *halves, "--overwrite")
    assert found["dataset"] == [str(path.resolve()) for path in halves]
    assert tensors(folder) == before
    assert answer("report", folder, "--out", tmp_path / "page.html")


def test_an_interrupted_refit_changes_nothing_and_goes_on(
    command: Command, answer: Answer, log_file: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder, whole = tmp_path / "model", tmp_path / "whole"
    answer("fit", log_file, "--model", "bpr", *SMALL, "--out", folder)
    before = tensors(folder)
    answer("refit", folder, log_file, "--out", whole)

    def interrupt(_: object) -> bool:
        signal.raise_signal(signal.SIGINT)
        return True

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFile, "is_due", interrupt)
        stopped = command("refit", folder, log_file, "--overwrite")
    assert stopped.exit_code == 130
    assert "is as it was" in stopped.stderr
    assert tensors(folder) == before
    kept = tmp_path / "model.refit-checkpoint"
    assert kept.is_dir()
    resumed = command("refit", folder, log_file, "--overwrite", "--resume", "--json")
    assert (resumed.exit_code, resumed.stderr) == (0, "")
    assert tensors(folder) == tensors(whole)
    assert not kept.exists()


def test_a_failed_save_keeps_the_old_model(
    command: Command, answer: Answer, halves: tuple[Path, Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = tmp_path / "model"
    answer("fit", halves[0], "--model", "transcf-mixture", *SMALL, "--out", folder)
    expected = transcf.load(folder).recommend()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(model_dir.tensors, "write", fail)
        for words in (("refit", "--yes"), ("partial-fit",)):
            result = command(*words, folder, halves[1], "--overwrite")
            assert result.exit_code == 2, result.output
            assert "the disk is full" in result.stderr
    assert transcf.load(folder).recommend().equals(expected)


@pytest.mark.parametrize("model", ["transcf-mixture", "eals"])
def test_partial_fit_adds_what_python_adds(
    answer: Answer, refusal: Answer, halves: tuple[Path, Path], tmp_path: Path, model: str
) -> None:
    old, new = tmp_path / "model", tmp_path / "larger"
    answer("fit", halves[0], "--model", model, *SMALL, "--out", old, "--hold-out")
    before, expected = tensors(old), transcf.load(old)
    users = len(expected.users_)
    log = transcf.read_interactions(halves[1])
    expected.partial_fit(log)
    found = answer("partial-fit", old, halves[1], "--out", new)
    larger = transcf.load(new)
    assert larger.recommend().equals(expected.recommend())
    assert larger.additions_ == found["additions"] == 1
    assert found["events"] == len(log)
    assert found["new_interactions"] == len(larger.seen_.indices) - np.sum(
        transcf.load(old).seen_.counts
    )
    assert found["new_users"] == int(larger.learned_.known.active.sum()) - int(
        transcf.load(old).learned_.known.active.sum()
    )
    assert len(larger.users_) >= users
    assert "was added" in found["fitted_on"]
    assert tensors(old) == before
    assert "was fitted on all events" in refusal("evaluate", new)
    again = answer("partial-fit", new, halves[1], "--overwrite")
    assert (again["additions"], again["new_interactions"]) == (2, 0)


def test_models_that_cannot_add_say_what_can(
    answer: Answer, refusal: Answer, halves: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    answer("fit", halves[0], "--model", "ease", "--out", folder)
    sentence = refusal("partial-fit", folder, halves[1], "--overwrite")
    assert "EASE cannot add events" in sentence
    assert f"`transcf refit {folder}`" in sentence
    assert "--out DIR, or --overwrite" in refusal("partial-fit", folder, halves[1])


def test_reading_options_are_those_of_fit(answer: Answer, tmp_path: Path, log_file: Path) -> None:
    folder, plain = tmp_path / "model", tmp_path / "plain.txt"
    answer("fit", log_file, "--model", "eals", *SMALL, "--out", folder)
    pairs = [line.split(",")[:2] for line in log_file.read_text().splitlines()[1:400]]
    plain.write_text("\n".join("::".join(pair) for pair in pairs))
    reading = ("--read", "header=no", "--read", "separator=::")
    found = answer("refit", folder, plain, *reading, "--out", tmp_path / "renewed")
    assert found["interactions"] == len({tuple(pair) for pair in pairs})
    assert found["reading"] == {"header": False, "separator": "::"}
    added = answer("partial-fit", folder, plain, *reading, "--overwrite")
    assert added["new_interactions"] == 0
    assert json.dumps(added)


def test_a_model_goes_to_the_working_folder(
    answer: Answer, log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()

    def run(*words: object) -> Any:
        monkeypatch.chdir(shop)  # a replaced folder is another one
        return answer(*words)

    made = run("fit", log_file, "--model", "popularity", "--out", ".")
    assert run("refit", ".", log_file, "--overwrite")["model"] == made["model"] == "popularity"
    short = ("--models", "ease", "--minutes", 0.05, "--out", ".", "--overwrite")
    found = run("auto", log_file, *short)
    assert json.loads((tmp_path / "shop.report.json").read_text()) == found
