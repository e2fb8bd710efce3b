"""Clients: typed answers of a real service, and patience with one that is busy or away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NotRequired, get_origin, get_type_hints

import httpx
import pytest
from tests.serving.processes import living

from transcf.errors import ParameterError, ServiceError
from transcf.serving import AsyncClient, Client, schemas

STRANGE = ["a/b", "..", ".", "é 😀", "100%", "x?y#z", "%2F"]


@pytest.fixture(scope="module")
def url(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    events = str(tmp_path_factory.mktemp("events") / "events.db")
    with living(trained / "shop", items=trained / "items.csv", events=events) as address:
        yield address


def fits(answer: Any, kind: type) -> bool:
    """Whether an answer has the fields that its type has, no more, and none is missing."""
    hints = get_type_hints(kind, include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    return set(hints) - optional <= set(answer) <= set(hints)


def test_every_method_gives_what_its_type_says(url: str) -> None:
    with Client(url) as shop:
        one = shop.recommend("u001", k=3, explain=True)
        first, second = (entry["item"] for entry in one["items"][:2])
        answers: list[tuple[Any, type]] = [
            (one, schemas.Recommendations),
            (one["items"][0], schemas.RankedItem),
            (one["items"][0]["reason"], schemas.Reason),
            (shop.recommend_many(["u001", "u002"], 2), schemas.ManyRecommendations),
            (shop.recommend_for([first, second], 2), schemas.SessionRecommendations),
            (shop.similar_items(first), schemas.SimilarItems),
            (shop.similar_users("u001"), schemas.SimilarUsers),
            (shop.explain("u001", first), schemas.Explained),
            (shop.explain_for([second], first), schemas.Explained),
            (shop.score([("u001", first)]), schemas.PairScores),
            (shop.item(first), schemas.ItemFacts),
            (shop.user("u001"), schemas.UserFacts),
            (shop.user("u001")["history"][0], schemas.PastItem),
            (shop.search("u"), schemas.Found),
            (shop.send_event("somebody", first, rating=4.0), schemas.Stored),
        ]
        for answer, kind in answers:
            assert fits(answer, kind), (kind.__name__, sorted(answer))
        assert shop.models()["version"] == 1


def test_options_narrow_lists(url: str) -> None:
    with Client(url) as shop:
        [category] = shop.recommend("u001", 1)["items"][0]["categories"]
        kept = shop.recommend("u001", 5, categories=[category], exclude_seen=False)["items"]
        assert kept
        assert all(entry["categories"] == [category] for entry in kept)
        names = [entry["item"] for entry in kept]
        left = shop.recommend("u001", 5, items=names, exclude=names[:1], exclude_seen=False)
        assert {entry["item"] for entry in left["items"]} == set(names[1:])
        both = shop.recommend_many(["u001"], 5, categories=[category], exclude_seen=False)
        assert both["answers"][0]["items"] == kept


@pytest.mark.parametrize("name", STRANGE)
def test_any_id_comes_through(url: str, name: str) -> None:
    with Client(url) as shop:
        assert shop.recommend(name, 1)["user"] == name
        stored = shop.send_events([{"user": name, "item": name, "key": f"key of {name}"}])
        again = shop.send_event(name, name, key=f"key of {name}")
        assert (stored["stored"], again["stored"], again["repeated"]) == (1, 0, 1)
        assert shop.user(name)["history"][0]["item"] == name
        with pytest.raises(ServiceError, match="unknown") as refused:
            shop.item(f"{name}!")
        assert (refused.value.code, refused.value.status) == ("unknown", 404)


def test_the_other_client_says_the_same(url: str) -> None:
    async def ask() -> Any:
        async with AsyncClient(url) as shop:
            lists = await asyncio.gather(*(shop.recommend(f"u{n:03}", 3) for n in (1, 2)))
            with pytest.raises(ServiceError, match="unknown"):
                await shop.item("nothing")
            return lists

    with Client(url) as shop:
        assert asyncio.run(ask()) == [shop.recommend("u001", 3), shop.recommend("u002", 3)]
    methods = {name for name in vars(Client) if not name.startswith("_")}
    assert methods == {name for name in vars(AsyncClient) if not name.startswith("_")}


def busy(
    times: int, refusal: Callable[[], httpx.Response]
) -> tuple[httpx.MockTransport, list[Any]]:
    """A service that refuses some times, then answers with what it was asked."""
    seen: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content or b"null"))
        return refusal() if len(seen) <= times else httpx.Response(200, json={"stored": 1})

    return httpx.MockTransport(answer), seen


def away() -> httpx.Response:
    raise httpx.ConnectError("nobody there")


def late() -> httpx.Response:
    raise httpx.ReadTimeout("too slow")


def overloaded() -> httpx.Response:
    error = {"code": "overloaded", "message": "Too many."}
    return httpx.Response(503, json={"error": error}, headers={"Retry-After": "7"})


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that a client wanted to wait; it does not."""
    waited: list[float] = []
    monkeypatch.setattr("transcf.serving.client.clock.sleep", waited.append)
    return waited


@pytest.mark.parametrize("refusal", [away, late, overloaded])
def test_events_are_sent_again_under_the_same_key(
    refusal: Callable[[], httpx.Response], pauses: list[float]
) -> None:
    transport, seen = busy(2, refusal)
    with Client(transport=transport) as shop:
        shop.send_events(
            [{"user": "ann", "item": "tea"}, {"user": "bob", "item": "cup", "key": "k"}]
        )
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["events"][0]["key"] != seen[0]["events"][1]["key"] == "k"
    if refusal is overloaded:
        assert pauses == [7, 7], "as the service asked for"
    else:
        assert 0.05 <= pauses[0] <= 0.1 <= pauses[1] <= 0.2


@pytest.mark.parametrize(
    ("refusal", "code"), [(away, "away"), (late, "away"), (overloaded, "overloaded")]
)
def test_patience_has_an_end(
    refusal: Callable[[], httpx.Response], code: str, pauses: list[float]
) -> None:
    transport, seen = busy(99, refusal)
    with Client(transport=transport, retries=2) as shop, pytest.raises(ServiceError) as given_up:
        shop.models()
    assert (len(seen), len(pauses), given_up.value.code) == (3, 2, code)
    assert "\n" not in str(given_up.value)


def test_what_is_wrong_is_not_asked_again(pauses: list[float]) -> None:
    transport, seen = busy(9, lambda: httpx.Response(422, text="<html>not ours</html>"))
    with Client(transport=transport) as shop, pytest.raises(ServiceError, match="answered 422"):
        shop.models()
    assert (len(seen), pauses) == (1, [])


def test_tokens(trained: Path, tmp_path: Path) -> None:
    token = "a-token-of-some-length"
    (tmp_path / "token").write_text(token)
    events = str(tmp_path / "events.db")
    with living(trained / "shop", events=events, token_file=tmp_path / "token") as url:
        with Client(url, token=token) as shop:
            assert shop.models()["version"] == 1
        with Client(url, token="wrong") as shop, pytest.raises(ServiceError) as refused:
            shop.models()
    assert (refused.value.code, token in str(refused.value)) == ("unauthorized", False)


@pytest.mark.parametrize("wrong", [{"url": "localhost:8080"}, {"timeout": 0}, {"retries": -1}])
def test_wrong_arguments_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        Client(**wrong)
