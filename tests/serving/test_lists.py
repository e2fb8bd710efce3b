"""The service gives what the library gives, whoever asks at the same moment."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import transcf
from transcf.data.interactions import Interactions
from transcf.models.registry import create
from transcf.serving.events import EventCache, EventStore
from transcf.serving.model_version import SHARED_FOLDER, ModelVersion
from transcf.serving.ranking import rank, resolve
from transcf.serving.schemas import RecommendOptions


def listed(answer: dict[str, Any]) -> list[Any]:
    return [entry["item"] for entry in answer["items"]]


@pytest.fixture(scope="module")
def model(trained: Path) -> Any:
    return transcf.load(trained / "shop")


def test_users_get_what_the_model_recommends(client: TestClient, model: Any) -> None:
    table = model.recommend("u005", k=7)
    found = client.get("/v1/recommendations/u005", params={"k": 7}).json()
    assert (found["source"], found["version"]) == ("model", 1)
    assert listed(found) == table["item_id"].to_list()
    assert [entry["score"] for entry in found["items"]] == pytest.approx(
        table["score"].to_list(), rel=1e-5
    )
    assert [entry["rank"] for entry in found["items"]] == list(range(1, 8))
    assert found["items"][0]["title"]
    assert "reason" not in found["items"][0]


def test_filters_leave_what_brute_force_leaves(client: TestClient, model: Any) -> None:
    every = model.recommend("u005", k=60, exclude_seen=False)["item_id"].to_list()
    facts = {item: client.get(f"/v1/items/{item}").json() for item in every}
    kind = facts[every[0]]["categories"][0]
    wanted = [item for item in every if kind in facts[item]["categories"] and item != every[0]]
    params = {"k": 60, "exclude_seen": False, "category": kind, "exclude": every[0]}
    assert listed(client.get("/v1/recommendations/u005", params=params).json()) == wanted
    some = every[5:30:3]
    asked = {"users": ["u005"], "k": 4, "exclude_seen": False, "items": [*some, "nonsense"]}
    found = client.post("/v1/recommendations", json=asked).json()["answers"][0]
    assert listed(found) == some[:4]
    none = {"users": ["u005"], "items": []}
    assert client.post("/v1/recommendations", json=none).json()["answers"][0]["items"] == []


def test_unknown_ids_in_filters_are_counted(client: TestClient, model: Any) -> None:
    item = model.items_.series[0]
    body = {"users": ["u005"], "exclude": [item, "odd"], "items": ["odd", "strange", item]}
    assert client.post("/v1/recommendations", json=body).json()["ignored"] == 3
    session = {"session": [item], "exclude": ["odd", "odd 2"]}
    assert client.post("/v1/session", json=session).json()["ignored"] == 2
    assert client.get("/v1/recommendations/u005?exclude=odd").json()["ignored"] == 1
    assert "ignored" not in client.get(f"/v1/recommendations/u005?exclude={item}").json()


def test_strangers_get_what_is_popular(client: TestClient, log: Interactions) -> None:
    found = client.get("/v1/recommendations/..%2Fno%20body%F0%9F%8D%B5?k=5").json()
    assert (found["source"], found["user"]) == ("popular", "../no body🍵")
    counts = log.by_item.counts
    best = np.argsort(-counts, kind="stable")[:5]
    assert listed(found) == log.items.ids(best).to_list()
    assert [entry["score"] for entry in found["items"]] == counts[best].tolist()


def test_sessions_are_folded_in_in_order(client: TestClient, model: Any) -> None:
    session = model.items_.series[[3, 9, 20]].to_list()
    found = client.post("/v1/session", json={"session": [*session, "new"], "k": 6}).json()
    assert listed(found) == model.recommend_for(session, k=6)["item_id"].to_list()
    assert (found["source"], found["skipped"]) == ("folded_in", ["new"])
    for nothing in ([], ["new"]):
        empty = client.post("/v1/session", json={"session": nothing, "k": 2}).json()
        assert empty["source"] == "popular"


def test_events_count_from_the_next_request_on(client: TestClient, model: Any) -> None:
    first = listed(client.get("/v1/recommendations/u005?k=3").json())
    event = {"user": "u005", "item": first[0], "key": "one"}
    assert client.post("/v1/events", json=event).json() == {"stored": 1, "repeated": 0, "last": 1}
    assert client.post("/v1/events", json={"events": [event, event]}).json()["repeated"] == 2
    again = client.get("/v1/recommendations/u005?k=5").json()
    row = int(model.users_.rows(["u005"])[0])
    history = [*model.items_.ids(model.histories_[row]).to_list(), first[0]]
    assert again["source"] == "folded_in"
    assert listed(again) == model.recommend_for(history, k=5)["item_id"].to_list()
    client.post("/v1/events", json={"user": "brand new", "item": first[1]})
    welcome = client.get("/v1/recommendations/brand%20new?k=5").json()
    assert listed(welcome) == model.recommend_for([first[1]], k=5)["item_id"].to_list()
    facts = client.get("/v1/users/u005?limit=2").json()
    assert facts["history"][0] | {"time": 0} == {
        "item": first[0],
        "title": client.get(f"/v1/items/{first[0]}").json()["title"],
        "categories": client.get(f"/v1/items/{first[0]}").json()["categories"],
        "from": "event",
        "time": 0,
    }
    assert facts["count"] == len(history)


def test_reasons_scores_and_neighbours_are_the_model_s(client: TestClient, model: Any) -> None:
    found = client.get("/v1/recommendations/u005?k=1&explain=true").json()["items"][0]
    said = model.explain("u005", found["item"], top=3)
    assert found["reason"]["sentence"].startswith(f"{found['title']} was drawn most by ")
    assert found["reason"]["effects"][0]["title"] in found["reason"]["sentence"]
    why = client.get("/v1/explanation", params={"user": "u005", "item": found["item"]}).json()
    assert why["score"] == pytest.approx(said.score, rel=1e-5)
    assert not why["seen"]
    past = client.get("/v1/users/u005").json()["history"][0]["item"]
    assert client.get(f"/v1/explanation?user=u005&item={past}").json()["seen"]
    assert why["effects"][0]["share"] == pytest.approx(said.effects[0].share, abs=1e-5)
    session = model.items_.series[[1, 2]].to_list()
    asked = {"session": session, "item": found["item"]}
    other = client.post("/v1/explanation", json=asked).json()
    percents = re.findall(r"\d+ %", model.explain_for(session, found["item"]).sentence)
    assert re.findall(r"\d+ %", other["sentence"]) == percents
    pairs = [{"user": "u005", "item": found["item"]}, {"user": "u005", "item": "nonsense"}]
    scores = client.post("/v1/scores", json={"pairs": pairs}).json()["scores"]
    assert scores[0]["score"] == pytest.approx(said.score, rel=1e-5)
    assert scores[1]["score"] is None
    near = client.get(f"/v1/similar-items/{found['item']}?k=4").json()
    wanted = model.similar_items(found["item"], k=4)["neighbor_id"].to_list()
    assert listed(near) == wanted
    people = client.get("/v1/similar-users/u005?k=4").json()["users"]
    assert [entry["user"] for entry in people] == model.similar_users("u005", k=4)[
        "neighbor_id"
    ].to_list()


def test_search(client: TestClient) -> None:
    title = client.get("/v1/items/i07").json()["title"]
    word = title.split()[0].upper()
    found = client.get("/v1/search", params={"q": word, "kind": "items", "k": 60}).json()
    assert "i07" in [entry["item"] for entry in found["items"]]
    assert all(word.lower() in entry["title"].lower() for entry in found["items"])
    assert client.get("/v1/search?q=U00&kind=users").json()["users"][0]["user"].startswith("u00")


def test_a_list_does_not_depend_on_who_else_asks(client: TestClient, model: Any) -> None:
    users = [f"u{number:03d}" for number in range(1, 41)]
    alone = {user: model.recommend(user, k=5)["item_id"].to_list() for user in users}

    def ask(user: str) -> list[Any]:
        return listed(client.get(f"/v1/recommendations/{user}?k=5").json())

    with ThreadPoolExecutor(8) as pool:
        together = dict(zip(users, pool.map(ask, users), strict=True))
    assert together == alone
    many = client.post("/v1/recommendations", json={"users": users, "k": 5}).json()["answers"]
    assert {entry["user"]: listed(entry) for entry in many} == alone


def test_wishes_of_one_batch_are_kept_apart(trained: Path, tmp_path: Path, model: Any) -> None:
    recent = EventCache(EventStore(str(tmp_path / "events.db")))
    served = ModelVersion.load(1, trained / "shop", {}, recent)
    best = model.recommend("u005", k=4)["item_id"].to_list()
    wishes = [
        RecommendOptions(k=2),
        RecommendOptions(k=2, exclude=[best[0]]),
        RecommendOptions(k=2, exclude=[best[1]]),
        RecommendOptions(k=1),
    ]
    wishes += [RecommendOptions(k=2, exclude_seen=False), RecommendOptions(k=2, items=[best[3]])]
    people = resolve(served, ["u005"] * len(wishes))
    lists = [served.items.ids(r.items).to_list() for r in rank(served, people, wishes)]
    seen = model.recommend("u005", k=2, exclude_seen=False)["item_id"].to_list()
    assert lists == [best[:2], best[1:3], [best[0], best[2]], best[:1], seen, best[3:]]


@pytest.mark.parametrize("name", ["ease", "popularity", "bpr"])
def test_other_kinds_of_models_are_served(
    name: str,
    log: Interactions,
    tmp_path: Path,
    open_client: Callable[..., TestClient],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"dim": 4, "epochs": 1} if name == "bpr" else {}
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path / "shared"))  # as for workers
    fitted = create(name, **settings).fit(log)
    fitted.save(tmp_path / "other")
    client = open_client(tmp_path / "other")
    can = client.get("/v1/models").json()["can"]
    wanted = fitted.recommend("u005", k=3)["item_id"].to_list()
    assert listed(client.get("/v1/recommendations/u005?k=3").json()) == wanted
    client.post("/v1/events", json={"user": "u005", "item": wanted[0]})
    after = client.get("/v1/recommendations/u005?k=3&explain=true").json()
    assert wanted[0] not in listed(after)
    assert after["source"] == ("folded_in" if can["fold_in"] else "model")
    assert client.get("/v1/map?limit=3").json()["of"] == (
        "item vectors" if name == "bpr" else "interactions"
    )
    assert len(list((tmp_path / "shared").glob("*.npy"))) == (name == "bpr")
    similar = client.get("/v1/similar-users/u005").status_code
    assert similar == (200 if can["similar_users"] else 409)
