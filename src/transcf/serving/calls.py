"""What clients ask of the service: each question as a `Call`.

Both clients send the same calls, so that a route is written down once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import uuid4

from transcf.data.ids import Id
from transcf.serving.results import (
    Event,
    Explained,
    Found,
    ItemFacts,
    ManyRecommendations,
    Options,
    PairScores,
    Recommendations,
    SessionRecommendations,
    SimilarItems,
    SimilarUsers,
    Stored,
    UserFacts,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    """A question, and what kind of answer it has.

    Every call may be repeated: it reads, or it stores events that have keys.

    Attributes:
        path: Under `/v1/`, ids percent-encoded.
        params: Of the query.
        body: JSON to post; None asks by GET.
    """

    path: str
    params: Mapping[str, Any] | None = None
    body: Mapping[str, Any] | None = None

    @property
    def method(self) -> str:
        """GET or POST."""
        return "GET" if self.body is None else "POST"


def encoded(value: Id) -> str:
    """Write an id as the last part of a path.

    Example:
        >>> encoded("a/b"), encoded(".."), encoded(7)
        ('a%2Fb', '%2E%2E', '7')
    """
    text = quote(str(value), safe="")
    return text.replace(".", "%2E") if text in (".", "..") else text


def recommend(user: Id, k: int, options: Options) -> Call[Recommendations]:
    """Ask for a user's list, by GET."""
    given: dict[str, Any] = {"k": k, **options}
    given["category"] = given.pop("categories", None)  # said once for each in an address
    return Call(f"recommendations/{encoded(user)}", _given(given))


def recommend_many(users: Iterable[Id], k: int, options: Options) -> Call[ManyRecommendations]:
    """Ask for lists of many users."""
    return Call("recommendations", body=_given({"users": users, "k": k, **options}))


def recommend_for(session: Iterable[Id], k: int, options: Options) -> Call[SessionRecommendations]:
    """Ask for the list of a session."""
    return Call("session", body=_given({"session": session, "k": k, **options}))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what was not said: the service has its own defaults."""
    return {
        name: list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
        for name, value in values.items()
        if value is not None
    }


def similar_items(item: Id, k: int) -> Call[SimilarItems]:
    """Ask for items near an item."""
    return Call(f"similar-items/{encoded(item)}", {"k": k})


def similar_users(user: Id, k: int) -> Call[SimilarUsers]:
    """Ask for users near a user."""
    return Call(f"similar-users/{encoded(user)}", {"k": k})


def explain(user: Id, item: Id, top: int) -> Call[Explained]:
    """Ask why an item has its score for a user."""
    return Call("explanation", {"user": user, "item": item, "top": top})


def explain_for(session: Iterable[Id], item: Id, top: int) -> Call[Explained]:
    """Ask the same for a session."""
    return Call("explanation", body={"session": list(session), "item": item, "top": top})


def score(pairs: Iterable[tuple[Id, Id]]) -> Call[PairScores]:
    """Ask for scores of (user, item) pairs."""
    return Call("scores", body={"pairs": [{"user": user, "item": item} for user, item in pairs]})


def item(item_id: Id) -> Call[ItemFacts]:
    """Ask for an item's facts."""
    return Call(f"items/{encoded(item_id)}")


def user(user_id: Id, limit: int) -> Call[UserFacts]:
    """Ask for a user's history."""
    return Call(f"users/{encoded(user_id)}", {"limit": limit})


def search(text: str, kind: str, k: int) -> Call[Found]:
    """Ask who and what has a text in its id or title."""
    return Call("search", {"q": text, "kind": kind, "k": k})


def models() -> Call[dict[str, Any]]:
    """Ask what is served."""
    return Call("models")


def send_event(user: Id, item: Id, **more: Any) -> Call[Stored]:
    """Store an event."""
    return Call("events", body=_keyed({"user": user, "item": item, **_given(more)}))


def send_events(events: Iterable[Event]) -> Call[Stored]:
    """Store events."""
    return Call("events", body={"events": [_keyed({**event}) for event in events]})


def _keyed(event: dict[str, Any]) -> dict[str, Any]:
    """Give an event a key if it has none, so that it may be sent again."""
    return event if event.get("key") is not None else event | {"key": uuid4().hex}
