"""What a service refuses, and how it says so."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from transcf.errors import ParameterError
from transcf.serving.settings import check_host, read_tokens

TOKEN = "0123456789abcdef-secret"
AN_ID = "An id is text of 1 to 1,024 characters without a NUL, or an integer of 64 bits"


@pytest.mark.parametrize(
    ("method", "path", "sent", "status", "code"),
    [
        ("GET", "/v1/recommendations/u005?k=1001", None, 422, "invalid"),
        ("GET", "/v1/recommendations/u005?k=-1", None, 422, "invalid"),
        ("GET", "/v1/recommendations/u005?k=200&explain=true", None, 422, "invalid"),
        ("GET", "/v1/recommendations/", None, 422, "invalid"),
        ("GET", "/v1/recommendations/%00", None, 422, "invalid"),
        ("GET", "/v1/recommendations/" + "x" * 10_000, None, 422, "invalid"),
        ("GET", "/v1/items/..%2F..%2Fetc%2Fpasswd", None, 404, "unknown"),
        ("GET", "/v1/nothing", None, 404, "not_found"),
        ("DELETE", "/v1/models", None, 405, "method_not_allowed"),
        ("POST", "/v1/session", b"{", 422, "invalid"),
        ("POST", "/v1/session", {"session": ["\ud800"]}, 422, "invalid"),
        ("POST", "/v1/session", {"session": ["i01"], "steps": 4}, 422, "invalid"),
        ("POST", "/v1/session", {"session": [True]}, 422, "invalid"),
        ("POST", "/v1/session", {"session": ["i01"] * 1001}, 422, "invalid"),
        ("POST", "/v1/recommendations", {"users": ["u"] * 1000, "k": 101}, 422, "invalid"),
        ("POST", "/v1/events", {"user": "u", "item": "i", "time": float("nan")}, 422, "invalid"),
        ("POST", "/v1/events", {"events": []}, 422, "invalid"),
        ("POST", "/v1/events", b" " * (2**20 + 1), 413, "too_large"),
        ("POST", "/v1/map/position", {"toward": ["i01"]}, 422, "invalid"),
    ],
)
def test_bad_requests_get_one_sentence(
    shared: TestClient, method: str, path: str, sent: Any, status: int, code: str
) -> None:
    body = sent if isinstance(sent, bytes | None) else json.dumps(sent).encode()
    headers = {"content-type": "application/json"}
    answer = shared.request(method, path, content=body, headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert error["message"].endswith(".")
    assert len(error["message"]) < 400


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"user": "u005", "itm": "i01"}, "item: Field required."),
        ({"events": [{"user": "u005"}]}, "events.0.item: Field required."),
        ({"user": 2**63, "item": "i01"}, f"user: {AN_ID}."),
        ({"events": [{"user": "u005", "item": 1.5}]}, f"events.0.item: {AN_ID}."),
        ({"user": "u005", "item": "i01", "key": "a\0"}, "key: It has a NUL in it."),
    ],
)
def test_errors_of_one_event_or_many_name_the_field(
    shared: TestClient, sent: Any, said: str
) -> None:
    assert shared.post("/v1/events", json=sent).json()["error"]["message"] == said


def test_a_body_that_is_not_declared_as_json_names_the_header(shared: TestClient) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}  # as curl -d sends it
    answer = shared.post("/v1/session", content=b'{"session": ["i01"]}', headers=headers)
    assert answer.status_code == 422
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def shared(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transcf.serving.app import create_app
    from transcf.serving.service import Service
    from transcf.serving.settings import ServiceSettings

    events = str(tmp_path_factory.mktemp("events") / "events.db")
    app = create_app(Service(ServiceSettings(trained / "shop", events, trained / "items.csv")))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def test_no_web_page_can_ask_in_a_browser_s_name(shared: TestClient) -> None:
    path = "/v1/recommendations/u005"
    assert shared.get(path, headers={"host": "evil.example"}).status_code == 403
    assert shared.get(path, headers={"origin": "http://evil.example"}).status_code == 403
    assert shared.get(path, headers={"origin": "http://localhost:8080"}).status_code == 200


def test_a_token_is_needed_and_never_told(
    shop: Path,
    open_client: Callable[..., TestClient],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    (shop / "token").write_text(TOKEN + "\n")
    client = open_client(shop / "shop", token_file=shop / "token")
    for wrong in ("", "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN):
        answer = client.get("/v1/models", headers={"authorization": wrong})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    right = {"authorization": f"Bearer {TOKEN}", "host": "shop.example"}
    assert client.get("/v1/models", headers=right).status_code == 200
    assert client.get("/metrics").status_code == 401
    assert client.get("/").status_code == client.get("/healthz").status_code == 200
    told = client.get("/v1/models", headers=right).text + client.get("/metrics", headers=right).text
    said = capfd.readouterr()
    assert TOKEN not in told + caplog.text + said.out + said.err


def test_others_are_not_served_without_a_token(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.168.0.7", "shop.example"):
        with pytest.raises(ParameterError, match="--token-file"):
            check_host(host, has_tokens=False)
        check_host(host, has_tokens=True)
    for host in ("127.0.0.1", "localhost", "::1"):
        check_host(host, has_tokens=False)
    (tmp_path / "short").write_text("secret")
    with pytest.raises(ParameterError, match="at least 16") as refused:
        read_tokens(tmp_path / "short")
    assert "secret" not in str(refused.value)


def test_too_many_requests_are_turned_away_and_slow_ones_ended(
    shop: Path, open_client: Callable[..., TestClient]
) -> None:
    client = open_client(shop / "shop", max_requests=4, request_seconds=3.0)
    service = client.app.state.service  # type: ignore[attr-defined]
    asleep = threading.Event()
    answer = service._recommendations._run

    def slowly(asks: Any) -> Any:
        asleep.wait(3.5)
        return answer(asks)

    service._recommendations._run = slowly
    with ThreadPoolExecutor(12) as pool:
        paths = [f"/v1/recommendations/u{n:03d}" for n in range(1, 13)]
        found = list(pool.map(client.get, paths))
    statuses = sorted(one.status_code for one in found)
    assert statuses == [503] * 8 + [504] * 4
    assert {one.headers.get("retry-after") for one in found if one.status_code == 503} == {"1"}
    asleep.set()
    time.sleep(0.6)
    assert client.get(paths[0]).status_code == 200
    text = client.get("/metrics").text
    assert 'transcf_refused_total{reason="overloaded"} 8.0' in text
    assert 'transcf_refused_total{reason="timeout"} 4.0' in text


def test_nothing_is_loaded_from_elsewhere(shared: TestClient) -> None:
    for path in ("/docs", "/openapi.json"):
        text = shared.get(path).text
        assert "//" not in text.replace("http://127.0.0.1", "").replace("://www.w3.org", "")
    assert "/v1/recommendations/{user}" in shared.get("/openapi.json").json()["paths"]


def test_limits_in_the_description_are_numbers(shared: TestClient) -> None:
    text = shared.get("/openapi.json").text
    assert f'"exclusiveMaximum":{2**63}' in text.replace(" ", "")
    assert not re.search(r'"(exclusiveM|m)(ax|in)imum":\s*"', text)
