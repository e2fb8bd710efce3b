"""Under load: probes answer, kinds of requests wait in queues of their own, slow clients lose."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.testclient import TestClient
from tests.serving.processes import living

from transcf.serving import ranking, server, service
from transcf.serving.ranking import RecommendRequest
from transcf.serving.schemas import SessionRequest, UserRequest, UsersRequest
from transcf.serving.service import recommendation_cost
from transcf.serving.settings import load_settings


class Hold(NamedTuple):
    """Explanations wait until `released` is set; `begun` is set once one waits."""

    begun: threading.Event
    released: threading.Event


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hold]:
    hold, explain = Hold(threading.Event(), threading.Event()), ranking._explanation

    def slowly(*args: Any, **kwargs: Any) -> Any:
        hold.begun.set()
        hold.released.wait(30)
        return explain(*args, **kwargs)

    monkeypatch.setattr(ranking, "_explanation", slowly)
    yield hold
    hold.released.set()


def explained(length: int, k: int = 10) -> dict[str, Any]:
    session = [f"i{n % 60 + 1:02}" for n in range(length)]
    return {"session": session, "k": k, "explain": True, "exclude_seen": False}


def test_explanations_delay_neither_probes_nor_other_requests(
    client: TestClient, held: Hold
) -> None:
    with ThreadPoolExecutor(16) as pool:
        try:
            slow = [pool.submit(client.post, "/v1/session", json=explained(500)) for _ in range(8)]
            for path in (
                "/readyz",
                "/healthz",
                "/metrics",
                "/v1/recommendations/u005",
                "/v1/search",
            ):
                assert pool.submit(client.get, path).result(10).status_code == 200, path
        finally:
            held.released.set()
        assert {one.result().status_code for one in slow} == {200}


def test_explanations_leave_places_for_other_requests(
    shop: Path, open_client: Callable[..., TestClient], held: Hold
) -> None:
    client = open_client(shop / "shop", max_requests=4)
    with ThreadPoolExecutor(8) as pool:
        try:
            slow = [pool.submit(client.post, "/v1/session", json=explained(5)) for _ in range(4)]
            assert held.begun.wait(10)
            done, _ = wait(slow, timeout=5)
            assert [one.result().status_code for one in done] == [503, 503]
            assert client.get("/v1/recommendations/u005").status_code == 200
        finally:
            held.released.set()
        assert sorted(one.result().status_code for one in slow) == [200, 200, 503, 503]


def test_expensive_requests_have_a_price(
    shop: Path, open_client: Callable[..., TestClient], held: Hold
) -> None:
    client = open_client(shop / "shop", max_queued_cost=100)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(client.post, "/v1/session", json=explained(1000, k=40))
        assert held.begun.wait(10)
        refused = client.post("/v1/session", json=explained(1000, k=40))
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "overloaded"
        assert refused.headers["retry-after"] == "1"
        assert client.post("/v1/session", json=explained(5) | {"explain": False}).status_code == 200
        small = pool.submit(client.post, "/v1/session", json=explained(5, k=5))
        held.released.set()
        assert first.result().status_code == small.result().status_code == 200
    assert 'transcf_refused_total{reason="overloaded"} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("request_", "cost"),
    [
        (UserRequest(user="u"), 1),
        (UsersRequest(users=["u", "v"]), 2),
        (SessionRequest(session=["i"] * 100), 1),
        (SessionRequest(session=["i"] * 1000), 2.7),
        (SessionRequest(session=[], k=1000), 4.5),
        (SessionRequest(session=["i"] * 1000, k=1000), 22.5),
        (UsersRequest(users=["u", "v"], k=1000), 9),
        (SessionRequest(session=["i"] * 1000, explain=True), 22),
    ],
)
def test_lists_cost_more_with_longer_sessions_and_a_larger_k(
    request_: RecommendRequest, cost: float
) -> None:
    assert recommendation_cost(request_) == pytest.approx(cost)


def test_expensive_lists_are_refused_while_usual_ones_are_answered(
    shop: Path, open_client: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, released, recommend = threading.Event(), threading.Event(), service.recommend

    def slowly(*args: Any) -> Any:
        begun.set()
        released.wait(30)
        return recommend(*args)

    monkeypatch.setattr(service, "recommend", slowly)
    client = open_client(shop / "shop", max_queued_cost=25)
    longest = explained(1000, k=1000) | {"explain": False}
    with ThreadPoolExecutor(4) as pool:
        try:
            first = pool.submit(client.post, "/v1/session", json=longest)
            assert begun.wait(10)
            assert client.post("/v1/session", json=longest).status_code == 503
            usual = pool.submit(client.get, "/v1/recommendations/u005")
        finally:
            released.set()
        assert first.result().status_code == usual.result().status_code == 200


def connect(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=20)


def read_all(line: socket.socket) -> tuple[int, dict[str, Any]]:
    """Read until the service closes the connection; return status and JSON."""
    parts = b""
    while part := line.recv(65536):
        parts += part
    head, _, body = parts.partition(b"\r\n\r\n")
    for header in (b"content-type: application/json", b"cache-control: no-store", b"x-request-id"):
        assert header in head.lower()
    return int(head.split()[1]), json.loads(body)


def test_unfinished_headers_keep_nobody_out(trained: Path, tmp_path: Path) -> None:
    with living(trained / "shop", events=str(tmp_path / "e.db"), max_connections=30) as url:
        lines = [connect(url) for _ in range(60)]
        for line in lines[::2]:
            line.sendall(b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ")
        for path in ("/healthz", "/readyz", "/v1/recommendations/u005"):
            assert httpx.get(url + path, timeout=20).status_code == 200
        for line in lines:
            line.close()


def test_a_system_that_allows_fewer_open_files_than_it_says(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a limit for all processes together, too."""
    resource = pytest.importorskip("resource")

    def refuse(*_: Any) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(server, "configure_logging", lambda *_: None)
    found: list[int] = []
    monkeypatch.setattr(server, "Service", lambda given: found.append(given.max_connections))
    monkeypatch.setattr(server, "server_config", Mock(side_effect=InterruptedError))
    with pytest.raises(InterruptedError):
        server.run(load_settings({"model": shop / "shop"}))
    assert 1 <= found[0] < 256


def test_connections_never_use_up_the_open_files(
    shop: Path, start: Callable[..., tuple[subprocess.Popen[str], str]]
) -> None:
    _, url = start(shop / "shop", open_files=128, TRANSCF_SERVE_HEADER_SECONDS="60")
    lines = [connect(url) for _ in range(200)]
    for line in lines:
        with suppress(OSError):  # the oldest are closed already
            line.sendall(b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ")
    for path in ("/healthz", "/v1/recommendations/u005"):
        assert httpx.get(url + path, timeout=20).status_code == 200
    for line in lines:
        line.close()


def test_headers_have_a_deadline_and_a_size(trained: Path, tmp_path: Path) -> None:
    limits = {"header_seconds": 0.3, "max_header_bytes": 2000}
    with living(trained / "shop", events=str(tmp_path / "e.db"), **limits) as url:
        for begun in (b"", b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n"):
            line = connect(url)
            line.sendall(begun)
            status, answer = read_all(line)
            assert (status, answer["error"]["code"]) == (408, "timeout")
        line = connect(url)
        line.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        line.sendall(b"\r\n")  # leads to no request
        assert read_all(line)[0] == 408
        line = connect(url)
        line.sendall(b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 3000)
        assert read_all(line)[0] == 431


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 4\r\n"
        b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n"
        b"content-length: 4\r\n\r\n0\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_ambiguous_and_broken_requests_are_refused(
    trained: Path, tmp_path: Path, request_bytes: bytes
) -> None:
    with living(trained / "shop", events=str(tmp_path / "e.db")) as url:
        line = connect(url)
        line.sendall(request_bytes)
        status, answer = read_all(line)
        assert (status, answer["error"]["code"]) == (400, "invalid")
        assert answer["error"]["request_id"]


def test_a_body_that_does_not_arrive_ends_the_connection(trained: Path, tmp_path: Path) -> None:
    with living(trained / "shop", events=str(tmp_path / "e.db"), request_seconds=0.3) as url:
        line = connect(url)
        line.sendall(b"POST /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n{")
        assert read_all(line)[0] == 504
