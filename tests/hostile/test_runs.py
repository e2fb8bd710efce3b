"""Stored runs that were damaged: the other runs are listed, and nothing blocks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.hostile._corruption import GONE
from tests.hostile._outcomes import checked_sentence, outcome_of
from typer.testing import CliRunner, Result

from transcf import leave_one_out, synthesize
from transcf.cli.app import app
from transcf.experiments.experiment import Candidate, Experiment
from transcf.experiments.run import EvalConfig
from transcf.experiments.store import Store


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store with two runs, and the key of the one with epochs."""
    store = Store(tmp_path_factory.mktemp("kept"))
    experiment = Experiment(
        leave_one_out(synthesize(30, 15, 200)), EvalConfig("leave-last-out"), store=store
    )
    experiment.run(Candidate("bpr", "bpr", {"epochs": 1, "dim": 2}))
    (key,) = store.all_keys()
    experiment.run(Candidate("popularity", "popularity"))
    return store.folder, key


@pytest.fixture
def store(kept: tuple[Path, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept[0], tmp_path / "runs"))


def command(store: Path, *words: object) -> Result:
    """Run `transcf runs`; anything but an answer or one sentence fails."""
    line = ["--store", str(store), "runs", *map(str, words)]
    done = outcome_of("runs", lambda: CliRunner().invoke(app, line)).value
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code in (0, 2), done.output
    if done.stderr:
        checked_sentence(done.stderr)
    return done


def check_commands(store: Path, key: str) -> None:
    """List and show: the run that was not touched is there, and at most one line on the other."""
    listed = command(store, "list", "--json")
    assert listed.exit_code == 0
    models = [entry["model"] for entry in json.loads(listed.stdout)]
    assert "popularity" in models or "bpr" in models
    assert len(models) == 2 or "1 stored run is damaged" in listed.stderr
    assert command(store, "list").exit_code == 0
    for words in ((), ("--json",)):
        shown = command(store, "show", key, *words)
        assert shown.exit_code == (0 if len(models) == 2 else 2)


def _replaced(path: Path, make: Callable[[Path], object]) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)


#: What stands in the place of a file.
ODD: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path),
    "bytes": lambda path: path.write_bytes(b"\xff\xfe"),
    "nothing": lambda path: None,
}


@pytest.mark.parametrize("name", ["run.json", "users.parquet", ""])
@pytest.mark.parametrize("odd", ODD)
def test_other_things_in_the_place_of_files(
    odd: str, name: str, kept: tuple[Path, str], store: Path
) -> None:
    key = kept[1]
    _replaced(store / key[:2] / key / name, ODD[odd])
    if not (odd == "nothing" and not name):
        check_commands(store, key)
        assert command(store, "rm", key, "--yes").exit_code == 0
    assert [entry["model"] for entry in json.loads(
        command(store, "list", "--json").stdout)] == ["popularity"]  # fmt: skip


def test_many_damaged_runs_are_one_line(kept: tuple[Path, str], store: Path) -> None:
    for head in store.glob("*/*/run.json"):
        head.write_bytes(b"[" * 10_000 + b"]" * 10_000)
    listed = command(store, "list")
    assert listed.exit_code == 0
    assert "2 stored runs are damaged" in listed.stderr
    assert GONE not in listed.stdout
