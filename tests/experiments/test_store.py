"""The store of runs: what a key depends on, what is not run twice, kills, claims and damage."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from transcf.data.interactions import Interactions
from transcf.data.split import Split, draw_candidates
from transcf.data.splitters import leave_one_out
from transcf.data.synthetic import synthesize
from transcf.errors import DataError, ParameterError
from transcf.evaluation import Validation
from transcf.experiments.experiment import Candidate, Experiment, compare
from transcf.experiments.results import Comparison
from transcf.experiments.run import EvalConfig, RunKey, fit_and_validate
from transcf.experiments.store import RunLockedError, Store, wait_for_others
from transcf.experiments.study import Study, run_study
from transcf.models.base import Recommender
from transcf.models.bpr import BPR
from transcf.models.ease import EASE

CHOICES = [{"regularization": value} for value in (1.0, 30.0, 1000.0)]


@pytest.fixture(scope="module")
def log() -> Interactions:
    return synthesize(users=100, items=40, interactions=1500, seed=1)


@pytest.fixture(scope="module")
def split(log: Interactions) -> Split:
    return leave_one_out(log)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Name every fit that is really run."""
    counted: list[str] = []
    fit = Recommender._fit

    def counting(model: Recommender[Any], *words: Any, **more: Any) -> Recommender[Any]:
        counted.append(model.name)
        return fit(model, *words, **more)

    monkeypatch.setattr(Recommender, "_fit", counting)
    return counted


def figures(found: Comparison) -> str:
    """All that a table says, but for clocks and where it comes from."""
    content = found.to_dict()
    for entry in content["models"]:
        for part in (entry, *entry["trials"]):
            for name in [name for name in part if name.endswith(("seconds", "minutes", "stored"))]:
                del part[name]
    return json.dumps(content)


def test_a_key_changes_with_everything_that_a_result_depends_on(
    log: Interactions, split: Split
) -> None:
    sampled = draw_candidates(split, n=20)
    times, users = split.train.timestamps, split.train.users
    assert times is not None
    other_times = replace(split.train, timestamps=times + 1)
    rated = replace(split.train, ratings=np.ones(len(split.train), np.float32))
    renamed = replace(split.train, users=type(users)(users.series + "+"))
    trials = {
        RunKey.trial(model, train, validation).digest
        for model, train, validation in [
            (EASE(), split.train, Validation.of(split)),
            (EASE(regularization=7.0), split.train, Validation.of(split)),
            (BPR(), split.train, Validation.of(split)),
            (BPR(random_state=1), split.train, Validation.of(split)),
            (EASE(), split.train, Validation.of(split, k=(5,))),
            (EASE(), split.train, Validation.of(split, ties="optimistic")),
            (EASE(), split.train, Validation.of(sampled, "paper")),
            (EASE(), other_times, Validation.of(split)),
            (EASE(), rated, Validation.of(split)),
            (EASE(), renamed, Validation.of(split)),
        ]
    }
    assert len(trials) == 10
    fewer = replace(split, test=split.test.select(np.arange(len(split.test)) > 0))
    judged = [
        RunKey.evaluated(EASE(), one, replace(rules, with_validation=validated))
        for one, rules, validated in [
            (split, EvalConfig("leave-last-out"), True),
            (split, EvalConfig("leave-last-out"), False),
            (split, EvalConfig("leave-last-out-no-refit"), True),
            (split, EvalConfig("leave-last-out", ties="realistic"), True),
            (split, EvalConfig("leave-last-out", subset="validation"), True),
            (split, EvalConfig("leave-last-out", k=(10,)), True),
            (split, EvalConfig("leave-last-out", beyond=True), True),
            (sampled, EvalConfig("leave-last-out"), True),
            (draw_candidates(split, n=20, seed=1), EvalConfig("leave-last-out"), True),
            (fewer, EvalConfig("leave-last-out"), True),
            (
                leave_one_out(synthesize(users=100, items=40, interactions=1500, seed=2)),
                EvalConfig("leave-last-out"),
                True,
            ),
        ]
    ]
    first = judged[0]
    more = [replace(first, version="0"), replace(first, generation=0), replace(first, kind="trial")]
    keys = {one.digest for one in [*judged, *more]}
    assert len(keys) == len(judged) + len(more)
    assert not keys & trials
    # The same events in another order, from another file, are the same data.
    again = leave_one_out(synthesize(users=100, items=40, interactions=1500, seed=1))
    assert RunKey.evaluated(EASE(), again, EvalConfig("leave-last-out")).digest == first.digest
    assert RunKey.trial(EASE(), fewer.train, Validation.of(fewer)).digest in trials


@pytest.mark.parametrize("protocol", ["leave-last-out", "paper", "paper-as-published"])
def test_what_was_run_is_not_run_again_and_gives_the_same_table(
    protocol: str, split: Split, store: Store, fits: list[str]
) -> None:
    sampled = draw_candidates(split, n=20)
    models = [("bpr", {"dim": 4, "epochs": 2}), "ease"]
    options: dict[str, Any] = {"protocol": protocol, "seeds": 2, "budget": 2, "beyond": True}
    options["trivial_baselines"] = False
    first = compare(models, sampled, **options, store=store.folder)
    fresh, fitted = compare(models, sampled, **options), len(fits)
    again = compare(models, sampled, **options, store=store.folder)
    assert len(fits) == fitted
    assert figures(first) == figures(again) == figures(fresh)
    assert sum(run.stored for run in first.runs) == 0
    cells = sum(run.cells for run in again.runs)
    assert sum(run.stored for run in again.runs) == cells
    assert f"From the store of runs: {cells} of {cells} fits." in str(again)
    more = compare(models, sampled, **{**options, "seeds": 3}, store=store.folder)
    assert [run.cells - run.stored for run in more.runs if run.name in ("bpr", "ease")] == [1, 0]


def test_trials_are_shared_by_tables_that_choose_in_the_same_way(
    split: Split, store: Store, fits: list[str]
) -> None:
    candidate = Candidate("ease", "ease", choices=CHOICES)
    for protocol in ("leave-last-out", "leave-last-out-no-refit"):
        experiment = Experiment(split, EvalConfig(protocol), store=store)
        done = experiment.run(candidate)
    assert [found.stored for found in done.trials] == [True] * 3
    assert len(fits) == 3 + 1 + 1  # trials, the refit of the first, the fit of the second


def test_a_result_without_validation_figure_is_another_but_one_with_it_will_do(
    split: Split, store: Store, fits: list[str]
) -> None:
    blind = Experiment(split, EvalConfig("leave-last-out", with_validation=False), store=store)
    candidate = Candidate("ease", "ease")
    assert blind.run(candidate).validation is None
    whole = Experiment(split, EvalConfig("leave-last-out"), store=store).run(candidate)
    assert whole.validation is not None
    before = len(fits)
    assert blind.run(candidate).validation == whole.validation
    assert len(fits) == before


def test_a_setting_that_diverges_is_kept_with_its_reason(
    split: Split, store: Store, fits: list[str]
) -> None:
    params = {"epochs": 3, "dim": 4, "norm_constraint": "none"}
    choices = [{"learning_rate": 1e30}, {"learning_rate": 0.05}]
    candidate = Candidate("transcf", "transcf", params, choices)
    experiment = Experiment(split, EvalConfig("leave-last-out"), store=store)
    first, fitted = experiment.run(candidate), len(fits)
    again = experiment.run(candidate)
    assert len(fits) == fitted
    assert again.untrained == first.untrained
    assert "diverged in epoch 1" in again.untrained[0]
    assert again.stored == again.cells == 3


@pytest.mark.parametrize("damage", ["cut", "altered", "users", "gone", "format"])
def test_a_damaged_run_is_told_and_run_again(
    damage: str, split: Split, store: Store, fits: list[str]
) -> None:
    experiment = Experiment(split, EvalConfig("leave-last-out"), store=store)
    first = experiment.run(Candidate("ease", "ease"))
    (key,) = store.all_keys()
    place = store.folder / key[:2] / key
    head = place / "run.json"
    match damage:
        case "cut":
            head.write_bytes(head.read_bytes()[:100])
        case "altered":
            head.write_text(head.read_text().replace('"best_epoch": null', '"best_epoch": 3'))
        case "users":
            (place / "users.parquet").write_bytes(b"no table")
        case "gone":
            (place / "users.parquet").unlink()
        case "format":
            head.write_text(head.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(DataError, match=f"stored run .*{key} is damaged .*runs rm {key[:12]}"):
        store.read(key)
    before = len(fits)
    with pytest.warns(UserWarning, match=r"is damaged .* It is run again\."):
        again = experiment.run(Candidate("ease", "ease"))
    assert len(fits) > before
    assert again.evaluations[0].per_user.equals(first.evaluations[0].per_user)
    assert store.read(key).result.stored


@pytest.mark.parametrize("refuses", ["claims", "users.parquet", "run.json"])
def test_a_full_disk_does_not_lose_a_result(
    refuses: str, split: Split, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    # What polars 2 raises if the end of a Parquet file does not fit on the disk.
    footer = pl.exceptions.ComputeError("parquet: Invalid thrift: transport error")

    def refusing(method: Any, error: Exception) -> Any:
        def write(*words: Any, **more: Any) -> Any:
            if Path(next(word for word in words if isinstance(word, Path))).name == refuses:
                raise error
            return method(*words, **more)

        return write

    monkeypatch.setattr(Path, "mkdir", refusing(Path.mkdir, full))
    monkeypatch.setattr(Path, "write_text", refusing(Path.write_text, full))
    monkeypatch.setattr(pl.DataFrame, "write_parquet", refusing(pl.DataFrame.write_parquet, footer))
    experiment = Experiment(split, EvalConfig("leave-last-out"), seeds=(0, 1), store=store)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        done = experiment.run(Candidate("random", "random"))
    assert len(done.evaluations) == 2
    messages = {str(warning.message) for warning in caught}
    if refuses == "claims":
        assert len(store.all_keys()) == 2
        return
    assert len(messages) == 1
    assert "disk is full" in messages.pop()
    assert not store.all_keys()


def test_somebody_elses_cell_is_left_alone_until_it_is_there(split: Split, store: Store) -> None:
    validation = Validation.of(split)
    models = [EASE(**choice) for choice in CHOICES]
    experiment = Experiment(split, EvalConfig("leave-last-out", k=(10,)), store=store)
    candidate = Candidate("ease", "ease", choices=CHOICES)
    with store.lock(RunKey.trial(models[0], split.train, validation)):
        with pytest.raises(RunLockedError):
            fit_and_validate(models[0], split.train, validation, store)
        with pytest.raises(RunLockedError):
            experiment.run(candidate)
        assert len(store.all_keys()) == 2, "the other trials"
        waiting = ThreadPoolExecutor(1).submit(wait_for_others, lambda: experiment.run(candidate))
        time.sleep(0.5)
        assert not waiting.done()
    done = waiting.result()
    expected = EASE(**CHOICES[0]).fit(split.train, validation)
    assert done.trials[0].validation == validation(expected)
    assert [trial.stored for trial in done.trials] == [False, True, True]
    assert not any((store.folder / "claims").iterdir())


PLAN = {
    "title": "small",
    "protocol": "leave-last-out",
    "seeds": 3,
    "metrics": ["NDCG@10"],
    "models": [
        {"name": "popularity"},
        {"name": "bpr", "params": {"dim": 4, "epochs": 2}, "grid": {"learning_rate": [0.02, 0.1]}},
        {"name": "ease", "grid": {"regularization": [5.0, 50.0, 500.0]}},
    ],
}
#: Runs the study in a process of its own, notes every fit, and takes its time over each.
SCRIPT = """
import json, sys, time
from transcf.experiments.study import Study, run_study
from transcf.experiments.store import Store

write = Store.write

def slowly(store, key, result, about):
    time.sleep(float(sys.argv[3]))
    with open(sys.argv[4], "a") as notes:
        notes.write(key.digest + "\\n")
    write(store, key, result, about)

Store.write = slowly
run_study(Study.from_dict(json.loads(sys.argv[1])), store=Store(sys.argv[2]))
"""


@pytest.fixture
def plan(log: Interactions, tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "events.parquet"
    log.to_frame().write_parquet(path)
    return {**PLAN, "datasets": [{"name": str(path)}]}


def start(plan: dict[str, Any], store: Store, slow: float, notes: Path) -> subprocess.Popen[bytes]:
    words = [json.dumps(plan), str(store.folder), str(slow), str(notes)]
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *words], env=dict(os.environ))


def wait_for(condition: Iterator[bool]) -> None:
    deadline = time.monotonic() + 120
    while not next(condition):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_kill_loses_the_cell_under_way_and_two_processes_share_the_rest(
    plan: dict[str, Any], store: Store, tmp_path: Path, fits: list[str]
) -> None:
    notes = tmp_path / "notes"
    victim = start(plan, store, 0.3, notes)
    wait_for(iter(lambda: len(store.all_keys()) >= 2, None))
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    done = len(store.all_keys())
    both = [start(plan, store, 0.3, notes) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    keys = store.all_keys()
    assert len(keys) == 1 + 2 + 3 + 3 + 1
    lines = notes.read_text().split()
    # What was finished when it was killed may lack its entry: that cell alone was run twice.
    assert len(keys) <= len(lines) <= len(keys) + 1
    assert done < len(keys)
    (found,) = run_study(Study.from_dict(plan), store=store)
    assert fits == []
    (fresh,) = run_study(Study.from_dict(plan))
    assert figures(found) == figures(fresh)
    assert {store.read(key).result.stored for key in keys} == {True}


def test_keys_are_found_by_their_beginning_and_removed(split: Split, store: Store) -> None:
    experiment = Experiment(split, EvalConfig("leave-last-out"), store=store)
    experiment.run(Candidate("ease", "ease", choices=CHOICES))
    keys = store.all_keys()
    assert store.one_key(keys[0][:20]) == keys[0]
    for prefix in ("", "xyz"):
        with pytest.raises(ParameterError, match="No run begins with"):
            store.one_key(prefix)
    store.remove(keys[0])
    assert store.all_keys() == keys[1:]
    with pytest.raises(ParameterError, match="is a file, and stored runs need a folder"):
        Store(Path(__file__))


def test_the_index_follows_the_entries(split: Split, store: Store) -> None:
    experiment = Experiment(split, EvalConfig("leave-last-out"), store=store, dataset="mine")
    experiment.run(Candidate("ease", "ease", choices=CHOICES))
    index = store.folder / "index.jsonl"
    written = index.read_text()
    rows, damaged = store.listed()
    assert (len(rows), damaged) == (4, [])
    assert index.read_text() == written, "all entries are in the index"
    assert {row["kind"] for row in rows} == {"trial", "judged"}
    assert {(row["dataset"], row["model"]) for row in rows} == {("mine", "ease")}
    for content in ("", "[1]\nno JSON\n" + written[:-20]):
        index.write_text(content)
        assert store.listed() == (rows, [])
        assert sorted(index.read_text().splitlines()) == sorted(written.splitlines())
    store.remove(rows[0]["key"])
    head = store.place(rows[1]["key"]) / "run.json"
    head.write_bytes(head.read_bytes()[:50])
    left, damaged = store.listed()
    assert left == rows[2:]
    assert len(damaged) == 1
