"""Integer ids above 2^53, which browsers would round."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from starlette.testclient import TestClient

from transcf.data.readers import read_interactions
from transcf.models.registry import create

BASE = 2**60


def as_browser(text: str) -> Any:
    """Parse JSON as a browser does: all numbers are doubles."""
    return json.loads(text, parse_int=float)


def test_they_are_text_in_every_answer(
    tmp_path: Path, open_client: Callable[..., TestClient]
) -> None:
    rows = [(BASE + u, BASE + (u + i) % 12, u) for u in range(40) for i in range(5)]
    log = read_interactions(pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row"))
    folder = create("transcf-mixture", dim=8, epochs=1).fit(log).save(tmp_path / "model")
    client = open_client(folder)
    user, item = str(BASE + 1), str(BASE + 9)
    found = as_browser(client.get(f"/v1/recommendations/{user}?k=7&explain=true").text)
    known = {str(BASE + n) for n in range(12)}
    assert found["user"] == user
    assert {entry["item"] for entry in found["items"]} < known
    assert {e["item"] for entry in found["items"] for e in entry["reason"]["effects"]} <= known
    session = {"session": [item, BASE + 3, BASE + 77], "k": 3}
    assert as_browser(client.post("/v1/session", json=session).text)["skipped"] == [str(BASE + 77)]
    assert as_browser(client.get(f"/v1/items/{item}").text)["item"] == item
    assert as_browser(client.get(f"/v1/users/{user}").text)["history"][0]["item"] in known
    assert {e["item"] for e in as_browser(client.get("/v1/search").text)["items"]} == known
    assert set(as_browser(client.get("/v1/map").text)["item"]) == known
    near = as_browser(client.get(f"/v1/similar-users/{user}").text)["users"]
    assert len({entry["user"] for entry in near}) == len(near) > 1
    event = {"user": user, "item": near[0]["user"]}
    assert client.post("/v1/events", json=event).json()["stored"] == 1
    score = client.post("/v1/scores", json={"pairs": [{"user": BASE + 1, "item": BASE + 9}]})
    assert score.json()["scores"][0]["item"] == item
