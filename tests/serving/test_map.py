"""The map: principal directions, and people where the formulas of their models put them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from transcf.data.interactions import Interactions
from transcf.models.registry import create, load


def places(answer: Any) -> np.ndarray[Any, Any]:
    return np.column_stack([answer["x"], answer["y"]])


def plane_of(model: Any, answer: Any) -> np.ndarray[Any, Any]:
    """The affine map (dim + 1, 2) that takes item vectors to their places, by least squares."""
    vectors = model.item_vectors_[model.items_.rows(answer["item"])].astype(np.float64)
    padded = np.hstack([vectors, np.ones((len(vectors), 1))])
    found, *_ = np.linalg.lstsq(padded, places(answer), rcond=None)
    assert np.allclose(padded @ found, places(answer), atol=1e-4), "one map for all items"
    return found


def test_items_are_seen_along_the_directions_of_their_greatest_spread(
    client: TestClient, shop: Path
) -> None:
    answer, model = client.get("/v1/map").json(), load(shop / "shop")
    copies = np.repeat(model.item_vectors_, model.item_counts_, axis=0).astype(np.float64)
    _, spreads, axes = np.linalg.svd(copies - copies.mean(axis=0), full_matrices=False)
    shares = spreads**2 / (spreads**2).sum()
    assert answer["shares"] == pytest.approx(shares[:2], abs=1e-4)
    seen = (model.item_vectors_ - copies.mean(axis=0)) @ axes[:2].T
    drawn = places(answer)
    wanted = seen[model.items_.rows(answer["item"])]
    signs = np.sign((drawn * wanted).sum(axis=0))
    assert np.allclose(drawn, wanted * signs, atol=1e-4)


def test_the_mixture_moves_people_once_for_each_past_item(client: TestClient, shop: Path) -> None:
    answer, model = client.get("/v1/map").json(), load(shop / "shop")
    plane, settings = plane_of(model, answer), model.settings_
    user, item = "u001", client.get("/v1/recommendations/u001?k=1").json()["items"][0]["item"]
    asked = {"user": user, "toward": [item]}
    found = client.post("/v1/map/position", json=asked).json()
    a = model.user_vectors_[model.users_.rows([user])[0]].astype(np.float64)
    b = model.item_vectors_[model.items_.rows([item])[0]].astype(np.float64)
    assert found["position"] == pytest.approx(np.append(a, 1) @ plane, abs=1e-3)
    history = model.histories_[int(model.users_.rows([user])[0])]
    p = getattr(model, "history_vectors_", model.item_vectors_)[history].astype(np.float64)
    ages = np.arange(len(history), 0, -1.0)
    weights = ages**-settings.history_decay if model.learned_.known.timed else np.ones(len(history))
    pull = weights * np.exp(-settings.tau * ((p - b) ** 2).sum(axis=1))
    shares = dict(zip(model.items_.ids(history), pull / pull.sum(), strict=True))
    moved = a + settings.tau / (settings.tau + settings.beta) * (p - a)
    there = dict(zip(shares, np.hstack([moved, np.ones((len(p), 1))]) @ plane, strict=True))
    [toward] = found["toward"]
    assert [way["item"] for way in toward["moved"]] == sorted(shares, key=lambda i: -shares[i])[:12]
    for way in toward["moved"]:
        assert way["share"] == pytest.approx(shares[way["item"]], rel=1e-4)
        assert way["position"] == pytest.approx(there[way["item"]], abs=1e-3)
    mean = sum(shares[name] * there[name] for name in shares)
    assert toward["position"] == pytest.approx(mean, abs=1e-3)


def test_the_published_form_moves_people_by_the_product_of_means(
    log: Interactions, tmp_path: Path, open_client: Callable[..., TestClient]
) -> None:
    model = create("transcf", dim=6, epochs=1).fit(log)
    model.save(tmp_path / "paper")
    client = open_client(tmp_path / "paper")
    answer = client.get("/v1/map").json()
    assert (answer["translations"], answer["categories"]) == (True, [])
    plane, item = plane_of(model, answer), answer["item"][3]
    found = client.post("/v1/map/position", json={"user": "u002", "toward": [item]}).json()
    row, other = model.users_.rows(["u002"])[0], model.items_.rows([item])[0]
    r = model.user_neighborhoods_[row] * model.item_neighborhoods_[other]
    there = np.append(model.user_vectors_[row] + r, 1) @ plane
    [toward] = found["toward"]
    assert toward["position"] == pytest.approx(there, abs=1e-3)
    assert toward["moved"] == []
    session = client.post("/v1/map/position", json={"session": [item], "toward": []}).json()
    assert session["position"] is not None


def test_models_without_vectors_have_a_map_of_who_has_what(
    log: Interactions, tmp_path: Path, open_client: Callable[..., TestClient]
) -> None:
    create("ease").fit(log).save(tmp_path / "ease")
    client = open_client(tmp_path / "ease")
    answer = client.get("/v1/map?limit=20").json()
    assert (answer["of"], answer["translations"]) == ("interactions", False)
    assert (len(answer["item"]), answer["count"]) == (20, len(log.items))
    both = client.post(
        "/v1/map/position", json={"session": answer["item"][:2], "toward": answer["item"][:1]}
    )
    assert both.json()["position"] == pytest.approx(places(answer)[:2].mean(axis=0), abs=1e-4)
    assert both.json()["toward"][0]["position"] is None


def test_neighbors_stay_neighbors_on_the_tsne_layout(
    shop: Path, open_client: Callable[..., TestClient]
) -> None:
    client, asked = open_client(shop / "shop"), "/v1/map?layout=neighbors"
    first = client.get(asked).json()
    assert first["layout"] == "tsne" or first["pending"]
    while (answer := client.get(asked).json())["pending"]:
        time.sleep(0.05)
    drawn = places(answer)
    assert answer["layout"] == "tsne"
    assert np.abs(drawn).max() == pytest.approx(10, abs=0.01)
    pca = places(client.get("/v1/map").json())
    vectors = load(shop / "shop").item_vectors_
    vectors = vectors[load(shop / "shop").items_.rows(answer["item"])]
    assert kept_neighbors(vectors, drawn) > kept_neighbors(vectors, pca)
    body = {"user": "u001", "toward": answer["item"][:1], "layout": "neighbors"}
    found = client.post("/v1/map/position", json=body).json()
    assert found["layout"] == "tsne"
    for place in (found["position"], found["toward"][0]["position"]):
        assert (np.abs(place) <= 10.01).all()
    [stored] = shop.glob("shop.versions/map-1-*.npy")
    again = open_client(shop / "shop").get(asked).json()
    assert (again["layout"], again["x"]) == ("tsne", answer["x"]), f"read from {stored}"


def kept_neighbors(vectors: Any, drawn: Any) -> float:
    """The mean share of the ten nearest vectors that are among the ten nearest places."""

    def nearest(values: Any) -> Any:
        away = np.square(values[:, None] - values[None]).sum(axis=2)
        return np.argsort(away, axis=1)[:, 1:11]

    pairs = zip(nearest(vectors), nearest(drawn), strict=True)
    return float(np.mean([len(np.intersect1d(*pair)) for pair in pairs]) / 10)


def test_principal_axes_are_used_if_tsne_fails(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transcf.serving.projection.Projection2D._compute_tsne", lambda _: 1 / 0)
    while (answer := client.get("/v1/map?layout=neighbors").json())["pending"]:
        time.sleep(0.05)
    assert answer["layout"] == "pca"
    assert answer["x"] == client.get("/v1/map").json()["x"]


def test_numbers_of_the_table_of_items_come_in_the_order_of_the_map(client: TestClient) -> None:
    answer = client.get("/v1/map?limit=20").json()
    assert answer["attributes"] == ["price"]
    values = client.get("/v1/map/attribute?name=price&limit=20").json()["values"]
    first = client.get(f"/v1/items/{answer['item'][0]}").json()["facts"]
    assert (len(values), values[0]) == (20, first["price"])
    assert client.get("/v1/map/attribute?name=title").status_code == 404
