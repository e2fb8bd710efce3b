"""Tuning: the grid's best is that of brute force; records, kills, pruning, processes, files."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest

from transcf import Split, Tuning, Validation, create, leave_one_out, synthesize, tune
from transcf.errors import ParameterError, TransCFError
from transcf.experiments.tuning.bench import Bench
from transcf.experiments.tuning.charts import importance, write_charts
from transcf.experiments.tuning.partners import (
    LostPartnerError,
    Message,
    NoPartnerError,
    Partner,
)
from transcf.models.bpr import BPR
from transcf.models.itemknn import ItemKNN
from transcf.tuning.config import Config

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
    judge = Validation.of(split, "strict", metric="H@5")
    untimed = {"recency": 0.0, "history_recency": None, "trend": 0.0, "half_life": None}
    figures = {
        (n, s): judge(
            ItemKNN(n_neighbors=n, shrinkage=s, **untimed).fit(split.train, split.validation)
        )
        for n in values[0]
        for s in values[1]
    }
    found = tune(split, "itemknn", metric="H@5", protocol="strict", sampler="grid", params=untimed)
    assert len(found.trials) == 36 + ((100, 20.0) not in figures)
    assert found.best.figure == max(figures.values())
    best = create("itemknn", **found.best_params)
    assert judge(best.fit(split.train)) == found.best.figure
    assert found.curve()[-1] == found.best.figure
    table = found.table()
    assert table["H@5"].max() == found.best.figure
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
            split, "bpr", params=SHORT, metric="H@10", storage=searched.storage,
            study=searched.study,
        )  # fmt: skip


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_two_at_one_record_try_different_things(split: Split, tmp_path: Path, sampler: str) -> None:
    short = {**SHORT, "epochs": 2}

    def run(trials: int, on_trial: Any = None) -> Tuning:
        return tune(
            split, "bpr", trials=trials, params=short, sampler=sampler, on_trial=on_trial,
            storage=tmp_path / "trials.sqlite",
        )  # fmt: skip

    inner: list[Tuning] = []

    def somebody_else(known: Tuning) -> None:
        if not inner and not known.trials:
            inner.append(run(3))  # while the outer one is about to try the defaults

    outer = run(6, somebody_else)
    alone = tune(split, "bpr", trials=6, params=short, sampler=sampler)
    assert outer.trials[:3] == tuple(inner[0].trials)
    settings = [one.setting for one in outer.trials]
    assert len({str(one) for one in settings}) == 6
    assert {} not in settings[:3], "the defaults are left to the first"
    assert settings[3] == {}
    assert settings[:3] != [one.setting for one in alone.trials[1:4]]
    assert not list(tmp_path.glob("*.lock"))


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


class Leaving:
    """Others who run trials: they are lost in the second one, and gone before the fifth."""

    def __init__(self, attempts: int) -> None:
        self.attempts, self.asked = attempts, 0

    @contextmanager
    def trying(self, bench: Bench) -> Iterator[list[Partner]]:
        self.bench = bench
        yield [self]

    def ask(self, message: Any) -> Message:
        self.asked += 1
        if self.asked == 2:
            raise LostPartnerError("its worker was lost.")
        if self.asked == 5:
            raise NoPartnerError
        tried = self.bench.run(message)
        return asdict(tried) | {"curve": list(tried.curve.items())}

    def close(self) -> None:
        raise AssertionError("there is nothing to end")


def test_what_others_leave_is_tried_here(split: Split) -> None:
    asked: dict[str, Any] = {"trials": 6, "params": SHORT, "sampler": "random", "prune": False}
    alone, again, once = tune(split, "bpr", **asked), Leaving(attempts=2), Leaving(attempts=1)
    found = tune(split, "bpr", **asked, cluster=again)
    assert [(one.setting, one.figure) for one in found.trials] == [
        (one.setting, one.figure) for one in alone.trials
    ]
    assert again.asked == 5
    lost = tune(split, "bpr", **asked, cluster=once).trials[1]
    assert (lost.setting, lost.state) == (alone.trials[1].setting, "failed")
    assert lost.reason == "its worker was lost."


class Busy(Leaving):
    """Somebody who is at a trial for long, while Ctrl-C is pressed."""

    def __init__(self) -> None:
        super().__init__(attempts=1)
        self.is_closed = threading.Event()

    def ask(self, message: Any) -> Message:
        _thread.interrupt_main()
        assert self.is_closed.wait(timeout=20), "nobody has ended it"
        raise LostPartnerError("its worker was lost.")

    def close(self) -> None:
        self.is_closed.set()


def test_an_interruption_ends_others(split: Split) -> None:
    busy = Busy()
    found = tune(split, "bpr", params=SHORT, sampler="random", cluster=busy)
    assert busy.is_closed.is_set()
    assert found.is_interrupted
    assert found.trials == ()


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


def test_charts_are_drawn_and_shares_add_up(searched: Tuning, tmp_path: Path) -> None:
    written = write_charts(searched, tmp_path)
    assert [path.name for path in written] == ["history.svg", "importance.svg"]
    history, bars = (set(ElementTree.parse(path).getroot().itertext()) for path in written)
    assert {"trial", "pruned, best epoch so far", "best so far"} <= history
    shares = importance(searched)
    assert shares is not None
    assert set(shares) <= bars
    assert sum(shares.values()) == pytest.approx(1)
    assert {"learning_rate", "regularization"} <= set(shares) <= set(searched.space)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "brp"}, "There is no model 'brp'"),
        ({"metric": "X@10"}, "'X@10'"),
        ({"jobs": 0}, "jobs=0 is not allowed"),
        ({"minutes": -1}, "minutes=-1 is not allowed"),
        ({"trials": 0}, "trials=0 is not allowed"),
        ({"sampler": "cmaes"}, "no sampler 'cmaes'"),
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


def test_postgres_gives_everybody_another_seat(database: str) -> None:
    from transcf.experiments.tuning.record import Record

    first, second = (Record(database, "seats", {}) for _ in range(2))
    with first.seat() as one, second.seat() as other:
        assert (one, other) == (0, 1)
    with second.seat() as again:
        assert again == 0
