"""`auto`: the search within a time limit, its choice, its report and its end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import transcf
from transcf.cli.app import app
from transcf.errors import DataError, EvaluationError, ModelFileError, ParameterError
from transcf.experiments.auto_report import AutoResult
from transcf.experiments.auto_search import AutoSearch, AutoTrial
from transcf.experiments.store import RunLockedError, Store
from transcf.models import blend
from transcf.models.base import Recommender
from transcf.models.training import TrainingRun

#: Quick models, and enough time for all of them on any machine.
QUICK = ["recent-popularity", "itemknn", "ease"]
MINUTES = 5.0


def grouped(users: int = 120, *, times: bool = True, seed: int = 0) -> pl.DataFrame:
    """A log in which each user takes items of one of four groups, all of them equally popular."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"u{user}", f"i{8 * (user % 4) + item}", int(rng.integers(1000)))
        for user in range(users)
        for item in rng.permutation(8)[:6]
    ]
    log = pl.DataFrame(rows, schema=["user", "item", "timestamp"], orient="row")
    return log if times else log.drop("timestamp")


def trending() -> pl.DataFrame:
    """A log in which the items of the moment are popular, whoever the user is."""
    rng, rows = np.random.default_rng(1), []
    for time in range(2400):
        item = time // 100 + rng.integers(6)
        rows.append((f"u{rng.integers(150)}", f"i{item}", time))
    return pl.DataFrame(rows, schema=["user", "item", "timestamp"], orient="row")


def found(log: Any, **options: Any) -> AutoResult:
    options = {"models": QUICK, "minutes": MINUTES} | options
    return transcf.auto(log, **options)


# -- the choice --------------------------------------------------------------------------------


def test_a_model_of_co_occurrence_wins_where_popularity_says_nothing() -> None:
    result = found(grouped())
    assert result.report["winner"]["model"] in ("itemknn", "ease", "blend")
    (against,) = [one for one in result.report["tests"] if one["model"] == "popularity"]
    assert against["difference"] > 0.2
    assert against["p"] < 0.001
    listed = result.model.recommend("u1", k=2)["item_id"].to_list()
    assert all(8 <= int(item[1:]) < 16 for item in listed)  # the items that it does not have yet


@pytest.mark.parametrize("name", ["slim", "sequential-rules", "ials"])
def test_the_report_of_any_winner_can_be_written(name: str) -> None:
    """Only a blend has weights to list; a fact of SLIM has the same name."""
    result = found(grouped(), models=[name], minutes=0.5)
    assert name in result.to_markdown()
    assert result.report["winner"]["weights"] is None


def test_recent_items_win_where_popularity_moves() -> None:
    result = found(trending(), models=["recent-popularity"])
    assert result.report["winner"]["model"] != "popularity"
    assert result.report["tests"][0]["difference"] > 0
    newest = {f"i{item}" for item in range(18, 29)}
    assert set(result.model.recommend("u1", k=3)["item_id"]) <= newest


def test_other_settings_win_only_by_more_than_one_standard_error() -> None:
    result = found(grouped())
    tried = {one["name"]: one for one in result.report["tried"]}
    winner = result.report["winner"]["name"]
    defaults = [tried[name]["validation"] for name in ("popularity", *QUICK)]
    if winner in ("popularity", *QUICK):
        assert tried[winner]["validation"] == max(defaults)
    else:
        assert tried[winner]["validation"] > max(defaults)


def test_the_test_part_has_the_figures_of_evaluate() -> None:
    log = grouped()
    result = found(log, models=["itemknn"])
    split = transcf.temporal_cut(log)
    chosen = result.report["winner"]
    assert chosen["model"] == "itemknn"
    model = transcf.create("itemknn", **chosen["parameters"]).fit(split.train, split.validation)
    on_validation = transcf.evaluate(model, split, subset="validation").metrics["NDCG@10"]
    assert chosen["validation"] == pytest.approx(on_validation.mean)
    on_test = transcf.evaluate(model.refit(split.before_test), split).metrics["NDCG@10"]
    assert result.report["test"]["mean"] == pytest.approx(on_test.mean)


def test_models_with_epochs_are_tried_with_few_of_them_first() -> None:
    tried = found(grouped(), models=["ials"]).report["tried"]
    shares = {one["share_of_epochs"] for one in tried if one["model"] == "ials"}
    assert shares == {0.25, 1.0}
    small = [one for one in tried if one["share_of_epochs"] < 1]
    assert all(one["parameters"]["epochs"] == 4 for one in small)
    full = [one for one in tried if one["model"] == "ials" and one["share_of_epochs"] == 1]
    assert len(full) < len(small)


@pytest.mark.parametrize(
    "log",
    [
        grouped(20),
        grouped(20, times=False),
        grouped(40).with_columns(rating=pl.Series([1.0, 5.0] * 120)),
    ],
    ids=["20 users", "without times", "with ratings"],
)
def test_any_log_gets_a_model(log: pl.DataFrame) -> None:
    result = found(log, models=["itemknn"])
    assert result.report["data"]["users"] == log["user"].n_unique()
    assert result.report["data"]["times"] == ("timestamp" in log.columns)
    assert result.model.report_["interactions"] == len(log)


def test_users_who_have_all_items_leave_nothing_to_test() -> None:
    rows = [(f"u{n % 9}", f"i{n % 7}", n) for n in range(200)]
    log = pl.DataFrame(rows, schema=["user", "item", "timestamp"], orient="row")
    result = found(log, models=["itemknn"])
    assert result.report["test"] is None
    assert "Not tested: There is no user left" in str(result)
    assert result.model.report_["interactions"] == 63


def test_dense_models_are_left_out_with_many_items() -> None:
    rng = np.random.default_rng(0)
    log = pl.DataFrame(
        {"user": np.arange(200_000) % 50_000, "item": rng.integers(120_000, size=200_000)}
    )
    asked = transcf.auto(log, minutes=1e-6).report["question"]["models"]
    assert "itemknn" in asked
    assert not {"ease", "slim", "recent-popularity"} & set(asked)


# -- time --------------------------------------------------------------------------------------


def test_without_time_there_is_popularity() -> None:
    result = found(grouped(), minutes=1e-6)
    assert [one["name"] for one in result.report["tried"]] == ["popularity"]
    assert result.report["winner"]["model"] == "popularity"
    assert result.report["skipped"]["itemknn"].startswith("no time")
    assert result.report["test"] is not None


def test_no_fit_begins_that_would_end_too_late(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fits take 10 s by a clock that nothing else moves: one trial and two refits at least."""
    real = Recommender._fit

    def slow(self: Any, *args: Any, **more: Any) -> Any:
        real(self, *args, **more)
        taken = 0.0 if self._is_floor or self.name == "blend" else 10.0
        clock[0] += taken
        self.report_["seconds"] = taken
        return self

    monkeypatch.setattr(Recommender, "_fit", slow)
    for limit in (60, 100, 200):
        clock[0] = 0.0
        result = found(grouped(), models=["itemknn", "ease"], minutes=limit / 60)
        assert 35 <= clock[0] <= limit
        assert result.report["winner"]["model"] != "popularity"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only tests move."""
    now = [0.0]
    for module in ("auto", "auto_search", "run"):
        monkeypatch.setattr(f"transcf.experiments.{module}.perf_counter", lambda: now[0])
    for module in ("training", "base"):
        monkeypatch.setattr(f"transcf.models.{module}.clock", lambda: now[0])
    return now


def test_slow_epochs_are_stopped_and_fewer_tried(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch takes 4 s: a fit of 16 and two refits do not fit into 100 s, those of 4 do."""
    real = TrainingRun._record

    def slow(self: Any, *args: Any) -> None:
        clock[0] += 4
        real(self, *args)

    monkeypatch.setattr(TrainingRun, "_record", slow)
    result = found(grouped(), models=["ials"], minutes=100 / 60)
    assert "about 64 s" in result.report["skipped"]["ials"]
    tried = {one["name"]: one for one in result.report["tried"]}
    assert "ials(epochs=4)" in tried
    assert 40 < clock[0] <= 100


def test_a_slow_search_for_weights_is_stopped(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = blend.search_weights

    def slow(metric: Any, n_parts: int) -> Any:
        def late(weights: Any) -> float:
            clock[0] += 3
            return float(metric(weights))

        return real(late, n_parts)

    monkeypatch.setattr(blend, "search_weights", slow)
    result = found(grouped(), minutes=0.5)
    assert clock[0] < 36
    assert result.report["winner"]["model"] != "blend"
    assert any("no time" in why for name, why in result.report["skipped"].items() if "+" in name)


# -- resuming ----------------------------------------------------------------------------------


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that are fitted, one entry per fit."""
    names, real = [], Recommender._fit

    def counted(self: Any, *args: Any, **more: Any) -> Any:
        names.append(repr(self))
        return real(self, *args, **more)

    monkeypatch.setattr(Recommender, "_fit", counted)
    return names


def test_a_second_call_takes_stored_runs(tmp_path: Path, fits: list[str]) -> None:
    options: dict[str, Any] = {"store": tmp_path / "runs", "models": ["itemknn"]}
    first = found(grouped(), **options)
    many = len(fits)
    fits.clear()
    second = found(grouped(), **options)
    assert len(fits) < many
    assert len(set(fits)) <= 3  # the winner, or a blend and its parts
    assert len(fits) <= 5  # on the training part and on all events, but not for the test
    assert second.report["winner"]["name"] == first.report["winner"]["name"]
    assert second.report["test"] == first.report["test"]
    assert all(one["stored"] for one in second.report["tried"])


def test_runs_that_another_process_computes_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They might take longer than the time limit."""

    @contextmanager
    def locked(store: Store, key: object) -> Iterator[None]:
        raise RunLockedError(store.folder)
        yield

    monkeypatch.setattr(Store, "lock", locked)
    result = found(grouped(), store=tmp_path / "runs", models=["itemknn"])
    assert result.report["winner"]["name"] == "itemknn"


def test_a_finished_search_is_read_from_its_folder(tmp_path: Path, fits: list[str]) -> None:
    first = found(grouped(), out=tmp_path / "model", models=["itemknn"])
    fits.clear()
    second = found(grouped(), out=tmp_path / "model", models=["itemknn"])
    assert fits == []
    assert second.report == first.report
    user = "u3"
    assert second.model.recommend(user).equals(first.model.recommend(user))


def test_ctrl_c_keeps_the_best_so_far(tmp_path: Path) -> None:
    def interrupt(seconds: float, text: str) -> None:
        if "trying ease" in text:
            os.kill(os.getpid(), signal.SIGINT)

    options: dict[str, Any] = {"out": tmp_path / "model", "store": tmp_path / "runs"}
    models = ["itemknn", "ease"]
    first = found(grouped(), models=models, on_progress=interrupt, **options)
    assert first.report["interrupted"]
    assert first.report["test"] is None
    assert {one["model"] for one in first.report["tried"]} == {"popularity", "itemknn"}
    saved = transcf.load(tmp_path / "model")
    assert saved.report_["interactions"] == len(grouped())
    assert len(saved.recommend("u1", k=2)) == 2
    second = found(grouped(), models=models, **options)
    assert not second.report["interrupted"]
    stored = {one["name"] for one in second.report["tried"] if one["stored"]}
    assert {"popularity", "itemknn"} <= stored
    assert transcf.load(tmp_path / "model").report_["auto"] == second.report


def test_ctrl_c_keeps_a_blend_of_stored_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has to be blended again, after Ctrl-C was pressed."""

    def blend_wins(search: AutoSearch) -> AutoTrial:
        return next((trial for trial in search.trials if trial.parts), search.trials[0])

    def interrupt(seconds: float, text: str) -> None:
        if text.endswith("testing blend"):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(AutoSearch, "winner", blend_wins)
    options: dict[str, Any] = {"store": tmp_path / "runs", "models": ["itemknn"]}
    found(grouped(), **options)
    second = found(grouped(), on_progress=interrupt, **options)
    assert second.report["interrupted"]
    assert second.report["winner"]["model"] == "blend"


# -- report and errors -------------------------------------------------------------------------


def test_the_report_is_stored_with_the_model(tmp_path: Path) -> None:
    result = found(grouped(), out=tmp_path / "shop")
    report = json.loads((tmp_path / "shop.report.json").read_text())
    assert report == result.report == transcf.load(tmp_path / "shop").report_["auto"]
    assert report["data"] == {
        "users": 120, "items": 32, "events": 720, "times": True, "ratings": False,
    }  # fmt: skip
    assert "newest 10 %" in report["split"]
    assert report["serving_ms"] > 0
    rivals = [one["model"] for one in report["tests"]]
    assert rivals[-1] == "popularity"
    assert len(rivals) == 2
    compared = result.model.report_["held_out_metric"]
    assert compared["model"] == report["test"]["mean"] > compared["popularity"]
    text = (tmp_path / "shop.report.md").read_text()
    for part in (report["winner"]["name"], "popularity", "(test)", "ms"):
        assert part in text
    assert report["winner"]["name"] in str(result)


def test_the_table_says_why_something_was_not_tried_or_tested() -> None:
    result = found(grouped(), models=["itemknn"])
    changes = {"test": None, "tests": [], "untested": "the search was interrupted."}
    result.report.update(changes, skipped={"ease": "no memory."})
    result.report["question"]["models"] += ["ease", "slim"]
    text = str(result)
    assert "Not tried: ease (no memory), slim (no time)." in text
    assert "Not tested: the search was interrupted." in text


def test_the_command_prints_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    grouped().write_csv("events.csv")
    words = ["--store", "none", "auto", "events.csv", "--out", "shop", "--models", "itemknn"]
    printed = CliRunner().invoke(app, [*words, "--json"])
    assert printed.exit_code == 0, printed.output
    assert json.loads(printed.stdout) == json.loads(Path("shop.report.json").read_text())
    again = CliRunner().invoke(app, words)
    assert "Best model" in again.stdout
    assert transcf.load("shop").report_["dataset"] == str(tmp_path / "events.csv")
    refused = CliRunner().invoke(app, [*words, "--seed", "5"])
    assert refused.exit_code == 2
    assert "--overwrite" in refused.stderr
    for number in ("0", "-inf", "nan"):
        refused = CliRunner().invoke(app, [*words, f"--minutes={number}"])
        assert refused.exit_code == 2
        assert "minutes" in refused.stderr


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"minutes": 0}, ParameterError, "minutes"),
        ({"minutes": float("nan")}, ParameterError, "minutes"),
        ({"models": ["eese"]}, ParameterError, "ease"),
        ({"models": []}, ParameterError, "models"),
        ({"models": ["blend"]}, ParameterError, "blend"),
        ({"metric": "NDCG@11"}, ParameterError, "NDCG@11"),
        ({"protocol": "paper"}, ParameterError, "protocol"),
    ],
)
def test_options_are_checked_first(options: Any, error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        transcf.auto("no-such-file.csv", **options)


def test_data_that_cannot_be_split_is_an_error() -> None:
    with pytest.raises(EvaluationError, match=r"too small to compare.*no user"):
        found(pl.DataFrame({"user": [1, 2, 3], "item": [1, 2, 3]}))
    with pytest.raises(DataError):
        found("no-such-file.csv")


def test_other_models_are_not_replaced(tmp_path: Path) -> None:
    transcf.Popularity().fit(grouped()).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="holds a model"):
        found(grouped(), out=tmp_path / "model")
    assert transcf.load(tmp_path / "model").name == "popularity"
