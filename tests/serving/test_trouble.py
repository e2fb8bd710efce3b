"""A store that fails, hostile metrics labels, headers of answers, and what errors do not tell."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from transcf.serving.app import create_app
from transcf.serving.events import Event, EventStore, StoreError
from transcf.serving.service import Service
from transcf.serving.settings import ServiceSettings


def wait_for(client: TestClient, path: str, status: int) -> Any:
    for _ in range(100):
        answer = client.get(path)
        if answer.status_code == status:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"{path} is still {answer.status_code}")


def test_a_store_that_cannot_be_written_is_logged_counted_and_not_ready(
    shop: Path,
    open_client: Callable[..., TestClient],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    full, add = [False], EventStore.add

    def fail(self: EventStore, batches: Any) -> Any:
        if full[0]:
            raise StoreError(f"{shop} cannot be used for events: database or disk is full.")
        return add(self, batches)

    monkeypatch.setattr(EventStore, "add", fail)
    client = open_client(shop / "shop", check_seconds=0.1)
    assert client.get("/readyz").status_code == 200
    full[0] = True
    answer = client.post("/v1/events", json={"user": "u", "item": "i"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    unready = client.get("/readyz")
    assert unready.status_code == 503
    assert str(shop) not in answer.text + unready.text
    assert "disk is full" in caplog.text
    found = re.search(r'store_errors_total\{operation="write"\} (\d+)', client.get("/metrics").text)
    assert found is not None
    assert int(found[1]) >= 1
    full[0] = False
    wait_for(client, "/readyz", 200)


def test_a_full_disk_is_noticed_without_any_event(
    shop: Path, open_client: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_client(shop / "shop", check_seconds=0.1)
    monkeypatch.setattr(EventStore, "add", lambda *_: (_ for _ in ()).throw(StoreError("full")))
    wait_for(client, "/readyz", 503)


def test_a_store_that_hangs_is_noticed(
    shop: Path,
    open_client: Callable[..., TestClient],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    released, state = threading.Event(), EventStore.state

    def hang(self: EventStore) -> Any:
        released.wait(30)
        return state(self)

    client = open_client(shop / "shop", request_seconds=1.5)
    assert client.get("/readyz").status_code == 200
    monkeypatch.setattr(EventStore, "state", hang)
    try:
        wait_for(client, "/readyz", 503)
        wait_for(client, "/metrics", 200)
    finally:
        released.set()
    wait_for(client, "/readyz", 200)
    assert "has not answered" in caplog.text


def test_a_deleted_file_is_noticed(
    shop: Path, client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    event = {"user": "u005", "item": "i01"}
    assert client.post("/v1/events", json=event).json()["last"] == 1
    files = list(shop.glob("shop.events.db*"))
    for path in files:
        path.rename(path.with_name(f"moved-{path.name}"))
    lost = client.post("/v1/events", json=event)
    assert (lost.status_code, lost.json()["error"]["code"]) == (503, "unavailable")
    assert not list(shop.glob("shop.events.db*")), "no new file that counts from 1"
    assert "deleted" in caplog.text
    wait_for(client, "/readyz", 503)
    assert client.get("/v1/recommendations/u005").json()["stale"] is True
    for path in files:
        path.with_name(f"moved-{path.name}").rename(path)
    wait_for(client, "/readyz", 200)
    assert client.post("/v1/events", json=event).json()["last"] == 2


def test_a_file_that_is_replaced_is_read_again(shop: Path, client: TestClient) -> None:
    client.post("/v1/events", json={"user": "ann", "item": "i01"})
    client.post("/v1/events", json={"user": "ann", "item": "i02"})
    assert client.get("/v1/users/ann").json()["count"] == 2
    path = shop / "shop.events.db"
    store = EventStore(str(shop / "backup.db"))
    store.add([[Event("ann", "i03", time.time())]])
    store.close()
    with sqlite3.connect(shop / "backup.db") as backup:
        backup.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for old in shop.glob("shop.events.db-*"):
        old.unlink()
    (shop / "backup.db").replace(path)
    wait_for(client, "/readyz", 200)
    assert [e["item"] for e in client.get("/v1/users/ann").json()["history"]] == ["i03"]


def test_a_new_store_counts_on_after_what_the_model_has_learned(
    shop: Path, log: Any, open_client: Callable[..., TestClient]
) -> None:
    from transcf.models.registry import create

    model = create("ease").fit(log)
    model.report_["events_after"] = 41
    client = open_client(model.save(shop / "learned"))
    assert client.post("/v1/events", json={"user": "ann", "item": "i01"}).json()["last"] == 42
    assert client.get("/v1/users/ann").json()["count"] == 1


def test_methods_of_clients_are_no_labels(client: TestClient) -> None:
    for number in range(50):
        assert client.request(f"M{number}", "/v1/models").status_code == 405
    text = client.get("/metrics").text
    assert 'method="M' not in text
    assert 'method="other",route="/v1/models",status="405"} 50.0' in text


def test_head_is_get_without_a_body(client: TestClient) -> None:
    for path in ("/", "/healthz", "/v1/models", "/v1/recommendations/u005"):
        get, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == get.headers["content-length"]
    assert 'method="HEAD",route="/v1/models",status="200"} 1.0' in client.get("/metrics").text


def test_answers_are_not_stored_and_not_guessed_at(client: TestClient) -> None:
    for path in ("/v1/models", "/v1/recommendations/u005", "/v1/search", "/metrics", "/v1/nothing"):
        headers = client.get(path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"


def test_failures_have_the_headers_of_answers(
    shop: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("transcf.serving.ranking.rank", lambda *_: 1 / 0)
    app = create_app(Service(ServiceSettings(shop / "shop")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        answer = client.get("/v1/recommendations/u005", headers={"x-request-id": "order-8812"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert answer.headers["x-request-id"] == "order-8812"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "ZeroDivisionError" in caplog.text


def test_every_answer_has_a_request_id(client: TestClient) -> None:
    given = client.get("/v1/nothing", headers={"x-request-id": "order-8812"})
    assert given.headers["x-request-id"] == given.json()["error"]["request_id"] == "order-8812"
    made = client.get("/v1/nothing", headers={"x-request-id": "a b"})
    assert re.fullmatch("[0-9a-f]{16}", made.headers["x-request-id"])
    assert made.json()["error"]["request_id"] == made.headers["x-request-id"]


def test_serving_is_said_once_the_port_is_open(shop: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = [sys.executable, "-m", "transcf", "serve", str(shop / "shop"), "--port", port]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "Serving" not in done.stdout
    assert f"Port {port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_reasons_name_titles(client: TestClient) -> None:
    [found] = client.get("/v1/recommendations/u005?k=1&explain=true").json()["items"]
    effect = found["reason"]["effects"][0]
    assert found["title"] in found["reason"]["sentence"]
    assert effect["title"] in found["reason"]["sentence"]
    why = client.get("/v1/explanation", params={"user": "u005", "item": found["item"]}).json()
    assert found["title"] in why["sentence"]
