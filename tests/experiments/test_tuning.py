"""Tuning: the grid's best is that of brute force; databases, kills, pruning, processes, files."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from transcf import Split, Tuning, Validation, create, leave_one_out, synthesize, tune
from transcf.errors import MissingExtraError, ParameterError, TransCFError
from transcf.experiments.experiment import Candidate
from transcf.experiments.search import Config, Search
from transcf.models.bpr import BPR
from transcf.models.itemknn import ItemKNN

pytest.importorskip("optuna", reason="optuna is not installed")

SHORT = {"dim": 4, "epochs": 10, "recency": 0.0}


@pytest.fixture(scope="module")
def split() -> Split:
    log = synthesize(users=150, items=60, interactions=2500, seed=3)
    return leave_one_out(log)


@pytest.fixture(scope="module")
def folder(split: Split, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(split.save(tmp_path_factory.mktemp("tuning") / "split"))


@pytest.fixture(scope="module")
def searched(split: Split, tmp_path_factory: pytest.TempPathFactory) -> Tuning:
    storage = tmp_path_factory.mktemp("record") / "trials.sqlite"
    return tune(split, "bpr", trials=16, params=SHORT, storage=storage)


def test_the_grid_finds_what_brute_force_finds(split: Split) -> None:
    values = ([20, 50, 100, 200, 400, 1000], [0.0, 3.0, 10.0, 20.0, 50.0, 100.0])
    judge = Validation.of(split, "leave-last-out", metric="HitRate@5")
    untimed = {"recency": 0.0, "history_recency": None, "trend": 0.0, "half_life": None}
    figures = {
        (n, s): judge(
            ItemKNN(n_neighbors=n, shrinkage=s, **untimed).fit(split.train, split.validation)
        )
        for n in values[0]
        for s in values[1]
    }
    found = tune(
        split,
        "itemknn",
        metric="HitRate@5",
        protocol="leave-last-out",
        sampler="grid",
        params=untimed,
    )
    assert len(found.trials) == 36 + 1, "the default shrinkage follows from the data"
    assert found.best.figure == max(figures.values())
    best = create("itemknn", **found.best_params)
    assert judge(best.fit(split.train)) == found.best.figure
    assert found.curve()[-1] == found.best.figure
    table = found.table()
    assert table["HitRate@5"].max() == found.best.figure
    assert table.filter(pl.col("state") == "complete").height == len(found.trials)


def test_trials_are_shown_in_notebooks(searched: Tuning) -> None:
    html = searched._repr_html_()
    assert html.count("<tr>") == len(searched.trials) + 1
    assert f"{searched.best.figure:.4f}" in html.split("<tr>")[2]


def test_pruned_trials_stop_early_and_are_never_the_best(searched: Tuning) -> None:
    pruned = [one for one in searched.trials if one.state == "pruned"]
    assert pruned
    assert all(3 <= len(one.curve) < SHORT["epochs"] for one in pruned)
    complete = [one for one in searched.trials if one.state == "complete"]
    assert all(len(one.curve) == SHORT["epochs"] for one in complete)
    assert searched.best.figure == max(one.figure for one in complete)


def test_a_record_is_gone_on_with(split: Split, searched: Tuning) -> None:
    again = tune(split, "bpr", trials=16, params=SHORT, storage=searched.storage)
    assert again.trials == searched.trials, "nothing is run again"
    more = tune(split, "bpr", trials=18, params=SHORT, storage=searched.storage)
    assert more.trials[:16] == searched.trials
    assert len({str(one.setting) for one in more.trials}) == 18
    whole = tune(split, "bpr", trials=18, params=SHORT)
    assert [one.setting for one in whole.trials] == [one.setting for one in more.trials]
    assert [one.figure for one in whole.trials] == [one.figure for one in more.trials]


def test_a_study_of_something_else_is_refused(split: Split, searched: Tuning) -> None:
    with pytest.raises(ParameterError, match=r"another metric.*: name another study"):
        tune(
            split, "bpr", params=SHORT, metric="HitRate@10", storage=searched.storage,
            study=searched.study,
        )  # fmt: skip


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_two_searches_of_one_study_try_different_settings(
    split: Split, tmp_path: Path, sampler: str
) -> None:
    short = {**SHORT, "epochs": 2}

    def run(trials: int, on_trial: Any = None) -> Tuning:
        return tune(
            split, "bpr", trials=trials, params=short, sampler=sampler, on_trial=on_trial,
            storage=tmp_path / "trials.sqlite",
        )  # fmt: skip

    inner: list[Tuning] = []

    def search_too(known: Tuning) -> None:
        if not inner and len(known.trials) == 1:
            inner.append(run(3))

    outer = run(6, search_too)
    assert outer.trials[:3] == tuple(inner[0].trials)
    settings = [one.setting for one in outer.trials]
    assert len({str(one) for one in settings}) == 6
    assert settings[0] == {}
    if sampler != "tpe":
        alone = tune(split, "bpr", trials=6, params=short, sampler=sampler)
        assert settings == [one.setting for one in alone.trials]


TUNE = """
import sys
from transcf import tune
folder, storage = sys.argv[1:]
tune(folder, "bpr", trials=8, params={"dim": 4, "epochs": 5}, sampler="random", storage=storage,
     on_trial=lambda known: print(len(known.trials), flush=True))
"""


def test_a_killed_tuning_goes_on_without_trying_anything_twice(folder: str, tmp_path: Path) -> None:
    storage = str(tmp_path / "trials.sqlite")
    words = [sys.executable, "-c", TUNE, folder, storage]
    killed = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    known = next(count for count in map(int, killed.stdout) if count >= 3)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    counts = list(map(int, done.stdout.split()))
    assert known <= counts[0] <= known + 1
    assert counts == list(range(counts[0], 9))
    params = {"dim": 4, "epochs": 5}
    found = tune(folder, "bpr", trials=8, params=params, sampler="random", storage=storage)
    assert len({str(one.setting) for one in found.trials}) == len(found.trials) == 8


def test_what_a_trial_finds_does_not_depend_on_jobs(split: Split) -> None:
    alone = tune(split, "bpr", trials=6, params=SHORT, sampler="random", prune=False)
    beside = tune(split, "bpr", trials=6, params=SHORT, sampler="random", prune=False, jobs=2)
    assert {str(one.setting): one.figure for one in alone.trials} == {
        str(one.setting): one.figure for one in beside.trials
    }


class LostError(Exception):
    """A worker was killed."""


class Workers:
    """A cluster with one worker, which is lost in its second trial."""

    lost: tuple[type[Exception], ...] = (LostError,)

    def __init__(self, size: int = 1) -> None:
        self.size, self.submitted, self.is_closed = size, 0, False

    @contextmanager
    def open_workers(self, work: Any, objective: Any) -> Iterator[Workers]:
        self.objective = objective
        try:
            yield self
        finally:
            self.is_closed = True

    def submit(self, setting: Mapping[str, Any], completed: Any) -> Future[Any]:
        self.submitted += 1
        future: Future[Any] = Future()
        if self.submitted == 2:
            future.set_exception(LostError())
        else:
            future.set_result(self.objective.run(setting, completed))
        return future


def test_a_lost_worker_fails_its_trial_only(split: Split) -> None:
    asked: dict[str, Any] = {"trials": 6, "params": SHORT, "sampler": "random", "prune": False}
    alone, cluster = tune(split, "bpr", **asked), Workers()
    found = tune(split, "bpr", **asked, cluster=cluster)
    assert cluster.submitted == 6
    assert [one.setting for one in found.trials] == [one.setting for one in alone.trials]
    assert [one.state for one in found.trials].count("failed") == 1
    assert found.trials[1].state == "failed"
    assert "killed" in found.trials[1].reason
    assert found.trials[2].figure == alone.trials[2].figure
    empty = Workers(size=0)
    here = tune(split, "bpr", **asked, cluster=empty)
    assert empty.submitted == 0
    assert [one.figure for one in here.trials] == [one.figure for one in alone.trials]


class Busy(Workers):
    """A cluster whose trial does not end before Ctrl-C is pressed."""

    def submit(self, setting: Mapping[str, Any], completed: Any) -> Future[Any]:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        return Future()


def test_an_interruption_ends_workers(split: Split, tmp_path: Path) -> None:
    busy, storage = Busy(), tmp_path / "trials.sqlite"
    asked: dict[str, Any] = {"params": SHORT, "sampler": "random", "storage": storage}
    found = tune(split, "bpr", **asked, cluster=busy)
    assert busy.is_closed
    assert found.is_interrupted
    assert found.trials == ()
    again = tune(split, "bpr", trials=1, **asked)
    assert [one.setting for one in again.trials] == [{}], "its setting was queued again"


def test_a_killed_process_fails_its_trial_only(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    def kill_one(known: Tuning) -> None:
        if len(known.trials) == 1:
            killed.extend(_children())
            os.kill(killed[0], signal.SIGKILL)

    found = tune(
        split, "bpr", trials=6, params={**SHORT, "epochs": 60, "patience": None}, jobs=2,
        sampler="random", prune=False, on_trial=kill_one,
    )  # fmt: skip
    assert len(found.trials) == 6
    assert [one.reason for one in found.trials if one.state == "failed"].count("") == 0
    assert found.count("complete") >= 5


def _children() -> list[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    numbers = [int(number) for path in tasks for number in path.read_text().split()]
    return [
        number
        for number in numbers
        if b"loky.backend.popen" in Path(f"/proc/{number}/cmdline").read_bytes()
    ]


def test_a_setting_whose_process_was_killed_is_tried_again(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transcf.experiments import trials as studies

    monkeypatch.setattr(studies, "GRACE", 1)
    asked: dict[str, Any] = {"sampler": "grid", "storage": str(tmp_path / "trials.sqlite")}
    asked |= {"study": "mine", "params": {"shrinkage": 0.0, "recency": 0.0, "trend": 0.0}}
    tune(split, "itemknn", trials=2, **asked)
    search = Search("itemknn", {"trials": 9, "sampler": "grid"}, fixed=asked["params"], timed=True)
    about = _stored_about(asked["storage"])
    lost = studies.TrialStudy(search, about, asked["storage"], "mine").start()
    assert lost is not None, "and its process ends here, without a word"
    time.sleep(2.5)
    found = tune(split, "itemknn", trials=4, **asked)
    assert found.trials[2].setting == lost[1]
    assert len({str(one.setting) for one in found.trials}) == 4


def _stored_about(storage: str) -> dict[str, Any]:
    import optuna

    study = optuna.load_study(study_name="mine", storage=f"sqlite:///{storage}")
    return dict(study.user_attrs["transcf"])


def test_of_two_equal_proposals_the_later_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transcf.experiments.trials import TrialStudy

    budget = {"trials": 9, "sampler": "grid"}
    first, second = (
        TrialStudy(Search("bpr", budget), {}, str(tmp_path / "t.sqlite"), "mine") for _ in range(2)
    )
    started, look = first.start(), TrialStudy._update
    seen: list[Any] = []

    def look_too_early(self: TrialStudy) -> Any:
        seen.append(look(self))
        if len(seen) > 1:
            return seen[-1]
        self._count = 0  # the first trial is not there yet
        return []

    monkeypatch.setattr(TrialStudy, "_update", look_too_early)
    other = second.start()
    assert started is not None
    assert other is not None
    assert (started[1], len(seen)) == ({}, 2)
    assert other[1] != {}


def test_what_does_not_train_is_noted_and_does_not_stop_the_rest(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = BPR.fit

    def diverge(self: BPR, *words: Any) -> BPR:
        if self.settings.learning_rate > 0.03:
            raise TransCFError("BPR diverged in epoch 3.")
        return fit(self, *words)

    monkeypatch.setattr(BPR, "fit", diverge)
    found = tune(split, "bpr", trials=8, params=SHORT, sampler="random")
    assert {one.reason for one in found.trials if one.state == "failed"} == {
        "BPR diverged in epoch 3."
    }
    assert found.count("complete") + found.count("failed") + found.count("pruned") == 8
    assert found.best_params["learning_rate"] <= 0.03
    with pytest.raises(TransCFError, match="diverged in epoch 3"):
        _ = tune(split, "bpr", trials=1, params=SHORT).best


@pytest.mark.parametrize("has_workers", [False, True])
def test_a_missing_extra_ends_the_search(
    has_workers: bool, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(self: BPR, *words: Any) -> BPR:
        raise MissingExtraError("BPR", "torch")

    monkeypatch.setattr(BPR, "fit", fit)
    cluster = Workers() if has_workers else None
    with pytest.raises(MissingExtraError, match=r"transcf\[torch\]"):
        tune(split, "bpr", params=SHORT, cluster=cluster)
    error = pickle.loads(pickle.dumps(MissingExtraError("BPR", "torch")))
    assert "BPR needs an optional part" in str(error)


def test_an_interruption_leaves_what_there_is(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, fits = BPR.fit, []

    def interrupt(self: BPR, *words: Any) -> BPR:
        fits.append(self)
        if len(fits) == 3:
            raise KeyboardInterrupt
        return fit(self, *words)

    monkeypatch.setattr(BPR, "fit", interrupt)
    found = tune(split, "bpr", trials=8, params=SHORT, sampler="random")
    assert found.is_interrupted
    assert len(found.trials) == 2
    assert found.best.figure is not None


def test_old_names_mean_the_new_model(split: Split, tmp_path: Path) -> None:
    old = {"form": "mixture", "rho": 0.5, "epochs": 1, "dim": 4}
    with pytest.warns(FutureWarning, match="TransCFMixture"):
        found = tune(split, "transcf", params=old, trials=1)
    assert found.model == "transcf-mixture"
    assert found.best_params["history_decay"] == 0.5
    with pytest.warns(FutureWarning):
        assert dict(Candidate.of(("transcf-mixture", {"rho": 0.5})).params) == {
            "history_decay": 0.5
        }
    (tmp_path / "old.toml").write_text(Config("transcf", old).to_toml())
    with pytest.warns(FutureWarning):
        config = Config.read(tmp_path / "old.toml")
    assert (config.model, config.params["history_decay"]) == ("transcf-mixture", 0.5)


def test_parameters_may_be_numbers_of_numpy(split: Split) -> None:
    params = {"epochs": 1, "dim": np.int64(4)}
    found = tune(split, "bpr", trials=1, params=params, start={"learning_rate": np.float32(0.5)})
    assert "dim = 4" in found.config().to_toml()
    assert found.usual["learning_rate"] == 0.5


def test_time_is_a_limit(split: Split) -> None:
    found = tune(split, "bpr", params=SHORT, sampler="random", minutes=1e-9)
    assert found.trials == ()


def test_the_best_settings_go_through_a_file(searched: Tuning, tmp_path: Path) -> None:
    path = searched.config().write(tmp_path / "best.toml")
    read = Config.read(path)
    assert (read.model, read.params) == ("bpr", searched.best_params)
    assert read.found["figure"] == searched.best.figure
    odd = Config("ease", {"regularization": 1e-05, "half_life": None, "age_in": "events"})
    assert Config.read(odd.write(tmp_path / "odd.toml")) == odd


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model = 3", "names no model"),
        ("[model]\nname = 'bpr'\nrate = 1", "has 'rate' under"),
        ("[model]\nname = 'bpr'\nparams = 1", "write .model.params"),
        ("[model]\nname = 'bpr'\n[model.params]\ndim = -1", "dim=-1 is not allowed"),
        ("[model]\nname = 'ease'", "has settings of ease, not of bpr"),
        ("[model", "is not a TOML file"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "best.toml").write_text(text)
    with pytest.raises(ParameterError, match=words):
        Config.read(tmp_path / "best.toml", "bpr")


def test_plots_are_those_of_optuna(searched: Tuning, split: Split, tmp_path: Path) -> None:
    written = searched.write_plots(tmp_path)
    assert [path.name for path in written] == ["history.svg", "importance.svg"]
    history, bars = (" ".join(ElementTree.parse(path).getroot().itertext()) for path in written)
    assert "Optimization History" in history
    assert "learning_rate" in bars
    once = tune(split, "bpr", trials=1, params=SHORT)
    assert [path.name for path in once.write_plots(tmp_path / "once")] == ["history.svg"]


def test_tuning_without_its_extra_is_an_error_that_names_it(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"transcf\[tune\]"):
        tune(split, "bpr")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "brp"}, "There is no model 'brp'"),
        ({"metric": "X@10"}, "'X@10'"),
        ({"jobs": 0}, "jobs=0 is not allowed"),
        ({"minutes": -1}, "minutes=-1 is not allowed"),
        ({"trials": 0}, "trials=0 is not allowed"),
        ({"sampler": "cmaes"}, "sampler='cmaes' is not allowed"),
        ({"params": {"dim": 0}}, "dim=0 is not allowed"),
        ({"storage": "oracle://nowhere"}, "does not answer|optional part"),
    ],
)
def test_what_cannot_be_is_refused_before_any_fit(
    split: Split, changes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BPR, "fit", None)
    asked = {"model": "bpr", **changes}
    with pytest.raises(TransCFError, match=words):
        tune(split, asked.pop("model"), **asked)


def test_postgres_keeps_the_record(split: Split, database: str) -> None:
    found = tune(split, "ease", trials=3, sampler="grid", storage=database, study="first")
    again = tune(split, "ease", trials=4, sampler="grid", storage=database, study="first")
    assert again.trials[:3] == found.trials
    assert len(again.trials) == 4
