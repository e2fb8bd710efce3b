"""Settings, tokens, logs: what an operator configures."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from transcf.errors import ParameterError
from transcf.serving.errors import configure_logging
from transcf.serving.settings import ServiceSettings, load_settings, read_tokens

READ, WRITE, METRICS, ADMIN = (f"{name}-token-of-some-length" for name in "rwma")


def test_options_come_before_the_environment_and_this_before_the_file(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text('model = "shop"\nport = 1\nmax_requests = 1\nslow_seconds = 1')
    environment = {"TRANSCF_SERVE_PORT": "2", "TRANSCF_SERVE_MAX_REQUESTS": "2", "PATH": "x"}
    found = load_settings({"port": 3, "host": None}, config, environment)
    assert (found.port, found.max_requests, found.slow_seconds) == (3, 2, 1.0)
    assert found.model == tmp_path / "shop"
    named = load_settings({}, None, {"TRANSCF_SERVE_CONFIG": str(config)})
    assert named.port == 1


@pytest.mark.parametrize(
    ("text", "environment", "message"),
    [
        ("max_request = 1", {}, "max_requests"),
        ("port = 70000", {}, "port"),
        ("port = ", {}, "not TOML"),
        ("", {"TRANSCF_SERVE_LOG_FORMAT": "xml"}, "log_format"),
        ("", {"TRANSCF_SERVE_WORKER": "2"}, "workers"),
        ("", {"TRANSCF_SERVE_HEADER_SECONDS": "0"}, "header_seconds"),
    ],
)
def test_wrong_settings_are_named(
    tmp_path: Path, text: str, environment: dict[str, str], message: str
) -> None:
    (tmp_path / "serve.toml").write_text(text)
    with pytest.raises(ParameterError, match=message):
        load_settings({"model": "shop"}, tmp_path / "serve.toml", environment)


def test_every_setting_is_documented() -> None:
    docs = Path(__file__).parents[2] / "docs" / "reference" / "service.md"
    text = docs.read_text()
    assert [each.name for each in fields(ServiceSettings) if f"`{each.name}`" not in text] == []


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_tokens_have_scopes_and_are_read_again(
    shop: Path, open_client: Callable[..., TestClient], caplog: pytest.LogCaptureFixture
) -> None:
    path = shop / "tokens"
    path.write_text(
        f"# name scopes token\nweb read {READ}\nshop write,read {WRITE}\n"
        f"prom metrics {METRICS}\n\nops admin {ADMIN}\n"
    )
    client = open_client(shop / "shop", token_file=path)
    event = {"user": "u005", "item": "i01"}
    for token, allowed in {READ: "r", WRITE: "rw", METRICS: "m", ADMIN: "rwm"}.items():
        headers = bearer(token)
        found = {
            "r": client.get("/v1/recommendations/u005", headers=headers).status_code,
            "w": client.post("/v1/events", json=event, headers=headers).status_code,
            "m": client.get("/metrics", headers=headers).status_code,
        }
        assert found == {each: 200 if each in allowed else 403 for each in "rwm"}
    assert client.head("/metrics", headers=bearer(READ)).status_code == 403
    path.write_text("broken line of words here")
    time.sleep(1.2)
    assert client.get("/v1/models", headers=bearer(READ)).status_code == 200
    assert "stay as they were" in caplog.text
    path.write_text("another-token-of-some-length")
    for _ in range(100):
        if client.get("/v1/models", headers=bearer(READ)).status_code == 401:
            break
        time.sleep(0.1)
    assert client.get("/v1/models", headers=bearer(READ)).status_code == 401
    assert client.get("/metrics", headers=bearer("another-token-of-some-length")).status_code == 200


@pytest.mark.parametrize(
    "text",
    ["", "# nothing", f"web all {READ}", f"web read {READ} fast", f"web {READ}", "web read x"],
)
def test_wrong_tokens_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(ParameterError) as refused:
        read_tokens(tmp_path / "tokens")
    assert READ not in str(refused.value)


def test_rates_are_limited_by_token(shop: Path, open_client: Callable[..., TestClient]) -> None:
    path = shop / "tokens"
    path.write_text(f"slow read {READ} 0.01\nfast read {WRITE} 0\nusual read {ADMIN}")
    client = open_client(shop / "shop", token_file=path, rate_limit=0.01)
    for token in (READ, ADMIN):
        answers = [client.get("/v1/models", headers=bearer(token)) for _ in range(3)]
        assert [one.status_code for one in answers] == [200, 429, 429]
        assert answers[1].json()["error"]["code"] == "rate_limited"
        assert 1 <= int(answers[1].headers["retry-after"]) <= 100
    fast = [client.get("/v1/models", headers=bearer(WRITE)) for _ in range(5)]
    assert {one.status_code for one in fast} == {200}


def test_log_lines_are_json_with_request_ids(
    shop: Path, open_client: Callable[..., TestClient], capfd: pytest.CaptureFixture[str]
) -> None:
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        configure_logging("json")
        client = open_client(shop / "shop", access_log=True, slow_seconds=60)
        client.get("/v1/recommendations/u005", headers={"x-request-id": "abc"})
        configure_logging("text")
        slow = open_client(shop / "shop", slow_seconds=1e-9)
        slow.get("/v1/items/nothing", headers={"x-request-id": "def"})
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
    lines = capfd.readouterr().err.splitlines()
    [entry] = [json.loads(line) for line in lines if '"abc"' in line]
    assert entry["level"] == "info"
    assert entry["route"] == "/v1/recommendations/{user}"
    assert (entry["method"], entry["status"], entry["request_id"]) == ("GET", 200, "abc")
    assert entry["ms"] > 0
    assert entry["time"].endswith("Z")
    [line] = [line for line in lines if "request_id=def" in line]
    assert "warning Slow request" in line
    assert "status=404" in line
