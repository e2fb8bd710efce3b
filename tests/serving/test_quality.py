"""How good lists are, how far a score can be trusted, and which version is served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from transcf import EASE, Interactions, Popularity, Validation, leave_one_out
from transcf.io.model_dir import Versions
from transcf.models.registry import create, load


def test_coverage_is_that_of_lists(client: TestClient, shop: Path) -> None:
    found = client.get("/v1/quality").json()
    users = load(shop / "shop").users_.series.to_list()
    answers = client.post("/v1/recommendations", json={"users": users, "k": 10}).json()["answers"]
    shown = {entry["item"] for answer in answers for entry in answer["items"]}
    assert found["coverage"] == pytest.approx(len(shown) / 60, abs=1e-4)
    assert found["checks"] == [], "it was fitted without validation data"


def test_accuracy_is_that_of_held_out_events(
    log: Interactions, tmp_path: Path, open_client: Callable[..., TestClient]
) -> None:
    split = leave_one_out(log)
    judge = Validation.of(split)
    model, popularity = EASE().fit(split.train, judge), Popularity().fit(split.train)
    model.save(tmp_path / "model")
    [check] = open_client(tmp_path / "model").get("/v1/quality").json()["checks"]
    assert check["basis"] == "held_out"
    assert check["model"] == {"NDCG@10": pytest.approx(judge(model), abs=1e-4)}
    assert check["popularity"] == {"NDCG@10": pytest.approx(judge(popularity), abs=1e-4)}
    assert check["users"] == len(judge.per_user(model))


def test_new_events_are_checked_as_well(client: TestClient) -> None:
    events = []
    for number in range(30):
        [entry] = client.get(f"/v1/recommendations/u{number + 1:03}?k=1").json()["items"]
        events.append({"user": f"u{number + 1:03}", "item": entry["item"]})
    client.post("/v1/events", json={"events": events}).raise_for_status()
    [new] = client.get("/v1/quality").json()["checks"]
    assert new["basis"] == "new_events"
    assert new["model"]["HitRate@10"] > 0.9, "they are what the model recommends"
    assert new["users"] == 30


def test_models_that_place_no_new_users_have_no_accuracy(
    shop: Path, log: object, tmp_path: Path, open_client: Callable[..., TestClient]
) -> None:
    create("popularity").fit(log).save(tmp_path / "popular")
    answer = open_client(tmp_path / "popular").get("/v1/quality").json()
    assert answer["version"] == 1


def test_a_percentile_is_the_share_of_lower_scores(client: TestClient) -> None:
    items = client.get("/v1/map").json()["item"]
    pairs = [{"user": "u001", "item": item} for item in items]
    scores = client.post("/v1/scores", json={"pairs": pairs}).json()["scores"]
    values = np.array([entry["score"] for entry in scores])
    for entry in (scores[0], scores[30]):
        why = client.get(f"/v1/explanation?user=u001&item={entry['item']}").json()
        assert why["percentile"] == pytest.approx(100 * (values < entry["score"]).mean(), abs=2)


def test_evidence_grows_with_users_and_history(client: TestClient) -> None:
    items = client.get("/v1/map").json()["item"]
    body = {"session": items[:1], "k": 3, "explain": True}
    for entry in client.post("/v1/session", json=body).json()["items"]:
        users = client.get(f"/v1/items/{entry['item']}").json()["users"]
        assert (entry["reason"]["users"], entry["reason"]["evidence"]) == (users, "weak")
    session = {"session": items[:12], "item": items[20]}
    assert client.post("/v1/explanation", json=session).json()["evidence"] != "weak"


def test_users_have_cards(client: TestClient) -> None:
    [card] = client.get("/v1/search?q=u001&kind=users&k=1").json()["users"]
    facts = client.get("/v1/users/u001").json()
    assert card["count"] == facts["count"]
    names = [name for entry in facts["history"] for name in entry["categories"]]
    assert card["categories"][0] == max(sorted(set(names)), key=names.count) or names.count(
        card["categories"][0]
    ) == max(map(names.count, names))


def test_another_version_is_served_on_request_of_an_admin(
    shop: Path, tmp_path: Path, open_client: Callable[..., TestClient]
) -> None:
    versions = Versions(shop / "shop")
    versions.switch(versions.add(load(shop / "shop")))
    (tmp_path / "tokens").write_text(
        "shop read,write,metrics a-token-of-some-length\nops admin another-token-of-length\n"
    )
    client = open_client(shop / "shop", token_file=tmp_path / "tokens")

    def switch(token: str, version: int) -> tuple[int, str]:
        headers = {"authorization": f"Bearer {token}"}
        answer = client.post("/v1/models/current", json={"version": version}, headers=headers)
        return answer.status_code, answer.text

    assert switch("a-token-of-some-length", 1)[0] == 403
    status, text = switch("another-token-of-length", 7)
    assert (status, str(shop) in text) == (404, False)
    (shop / "shop" / "model.safetensors").write_bytes(b"damaged")
    status, text = switch("another-token-of-length", 1)
    assert (status, str(shop) in text, versions.current()) == (409, False, 2)
    assert switch("another-token-of-length", 2)[0] == 200
