"""Events that no model can learn from: refused by the service, skipped by refresh, deletable."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from transcf.cli.app import app
from transcf.data.readers import read_interactions
from transcf.io.model_dir import Versions
from transcf.models.registry import create
from transcf.serving.events import Event, EventCache, EventStore
from transcf.serving.refresh import refresh

TOO_LARGE = "9999999999999999999"  # 19 digits, above 2**63 - 1


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """A model of a log with integer ids and times in seconds."""
    rows = [
        (user, item % 12, 1_600_000_000 + user)
        for user in range(40)
        for item in range(user % 9, user % 9 + 5)
    ]
    log = read_interactions(pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row"))
    model = create("ease").fit(log)
    log.to_frame().write_csv(tmp_path / "log.csv")
    model.report_["dataset"] = str(tmp_path / "log.csv")
    return model.save(tmp_path / "numbered")


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": TOO_LARGE},
        {"item": f"-{TOO_LARGE}"},
        {"user": "007"},
        {"user": " 7"},
        {"time": -1},
        {"time": time.time() * 1e3},
        {"time": time.time() * 1e6},
        {"time": time.time() + 2 * 86_400},
    ],
)
def test_the_service_refuses_them(
    numbered: Path, open_client: Callable[..., TestClient], wrong: dict[str, Any]
) -> None:
    client = open_client(numbered)
    answer = client.post("/v1/events", json={"user": 1, "item": 2} | wrong)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
    right = {"user": 2**63 - 1, "item": str(-(2**63)), "time": time.time() + 3600}
    assert client.post("/v1/events", json=right).json()["last"] == 1


@pytest.mark.parametrize("quick", [False, True])
def test_refresh_skips_and_counts_them(
    numbered: Path, log: Any, tmp_path: Path, quick: bool
) -> None:
    if quick:
        fitted = create("transcf-mixture", dim=8, epochs=1)
        fitted.fit(read_interactions(str(tmp_path / "log.csv"))).save(tmp_path / "quick")
        numbered = tmp_path / "quick"
    store = EventStore(str(tmp_path / "events.db"))
    now = time.time()
    good = [Event(str(user), "11", now) for user in range(20)]
    bad = [Event(TOO_LARGE, "1", now), Event("x", "1", now), Event("1", "1", now * 1e6)]
    store.add([good[:10], bad, good[10:]])
    done = refresh(Versions(numbered), store, quick=quick, force=True)
    assert (done.version, done.events, done.skipped) == (2, 20, 3)
    store.add([bad])
    done = refresh(Versions(numbered), store, quick=quick, force=True)
    assert (done.version, done.events, done.skipped) == (None, 0, 3)


def test_they_can_be_listed_and_deleted(numbered: Path, tmp_path: Path) -> None:
    def run(*words: object) -> str:
        result = CliRunner().invoke(app, ["events", *map(str, words)])
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    path = str(tmp_path / "numbered.events.db")
    store, now = EventStore(path), time.time()
    store.add([[Event("1", "2", now), Event("x", "2", now), Event("3", "4", 1000.0)]])
    cache = EventCache(EventStore(path))
    cache.update()
    assert "'x'" in run("list", numbered, "--invalid")
    listed = run("list", numbered, "--invalid", "--json")
    assert '"number": 2' in listed
    assert '"number": 1' not in listed
    assert '"number": 3' in run("list", numbered, "--last", 1, "--json")
    run("delete", numbered, 2)
    assert [event.number for event in store.after(0)] == [1, 3]
    cache.update()  # a running service forgets it as well
    assert cache.of("x") == []
    assert len(cache.of("1")) == 1
    refused = CliRunner().invoke(app, ["events", "delete", str(numbered), "2"])
    assert (refused.exit_code, "no event 2" in refused.output) == (2, True)


def test_pruning_keeps_what_is_recent_or_not_learned(numbered: Path, tmp_path: Path) -> None:
    store, now = EventStore(str(tmp_path / "numbered.events.db")), time.time()
    store.add([[Event("1", "2", 1000.0), Event("2", "3", now), Event("3", "4", now)]])
    refresh(Versions(numbered), store, force=True)
    store.add([[Event("4", "5", 1000.0)]])
    result = CliRunner().invoke(app, ["events", "prune", str(numbered), "30"])
    assert result.exit_code == 0, result.output
    assert [event.number for event in store.after(0)] == [2, 3, 4]
    added = store.add([[Event("5", "6", now)]])
    assert added[0]["last"] == 5, "numbers are not used again"
