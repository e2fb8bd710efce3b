"""`transcf reproduce` and `transcf runs`: tables from the store, and what is in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from transcf.data.splitters import leave_one_out
from transcf.data.synthetic import synthesize
from transcf.experiments.study import Study
from transcf.paper import reproduction

Command = Callable[..., Result]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A table of the paper that is run in no time."""
    split = leave_one_out(synthesize(users=80, items=40, interactions=1200, seed=1))
    folder = str(split.save(tmp_path / "split"))
    study = Study.from_dict(
        {
            "title": "small",
            "protocol": "leave-last-out",
            "seeds": 5,
            "metrics": ["HitRate@10"],
            "datasets": [
                {"name": folder, "fit_seconds": 30.0, "published": {"bpr": {"HitRate@10": 0.5}}}
            ],
            "models": [
                {"name": "popularity"},
                {"name": "bpr", "params": {"dim": 4, "epochs": 3}},
                {"name": "ease", "budget": {"trials": 9, "sampler": "grid"}},
            ],
        }
    )
    monkeypatch.setattr(reproduction, "load_study", lambda name: study)
    return study


def test_a_table_is_run_once_and_its_runs_can_be_looked_at(
    command: Command, small: Study, tmp_path: Path
) -> None:
    kept = ("--store", tmp_path / "runs")
    words: tuple[Any, ...] = (*kept, "reproduce", "performance", "--budget", "quick")
    first, again = command(*words), command(*words)
    assert (first.exit_code, again.exit_code) == (0, 0), first.output
    assert "From the store of runs" not in first.stdout
    assert "at most 8 fits, about 4 minutes of processor time" in first.stderr
    assert "From the store of runs: 8 of 8 fits." in again.stdout  # 1, 2 seeds, 4 settings and 1
    assert "Published values and ours" in first.stdout
    content = json.loads(command(*words, "--json").stdout)
    assert content["datasets"][0]["published"] == small.published(small.datasets[0].name)
    assert [entry["tried"] for entry in content["datasets"][0]["models"]] == [1, 1, 4]
    some = json.loads(command(*words, "--models", "ease,bpr", "--json").stdout)["datasets"][0]
    assert some["models"] == content["datasets"][0]["models"][1:]

    listed = json.loads(command(*kept, "runs", "list", "--json").stdout)
    assert sorted(entry["model"] for entry in listed) == ["bpr"] * 2 + ["ease"] * 5 + ["popularity"]
    bpr = json.loads(command(*kept, "runs", "list", "--model", "BPR", "--json").stdout)
    assert [entry["curve"][-1]["epoch"] for entry in bpr] == [3, 3]
    assert {entry["cell"]["settings"]["random_state"] for entry in bpr} == {0, 1}
    key = bpr[0]["key"]
    shown = command(*kept, "runs", "show", key[:10]).stdout
    assert key in shown
    assert "Validation curve" in shown
    assert re.search(rf"validation +│ {bpr[0]['validation']:.4g} ", shown)
    assert "8 stored runs" in command(*kept, "runs", "list").stdout

    assert command(*kept, "runs", "rm", key[:10]).exit_code == 1, "nobody said yes"
    removed = command(*kept, "runs", "rm", "--all-of", "bpr", "--yes")
    assert removed.stdout == "Removed 2 stored runs.\n"
    assert "From the store of runs: 6 of 8 fits." in command(*words).stdout


def test_what_cannot_be_done_is_said(
    refusal: Callable[..., str], small: Study, tmp_path: Path, command: Command
) -> None:
    kept = ("--store", tmp_path / "runs")
    assert "TABLE='accuracy' is not allowed" in refusal("reproduce", "accuracy")
    assert "budget='huge' is not allowed" in refusal("reproduce", "performance", "--budget", "huge")
    assert "--out FOLDER" in refusal("reproduce", "all")
    assert "--out FOLDER" in refusal("reproduce", "all", "--out", tmp_path / "x", "--json")
    assert "no dataset 'netflix'" in refusal("reproduce", "performance", "--datasets", "netflix")
    assert "protocol='lax'" in refusal("reproduce", "performance", "--protocols", "lax")
    assert "No run begins with 'xyz'" in refusal(*kept, "runs", "show", "xyz")
    assert "Name the runs to remove" in refusal(*kept, "runs", "rm")
    assert "There is no model 'oracle'" in refusal(*kept, "runs", "list", "--model", "oracle")
    (tmp_path / "file").write_text("")
    assert "stored runs need a folder" in refusal("--store", tmp_path / "file", "runs", "list")
    assert "--store none" in refusal("--store", "none", "runs", "list")
    assert "0 stored runs" in command(*kept, "runs", "list").stdout


def test_evaluate_takes_what_was_run(command: Command, log_file: Path) -> None:
    words = ("evaluate", log_file, "--model", "ease")
    first, again = command(*words).stdout, command(*words).stdout
    assert "1 of 1 from the store of runs" in again
    assert "from the store" not in command("--store", "none", *words).stdout
    assert first.splitlines()[:12] == again.splitlines()[:12]
