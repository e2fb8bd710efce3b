"""Nonsense gets an answer: never a 500, never a traceback, never a file from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from transcf.serving.app import create_app
from transcf.serving.service import Service
from transcf.serving.settings import ServiceSettings

ODD = ["../x", "..", "\x00", "\ud800", "🍵", "x" * 10_000, "a/b", "%", "' OR 1=1 --", "u005", "i07"]
IDS = st.sampled_from(ODD) | st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | IDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(IDS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "users", "session", "k", "items", "exclude", "categories", "pairs", "user", "item", "toward",
    "events", "key", "time", "top", "explain", "exclude_seen", "rating",
)  # fmt: skip
BODIES = JSON | st.dictionaries(st.sampled_from(FIELDS), JSON | st.lists(IDS, max_size=3))


@pytest.fixture(scope="module")
def client(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    events = str(tmp_path_factory.mktemp("events") / "events.db")
    app = create_app(Service(ServiceSettings(trained / "shop", events, trained / "items.csv")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as opened:
        yield opened


def check(answer: Any) -> None:
    assert answer.status_code < 500, answer.text
    found = answer.json()
    if answer.status_code != 200:
        assert set(found) == {"error"}
        assert "Traceback" not in found["error"]["message"]


@settings(max_examples=60)
@given(
    st.sampled_from(["recommendations", "items", "users", "similar-items", "similar-users"]),
    IDS,
    st.dictionaries(
        st.sampled_from(["k", "limit", "exclude", "category", "items", "explain"]), IDS
    ),
)
def test_paths(client: TestClient, route: str, odd: str, params: dict[str, str]) -> None:
    path = quote(odd.encode("utf-8", "replace"), safe="")
    query = "&".join(
        f"{name}={quote(value.encode('utf-8', 'replace'), safe='')}"
        for name, value in params.items()
    )
    check(client.get(f"/v1/{route}/{path}?{query}"))


@settings(max_examples=120)
@given(
    st.sampled_from(
        ["recommendations", "session", "explanation", "scores", "map/position", "events"]
    ),
    BODIES,
)
def test_bodies(client: TestClient, route: str, body: Any) -> None:
    headers = {"content-type": "application/json"}
    check(client.post(f"/v1/{route}", content=json.dumps(body).encode(), headers=headers))


@settings(max_examples=30)
@given(st.binary(max_size=200))
def test_bytes(client: TestClient, body: bytes) -> None:
    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x", ""):
        check(client.post("/v1/events", content=body, headers={"content-type": kind}))
