"""A service changes over to a new version in one step, and to no broken one."""

from __future__ import annotations

import gc
import shutil
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from starlette.testclient import TestClient

import transcf
from transcf.data.interactions import Interactions
from transcf.errors import ModelFileError, ParameterError
from transcf.io.model_dir import Versions
from transcf.models.registry import create
from transcf.models.trend import AutoTrend, trend_of
from transcf.serving.events import Event, EventStore
from transcf.serving.model_version import ModelVersion
from transcf.serving.refresh import back_to, refresh, with_events


def look(client: TestClient) -> dict[str, Any]:
    """Let the service look for a new version now, and return what it serves."""
    client.app.state.service.versions.check()  # type: ignore[attr-defined]
    found: dict[str, Any] = client.get("/v1/models").json()
    return found


def test_new_versions_are_picked_up_and_broken_ones_refused(
    shop: Path, client: TestClient, log: Interactions
) -> None:
    versions = Versions(shop / "shop")
    assert (versions.current(), versions.all()) == (1, [1])
    other = create("ease").fit(log)
    second = versions.add(other)
    assert client.get("/v1/models").json()["version"] == 1
    versions.switch(second)
    assert look(client)["class"] == "EASE"
    wanted = other.recommend("u005", k=3)["item_id"].to_list()
    answer = client.get("/v1/recommendations/u005?k=3").json()
    assert (answer["version"], [entry["item"] for entry in answer["items"]]) == (2, wanted)
    shutil.copytree(versions.folder(2), versions.folder(3))
    tensors = versions.folder(3) / "model.safetensors"
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    versions.folder(4).mkdir()  # half-written: a name and nothing in it yet
    for broken in (3, 4):
        versions.pointer.write_text(f"{broken}\n")
        state = look(client)
        assert state["version"] == 2
        assert state["refused"][-1]["version"] == broken
    assert "damaged" in state["refused"][0]["reason"]
    assert str(shop) not in str(state["refused"])
    versions.pointer.write_text("many\n")
    assert look(client)["version"] == 2
    back_to(versions, 1)
    assert look(client)["version"] == 1
    with pytest.raises(ModelFileError, match="damaged"):
        back_to(versions, 3)
    with pytest.raises(ParameterError, match="no version 9"):
        back_to(versions, 9)


def test_a_check_waits_for_one_that_is_loading(
    shop: Path, client: TestClient, log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of two checks loads the version: it is served when either of them returns."""
    manager, load = client.app.state.service.versions, ModelVersion.load  # type: ignore[attr-defined]
    loading, go_on = threading.Event(), threading.Event()

    def slow(*args: Any) -> ModelVersion:
        loading.set()
        assert go_on.wait(30)
        return load(*args)

    monkeypatch.setattr(ModelVersion, "load", slow)
    versions = Versions(shop / "shop")
    versions.switch(versions.add(create("ease").fit(log)))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(manager.check)
        assert loading.wait(30)
        second = pool.submit(manager.check)
        assert not wait([second], timeout=0.5).done, "version 1 is still served"
        go_on.set()
        assert first.result(30)
        assert second.result(30)
    assert manager.current.number == 2


def test_a_version_that_is_served_is_in_memory_once(
    shop: Path, client: TestClient, log: Interactions
) -> None:
    versions, manager = Versions(shop / "shop"), client.app.state.service.versions  # type: ignore[attr-defined]
    asked = weakref.ref(manager.load(versions.add(create("ease").fit(log))))
    assert asked() is not None
    manager.switch(2)
    assert look(client)["version"] == 2
    gc.collect()
    assert asked() is None


def test_a_service_starts_on_the_newest_version_that_is_whole(
    shop: Path, log: Interactions, open_client: Callable[..., TestClient]
) -> None:
    versions = Versions(shop / "shop")
    versions.switch(versions.add(create("ease").fit(log)))
    (versions.folder(2) / "model.safetensors").unlink()
    state = open_client(shop / "shop").get("/v1/models").json()
    assert (state["version"], state["refused"][0]["version"]) == (1, 2)
    assert [entry["current"] for entry in state["versions"]] == [True, False]


def taste(log: Interactions, users: int) -> list[Event]:
    """Newcomers who take the first items of one user each, in turn."""
    events = []
    for place in range(10):
        for number in range(users):
            row = log.histories[number]
            if place < len(row):
                item = log.items.ids(row[place : place + 1]).item()
                events.append(
                    Event(f"new {number}", item, 1.7e9 + place, None, f"{number}-{place}")
                )
    return events


@pytest.mark.parametrize("quick", [False, True])
def test_refresh_learns_from_events_and_serves_what_is_not_worse(
    shop: Path,
    log: Interactions,
    open_client: Callable[..., TestClient],
    quick: bool,
) -> None:
    versions, store = Versions(shop / "shop"), EventStore(str(shop / "events.db"))
    assert refresh(versions, store).version is None
    events = taste(log, 30)
    store.add([events])
    client = open_client(shop / "shop", events=str(shop / "events.db"))
    before = client.get("/v1/users/new%203").json()
    assert before["known"] is False
    done = refresh(versions, store, quick=quick, force=True)
    assert (done.version, done.served, done.events) == (2, 2, len(events))
    assert done.judged > 0
    assert done.old is not None
    assert done.new is not None
    model = transcf.load(versions.folder(2))
    assert model.report_["events_after"] == store.after(0)[-1].number
    assert model.report_["interactions"] == len(log) + len(events)
    assert look(client)["version"] == 2
    after = client.get("/v1/users/new%203").json()
    assert after["known"] is True
    assert [entry["item"] for entry in after["history"]] == [
        entry["item"] for entry in before["history"]
    ]
    assert client.get("/v1/recommendations/new%203").json()["source"] == "model"
    assert refresh(versions, store).version is None


@pytest.mark.parametrize("name", ["ease", "blend"])
def test_a_trend_goes_on_from_its_counts_without_the_times_of_old_events(
    shop: Path, log: Interactions, name: str
) -> None:
    versions, store = Versions(shop / "shop"), EventStore(str(shop / "events.db"))
    model = create(name, **({"parts": "ease + itemknn"} if name == "blend" else {})).fit(log)
    old = AutoTrend.of(log, 2.0, 0.02, 1.0)
    if name == "blend":
        model.learned_.parts = [old.add_to(part) for part in model.learned_.parts]
    else:
        model.learned_ = old.add_to(model.learned_)
    versions.switch(versions.add(model))
    store.add([[Event("new", "i001", 1.7e9), Event("new", "i002", 1.7e9 + 1)]])
    done = refresh(versions, store, data="model", force=True)
    new = transcf.load(versions.folder(done.served))
    trend = trend_of(new.learned_.parts[1] if name == "blend" else new.learned_)
    assert trend is not None
    decay, expected = 2 ** (-1 / old.half_life_events), np.zeros(len(new.items_))
    expected[new.items_.rows(log.items.series)] = old.recent * decay**2
    expected[new.items_.rows(["i001", "i002"])] += [decay, 1.0]
    assert trend.recent == pytest.approx(expected)


def test_the_service_counts_events_in_the_trend(
    shop: Path, log: Interactions, open_client: Callable[..., TestClient]
) -> None:
    """As `partial_fit` does: repeated pairs change nothing, unknown items make others older."""
    versions, store = Versions(shop / "shop"), EventStore(str(shop / "events.db"))
    model = create("transcf-mixture", dim=8, epochs=2).fit(log)
    model.learned_ = AutoTrend.of(log, 2.0, 0.02, 1.0).add_to(model.learned_)
    versions.switch(versions.add(model))
    client = open_client(shop / "shop", events=str(shop / "events.db"))
    before = client.get("/v1/recommendations/u005?k=60").json()
    manager = client.app.state.service.versions  # type: ignore[attr-defined]
    known = log.items.ids(log.histories[5][:1]).item()
    pairs = [("u005", known), *((f"new {n}", f"i{1 + n % 3:02d}") for n in range(40))]
    pairs += [("new 1", "unknown"), ("new 0", "i01"), ("new 1", "i02")]
    events = [Event(user, item, 1.7e9 + n) for n, (user, item) in enumerate(pairs)]
    store.add([events])
    manager._events.update()
    manager.renew_trend()
    columns = {"user": [u for u, _ in pairs], "item": [i for _, i in pairs]}
    rows = pl.DataFrame(columns | {"timestamp": range(len(pairs))})
    model.partial_fit(rows.unique(["user", "item"], keep="first", maintain_order=True))
    wanted, found = trend_of(model.learned_), trend_of(manager.current.scorer)
    assert wanted is not None
    assert found is not None
    own = model.items_.rows(log.items.series)
    assert found.recent == pytest.approx(wanted.recent[own])
    assert manager.current.scorer.offset == pytest.approx(model.item_offsets_[own], abs=1e-6)
    after = client.get("/v1/recommendations/u005?k=60").json()
    assert [entry["item"] for entry in after["items"]] != [one["item"] for one in before["items"]]
    manager.renew_trend()
    assert trend_of(manager.current.scorer) is found, "nothing came in meanwhile"


@pytest.mark.parametrize("unit", [1, 1000, 10**6])
def test_events_get_times_in_the_unit_of_the_log(unit: int) -> None:
    rows = [("ann", "tea", 1_600_000_000 * unit), ("bob", "cup", 1_600_000_001 * unit)]
    columns = ["user_id", "item_id", "timestamp"]
    log = transcf.read_interactions(pl.DataFrame(rows, columns, orient="row"))
    longer = with_events(log, [Event("ann", "cup", 1_700_000_000.5)])
    assert longer.to_frame()["timestamp"].max() == int(1_700_000_000.5 * unit)


def test_a_worse_version_is_written_and_not_served(shop: Path, log: Interactions) -> None:
    versions, store = Versions(shop / "shop"), EventStore(str(shop / "events.db"))
    versions.switch(versions.add(create("ease").fit(log)))
    # Version 3 learns from people who take what nobody takes, and is judged on usual ones.
    odd = log.items.series[log.by_item.counts.argsort()[:6]].to_list()
    strange = [Event(f"odd {n}", odd[n % 6], 1.7e9) for n in range(400)]
    strange += [Event(f"odd {n}", odd[(n + 1) % 6], 1.7e9) for n in range(400)]
    store.add([strange, taste(log, 20)])
    done = refresh(versions, store, data="model")
    assert done.version == 3
    assert done.old is not None
    assert done.new is not None
    assert done.served == (3 if done.new >= done.old else 2)
    assert versions.current() == done.served
    assert transcf.load(versions.folder(3)).report_["interactions"] > len(log)


def test_a_version_that_is_not_served_can_be_asked(
    shop: Path, client: TestClient, log: Interactions
) -> None:
    versions, other = Versions(shop / "shop"), create("ease").fit(log)
    versions.add(other)
    answer = client.get("/v1/versions/2/recommendations/u005?k=3&explain=true").json()
    listed = [entry["item"] for entry in answer["items"]]
    assert (answer["version"], listed) == (2, other.recommend("u005", k=3)["item_id"].to_list())
    own = client.get("/v1/versions/1/recommendations/u005?k=3").json()
    assert own == client.get("/v1/recommendations/u005?k=3").json()
    described = client.get("/v1/models").json()["versions"]
    assert [entry["class"] for entry in described] == ["TransCFMixture", "EASE"]
    assert client.get("/v1/versions/9/recommendations/u005").status_code == 404
    (versions.folder(2) / "model.safetensors").write_bytes(b"")
    shutil.copytree(versions.folder(2), versions.folder(3))
    assert client.get("/v1/versions/3/recommendations/u005").status_code == 409
