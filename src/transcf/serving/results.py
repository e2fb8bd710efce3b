"""What the service answers, as types; docs/serving.md says what the fields mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from transcf.data.ids import Id

Source: TypeAlias = Literal["model", "folded_in", "popular"]


class Options(TypedDict, total=False):
    """What narrows recommendations.

    Attributes:
        exclude_seen: Whether what somebody has is left out (it is, unless told otherwise).
        categories: Only items of any of these.
        exclude: Items to leave out.
        items: The only items to choose from.
        explain: Whether to say why, in `reason`.
    """

    exclude_seen: bool
    categories: Iterable[str]
    exclude: Iterable[Id]
    items: Iterable[Id]
    explain: bool


class Effect(TypedDict):
    """What a past item does to a score; see `Recommender.explain`."""

    item: Id
    title: str | None
    effect: float
    share: float


class Reason(TypedDict):
    """Why an item is recommended."""

    sentence: str
    effects: list[Effect]


class RankedItem(TypedDict):
    """An item of a list; `reason` is there where reasons were asked for."""

    item: Id
    title: str | None
    categories: list[str]
    score: float
    rank: int
    reason: NotRequired[Reason | None]


class Recommendations(TypedDict):
    """A list for a user; `version` is missing in the answers of many users.

    `ignored` counts unknown ids in `items` and `exclude`; it is missing if there are none.
    """

    version: NotRequired[int]
    ignored: NotRequired[int]
    user: Id
    source: Source
    items: list[RankedItem]


class ManyRecommendations(TypedDict):
    """Lists for many users; `ignored` as in `Recommendations`."""

    version: int
    ignored: NotRequired[int]
    answers: list[Recommendations]


class SessionRecommendations(TypedDict):
    """A list for a session; `skipped` are items of the session that the model does not know.

    `ignored` as in `Recommendations`.
    """

    version: int
    ignored: NotRequired[int]
    source: Source
    skipped: list[Id]
    items: list[RankedItem]


class SimilarItems(TypedDict):
    """Items near an item."""

    version: int
    item: Id
    items: list[RankedItem]


class RankedUser(TypedDict):
    """A user of a list."""

    user: Id
    score: float
    rank: int


class SimilarUsers(TypedDict):
    """Users near a user."""

    version: int
    user: Id
    users: list[RankedUser]


class Explained(TypedDict):
    """Why an item has its score; `user` is None for a session."""

    version: int
    user: Id | None
    item: Id
    title: str | None
    score: float
    source: Source
    sentence: str
    meaning: str
    effects: list[Effect]
    others: int
    others_drew: float
    others_pushed: float
    notes: list[str]
    details: dict[str, Any]


class PairScore(TypedDict):
    """A score, None where the model does not know one of the two."""

    user: Id
    item: Id
    score: float | None


class PairScores(TypedDict):
    """Scores in the order of the pairs."""

    version: int
    scores: list[PairScore]


class ItemFacts(TypedDict):
    """What is known of an item; `users` is how many have it in the training data."""

    version: int
    item: Id
    title: str | None
    categories: list[str]
    facts: dict[str, Any]
    users: int
    known: bool


# "from" is a word of Python's own.
PastItem = TypedDict(
    "PastItem",
    {
        "item": Id,
        "title": str | None,
        "categories": list[str],
        "from": Literal["event", "training"],
        "time": float | None,
    },
)


class UserFacts(TypedDict):
    """A user's history, newest first, `count` in all."""

    version: int
    user: Id
    known: bool
    source: Source
    count: int
    history: list[PastItem]


class FoundItem(TypedDict):
    """An item that was found."""

    item: Id
    title: str | None
    categories: list[str]
    users: int


class FoundUser(TypedDict):
    """A user who was found."""

    user: Id
    count: int


class Found(TypedDict):
    """What a search found."""

    version: int
    items: list[FoundItem]
    users: list[FoundUser]


class Event(TypedDict):
    """Somebody took something; `time` in seconds since 1970."""

    user: Id
    item: Id
    time: NotRequired[float]
    rating: NotRequired[float]
    key: NotRequired[str]


class Stored(TypedDict):
    """What became of events: all of them are on the disk."""

    stored: int
    repeated: int
    last: int
