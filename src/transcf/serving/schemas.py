"""Requests and answers of the service.

Requests are pydantic models. Answers are typed dictionaries: what queries build, what the OpenAPI
description shows and what clients return. docs/reference/service.md describes the fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    model_validator,
)
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from transcf.data.ids import Id

#: Largest number of items, users and events in a request or an answer.
MAX_ITEMS = MAX_USERS = MAX_EVENTS = 1000
#: Largest number of pairs to score, of list entries in an answer, and of explained items.
MAX_PAIRS, MAX_ENTRIES, MAX_EXPLAINED = 10_000, 100_000, 100
#: Largest number of items on the map, and of items that a position is translated toward.
MAX_POINTS, MAX_TOWARD = 200_000, 100
#: Longest id and longest event key, in characters.
MAX_ID_LENGTH, MAX_KEY_LENGTH = 1024, 200

#: How items are ranked: learned vectors, folded-in history, or popularity.
Source: TypeAlias = Literal["model", "folded_in", "popular"]


def _check_text(text: str) -> str:
    """Refuse text that cannot be stored: NUL characters and lone surrogates."""
    if "\0" in text:
        raise ValueError("It has a NUL in it")
    if not text.isascii() and text.encode("utf-8", "replace").decode() != text:
        raise ValueError("It is not Unicode")
    return text


Text: TypeAlias = Annotated[str, AfterValidator(_check_text)]
#: An id in a path or a query string.
TextId: TypeAlias = Annotated[Text, Field(min_length=1, max_length=MAX_ID_LENGTH)]
TextIds: TypeAlias = Annotated[list[TextId], Field(max_length=MAX_ITEMS)]
#: An id in JSON.
JsonId: TypeAlias = Annotated[
    TextId | Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)],
    GetPydanticSchema(  # one sentence instead of the errors of both kinds
        lambda kind, handler: (
            handler(kind)
            | {
                "custom_error_type": "id",
                "custom_error_message": f"An id is text of 1 to {MAX_ID_LENGTH:,} characters "
                "without a NUL, or an integer of 64 bits",
            }
        )
    ),
]
Ids: TypeAlias = Annotated[list[JsonId], Field(max_length=MAX_ITEMS)]
Length: TypeAlias = Annotated[int, Field(ge=0, le=MAX_ITEMS)]
Number: TypeAlias = Annotated[float, Field(allow_inf_nan=False, ge=-1e15, le=1e15)]


def json_id(value: Any) -> Any:
    """Return an id for JSON: integers above 2^53, which browsers would round, become text."""
    if isinstance(value, int) and not -(2**53) <= value <= 2**53:
        return str(value)
    return value


# -- requests ------------------------------------------------------------------------------------


class Body(BaseModel):
    """Base of JSON bodies; unknown fields and other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RecommendOptions(Body):
    """Options of recommendations."""

    k: Annotated[Length, Field(description="Longest list.")] = 10
    exclude_seen: Annotated[bool, Field(description="Leave out the user's own items.")] = True
    categories: Annotated[
        list[Text] | None, Field(max_length=MAX_ITEMS, description="Only items of these.")
    ] = None
    exclude: Annotated[Ids | None, Field(description="Items to leave out.")] = None
    items: Annotated[Ids | None, Field(description="The only items to choose from.")] = None
    explain: Annotated[bool, Field(description="Explain each item.")] = False

    @model_validator(mode="after")
    def _check_explained(self) -> RecommendOptions:
        if self.explain and self.k > MAX_EXPLAINED:
            raise ValueError(f"explain takes a k of at most {MAX_EXPLAINED}")
        return self


class UserRequest(RecommendOptions):
    """Recommendations for one user, from a path and a query string."""

    model_config = ConfigDict(extra="ignore", strict=False)

    user: Annotated[TextId, Field(description="User id, percent-encoded.")]
    categories: Annotated[
        TextIds | None, Field(alias="category", description="Only items of these categories.")
    ] = None


class UsersRequest(RecommendOptions):
    """Recommendations for many users."""

    users: Annotated[list[JsonId], Field(min_length=1, max_length=MAX_USERS)]

    @model_validator(mode="after")
    def _check_entries(self) -> UsersRequest:
        if len(self.users) * self.k > MAX_ENTRIES:
            raise ValueError(f"users times k is at most {MAX_ENTRIES:,}")
        if self.explain and len(self.users) * self.k > MAX_EXPLAINED:
            raise ValueError(f"explain takes users times k of at most {MAX_EXPLAINED}")
        return self


class SessionRequest(RecommendOptions):
    """Recommendations for a session: its items, oldest first."""

    session: Ids


class ExplainRequest(Body):
    """Explanation of an item's score for a session."""

    session: Annotated[list[JsonId], Field(min_length=1, max_length=MAX_ITEMS)]
    item: JsonId
    top: Annotated[int, Field(ge=1, le=MAX_EXPLAINED)] = 5


class Pair(Body):
    """A user and an item."""

    user: JsonId
    item: JsonId


class ScoresRequest(Body):
    """Pairs to score."""

    pairs: Annotated[list[Pair], Field(max_length=MAX_PAIRS)]


class PositionRequest(Body):
    """Position of a user or a session on the map."""

    user: JsonId | None = None
    session: Ids | None = None
    toward: Annotated[list[JsonId], Field(max_length=MAX_TOWARD)] = []
    layout: Literal["pca", "neighbors"] = "pca"

    @model_validator(mode="after")
    def _check_one(self) -> PositionRequest:
        if (self.user is None) == (self.session is None):
            raise ValueError("give either user or session")
        return self


class SwitchRequest(Body):
    """The version to serve."""

    version: Annotated[int, Field(ge=1, lt=10**9)]


class EventRequest(Body):
    """One event."""

    user: JsonId
    item: JsonId
    time: Annotated[Number, Field(description="Seconds since 1970.")] | None = None
    rating: Number | None = None
    key: Annotated[Text, Field(min_length=1, max_length=MAX_KEY_LENGTH)] | None = None


class EventsRequest(Body):
    """Many events."""

    events: Annotated[list[EventRequest], Field(min_length=1, max_length=MAX_EVENTS)]


class Options(TypedDict, total=False):
    """Options of recommendations, as arguments of clients.

    Attributes:
        exclude_seen: Whether the user's own items are left out (default True).
        categories: Only items of any of these.
        exclude: Items to leave out.
        items: The only items to choose from.
        explain: Whether each item has a `reason`.
    """

    exclude_seen: bool
    categories: Iterable[str]
    exclude: Iterable[Id]
    items: Iterable[Id]
    explain: bool


class Event(TypedDict):
    """An event that clients send; `time` is in seconds since 1970."""

    user: Id
    item: Id
    time: NotRequired[float]
    rating: NotRequired[float]
    key: NotRequired[str]


# -- answers -------------------------------------------------------------------------------------


class Problem(TypedDict):
    """An error: its code and a sentence."""

    error: dict[str, Any]


class Item(TypedDict):
    """An item with its metadata."""

    item: Id
    title: str | None
    categories: list[str]


class Effect(TypedDict):
    """Effect of a past item on a score; see `Recommender.explain`."""

    item: Id
    title: str | None
    effect: float
    share: float


class Support(TypedDict):
    """Number of training users of an item; `evidence` rates it and the length of the history."""

    users: int
    evidence: Literal["strong", "fair", "weak"]


class Reason(Support):
    """Why an item is recommended."""

    sentence: str
    effects: list[Effect]


class RankedItem(Item):
    """An item of a list; `reason` only if the request asks for it."""

    score: float
    rank: int
    reason: NotRequired[Reason | None]


class _ListAnswer(TypedDict):
    version: int
    stale: NotRequired[bool]  # true while events cannot be read
    ignored: NotRequired[int]  # number of unknown ids in `items` and `exclude`


class UserRecommendations(TypedDict):
    """The list of one of many users."""

    user: Id
    source: Source
    items: list[RankedItem]


class Recommendations(_ListAnswer, UserRecommendations):
    """The list of a user."""


class ManyRecommendations(_ListAnswer):
    """The lists of many users."""

    answers: list[UserRecommendations]


class SessionRecommendations(_ListAnswer):
    """The list of a session; `skipped` are its items that are unknown to the model."""

    skipped: list[Id]
    source: Source
    items: list[RankedItem]


class SimilarItems(TypedDict):
    """Items similar to an item."""

    version: int
    item: Id
    items: list[RankedItem]


class UserCard(TypedDict):
    """A user, the length of the history and the most frequent categories in it."""

    user: Id
    count: int
    categories: list[str]


class RankedUser(UserCard):
    """A user of a list; `common` counts the items that both users have."""

    score: float
    rank: int
    common: int


class SimilarUsers(TypedDict):
    """Users similar to a user."""

    version: int
    user: Id
    users: list[RankedUser]


class Explained(Support):
    """Explanation of a score; `user` is None for a session.

    `seen` says whether the history has the item, which lists leave out then. `percentile` is the
    share of items with a lower score for the same user, in per cent.
    """

    version: int
    user: Id | None
    item: Id
    title: str | None
    seen: bool
    score: float
    percentile: float
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
    """A score; None if the model does not know the user or the item."""

    user: Id
    item: Id
    score: float | None


class PairScores(TypedDict):
    """Scores in the order of the pairs."""

    version: int
    scores: list[PairScore]


class ItemFacts(Item):
    """Metadata of an item, the number of its training users, whether the model can rank it."""

    version: int
    facts: dict[str, Any]
    users: int
    known: bool


# "from" is a keyword, so this type cannot be written as a class.
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
    """History of a user, newest first; `count` is its full length."""

    version: int
    user: Id
    known: bool
    source: Source
    count: int
    history: list[PastItem]


class FoundItem(Item):
    """An item that a search found, and the number of its users."""

    users: int


class Category(TypedDict):
    """A category and the number of its items."""

    category: str
    items: int


class Found(TypedDict):
    """Results of a search."""

    version: int
    items: list[FoundItem]
    users: list[UserCard]
    categories: list[Category]


class Categories(TypedDict):
    """All categories, by name."""

    version: int
    categories: list[Category]


#: What accuracies are measured on; see `transcf.serving.queries.quality`.
Basis: TypeAlias = Literal["new_events", "held_out"]


class Check(TypedDict):
    """Accuracies of the model and of popularity, by metric."""

    basis: Basis
    users: int
    model: dict[str, float]
    popularity: dict[str, float]


class Quality(TypedDict):
    """Accuracy, and the share of items in at least one of the lists; None if unknown."""

    version: int
    k: int
    coverage: float | None
    checks: list[Check]


class Attribute(TypedDict):
    """A number for each item of the map; None if unknown."""

    version: int
    name: str
    values: list[float | None]


class Stored(TypedDict):
    """Numbers of new and of repeated events, and the number of the newest event."""

    stored: int
    repeated: int
    last: int
