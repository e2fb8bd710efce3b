"""Tables, evaluations and tuning with the workers of a real Ray: what one process finds."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.processes import processes_called
from typer.testing import CliRunner, Result

from transcf import Split, Tuning, compare, create, leave_one_out, synthesize, tune
from transcf.cli.app import app
from transcf.data.synthetic import write_csv
from transcf.distributed import Cluster, training
from transcf.distributed.cluster import connected
from transcf.errors import MissingExtraError, ParameterError, UnsupportedError
from transcf.experiments.experiment import Candidate, Experiment, compare_models
from transcf.experiments.results import Comparison
from transcf.experiments.run import EvalConfig
from transcf.experiments.store import Store
from transcf.experiments.workers import shared_work
from transcf.models.training import FitOptions

ray = pytest.importorskip("ray", reason="needs the extra cluster")

LOG = synthesize(users=150, items=60, interactions=2500, seed=3)
SHORT = {"dim": 4, "epochs": 8, "recency": 0.0}
TWO = Cluster(workers=2, threads=1)


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_one_out(LOG)


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(LOG, tmp_path_factory.mktemp("log") / "events.csv")


def check_same(found: Comparison, alone: Comparison) -> None:
    """Compare all figures of all users, and what was chosen."""
    assert [run.name for run in found.runs] == [run.name for run in alone.runs]
    assert not found.failures
    for run, expected in zip(found.runs, alone.runs, strict=True):
        assert run.chosen == expected.chosen
        assert len(run.evaluations) == len(expected.evaluations)
        for one, other in zip(run.evaluations, expected.evaluations, strict=True):
            assert one.per_user.equals(other.per_user)
    assert found.tests.equals(alone.tests)


def wait_for(is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_there():
        assert time.monotonic() < deadline, "nothing has come of it"
        time.sleep(0.02)


@pytest.mark.usefixtures("session")
def test_workers_run_all_cells_of_a_table_by_themselves(split: Split, tmp_path: Path) -> None:
    candidates = [
        Candidate.of(("bpr", SHORT)),
        Candidate.of("ease").within({"trials": 3, "sampler": "grid"}),
        Candidate.of("popularity"),
    ]
    store = Store(tmp_path / "runs")
    experiment = Experiment(split, EvalConfig("leave-last-out"), (0, 1), store=store)
    work = partial(compare_models, "log", candidates, experiment, "NDCG@10")
    with shared_work(work, store, cluster=TWO):
        cells = 2 + (3 + 1) + 1  # seeds; trials, and the best one judged; no seed
        wait_for(lambda: len(store.all_keys()) == cells)
    found = compare_models("log", candidates, experiment, "NDCG@10")
    assert sum(run.stored for run in found.runs) == cells, "this process has run none"
    alone = replace(experiment, store=None)
    check_same(found, compare_models("log", candidates, alone, "NDCG@10"))


@pytest.mark.usefixtures("session")
def test_a_killed_worker_loses_no_run(split: Split, tmp_path: Path) -> None:
    candidates = [Candidate.of(("bpr", {**SHORT, "epochs": 150, "patience": None}))]
    store = Store(tmp_path / "runs")
    experiment = Experiment(split, EvalConfig("leave-last-out"), range(4), store=store)
    work = partial(compare_models, "log", candidates, experiment, "NDCG@10")
    with shared_work(work, store, cluster=Cluster(workers=1, threads=1)):
        wait_for(lambda: bool(list(store.folder.glob("claims/*.lock"))))
        (worker,) = processes_called("ray::do")
        os.kill(worker, signal.SIGKILL)
        assert len(store.all_keys()) < 4, "it was at one"
        found = compare_models("log", candidates, experiment, "NDCG@10")
    alone = replace(experiment, store=None)
    check_same(found, compare_models("log", candidates, alone, "NDCG@10"))


@pytest.mark.usefixtures("session")
def test_a_comparison_on_a_cluster_is_that_of_one_process(split: Split, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"models": {"mine": ("bpr", SHORT), "ease": "ease"}, "seeds": 2}
    found = compare(**asked, data=split, store=tmp_path, cluster=TWO)
    check_same(found, compare(**asked, data=split))


def figures(found: Tuning) -> dict[str, Any]:
    return {str(one.setting): (one.state, one.figure, one.curve) for one in found.trials}


@pytest.mark.usefixtures("session")
def test_two_workers_one_of_whom_is_killed_try_the_same(split: Split, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"sampler": "random", "trials": 8, "params": SHORT, "prune": False}
    killed = []

    def kill_one(known: Tuning) -> None:
        running = processes_called("ray::do")  # none, between two trials
        if len(known.trials) >= 2 and running and not killed:
            killed.append(running[0])
            os.kill(running[0], signal.SIGKILL)

    store = tmp_path / "runs"
    found = tune(split, "bpr", **asked, cluster=TWO, on_trial=kill_one, store=store)
    assert killed
    assert figures(found) == figures(tune(split, "bpr", **asked))
    assert len(Store(store).all_keys()) == 8


@pytest.mark.usefixtures("session")
def test_what_a_cluster_has_no_room_for_is_tried_here(split: Split) -> None:
    crowded = Cluster(workers=1, threads=50)
    with pytest.warns(UserWarning, match="room for 0 of 1 workers with 50 threads"):
        found = tune(split, "ease", trials=3, sampler="grid", cluster=crowded)
    assert figures(found) == figures(tune(split, "ease", trials=3, sampler="grid"))


@pytest.fixture
def command(log_file: Path, tmp_path: Path) -> Callable[..., Result]:
    """Run a command on the log."""

    def run(*words: object, store: object = "none") -> Result:
        more = ["--out", "none"] if words[0] == "compare" else []
        line = ["--store", store, words[0], log_file, *more, *words[1:]]
        return CliRunner().invoke(app, [str(word) for word in line])

    return run


@pytest.fixture
def answer(command: Callable[..., Result]) -> Callable[..., Any]:
    """Run a command on the log, and return what it prints."""

    def run(*words: object, store: object = "none") -> Any:
        done = command(*words, "--json", store=store)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return run


BPR = ("--model", "bpr", "--set", "dim=4", "--set", "recency=0")


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize(
    ("line", "names"),
    [
        (("compare", "--models", "ease"), ["best", "tests", "indistinguishable"]),
    ],
)
def test_commands_print_the_same_with_workers(
    answer: Callable[..., Any], line: tuple[object, ...], names: list[str], tmp_path: Path
) -> None:
    alone = answer(*line)
    found = answer(*line, "--workers", 2, store=tmp_path / "runs")
    assert {name: found[name] for name in names} == {name: alone[name] for name in names}


@pytest.mark.usefixtures("session")
def test_one_worker_tries_what_one_process_tries(
    answer: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    line = ("tune", *BPR, "--set", "epochs=8", "--trials", 10, "--storage")
    alone = answer(*line, tmp_path / "alone")
    assert alone["pruned"], "so that a worker is told to give up"

    def trials(found: Any) -> list[dict[str, Any]]:
        return [{**one, "seconds": 0} for one in found["table"]]

    spread = (*line, tmp_path / "spread")
    found = answer(*spread, "--workers", "1@local")
    assert trials(found) == trials(alone)
    assert answer(*spread)["table"] == found["table"], "this process has kept a record"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("compare",), "leave out --store none."),
    ],
)
def test_what_cannot_be_shared_out_is_refused(
    command: Callable[..., Result], words: tuple[object, ...], sentence: str
) -> None:
    refused = command(*words, "--workers", 2)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert sentence in refused.stderr
    assert "--workers 0 is not understood" in command(*words, "--workers", 0).stderr


def test_several_processes_need_a_store_and_ray(
    split: Split, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ParameterError, match="name a folder for it"):
        compare("ease", split, cluster=TWO)
    with pytest.raises(ParameterError, match="jobs=2 and cluster contradict"):
        tune(split, "ease", jobs=2, cluster=TWO)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"transcf\[cluster\]"):
        compare("ease", split, cluster=TWO, store=tmp_path)
    with pytest.raises(MissingExtraError, match=r"transcf\[cluster\]"):
        tune(split, "ease", cluster=TWO, sampler="grid")


@pytest.mark.usefixtures("session")
def test_a_process_has_one_cluster() -> None:
    known = ray.get_runtime_context().gcs_address
    for address in (None, "auto", known):
        with connected(address, 1):
            pass
    assert ray.is_initialized(), "whose it is not does not end it"
    host, _, port = known.rpartition(":")
    for other in (f"{host}:{int(port) + 1}", f"10.1.2.3:{port}", "ray://elsewhere:10001"):
        refused = pytest.raises(UnsupportedError, match=f"at {known}, not to {other}")
        with refused, connected(other, 1):
            pass


def test_workers_without_users_are_not_started_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    class NotHereError(Exception):
        pass

    def refuse(address: str | None, processors: int) -> None:
        raise NotHereError(processors)

    monkeypatch.setattr(training, "connected", refuse)
    options = FitOptions(cluster=Cluster(workers=9, threads=1))
    with (
        pytest.warns(UserWarning, match=r"^Only 4 workers of the 9 .* form 4 groups"),
        pytest.raises(NotHereError, match="4"),
    ):
        create("transcf-mixture", dim=4, epochs=1).fit(LOG, options=options)
