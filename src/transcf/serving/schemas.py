"""What requests and answers look like, for checks and for the description of the service."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)

from transcf.serving.limits import (
    LONGEST_ID,
    LONGEST_KEY,
    MOST_EVENTS,
    MOST_ITEMS,
    MOST_LINES,
    MOST_PAIRS,
    MOST_REASONS,
    MOST_USERS,
)


def _sound(text: str) -> str:
    """Refuse what cannot be stored: NUL, and halves of characters."""
    if "\0" in text:
        raise ValueError("it has a NUL in it")
    if not text.isascii() and text.encode("utf-8", "replace").decode() != text:
        raise ValueError("it is not Unicode")
    return text


Text: TypeAlias = Annotated[StrictStr, AfterValidator(_sound)]
#: An id as the application has it.
AnyId: TypeAlias = (
    Annotated[Text, Field(min_length=1, max_length=LONGEST_ID)]
    | Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
)
#: An id in a path or a query, where all is text.
AnyText: TypeAlias = Annotated[
    str, AfterValidator(_sound), Field(min_length=1, max_length=LONGEST_ID)
]
Several: TypeAlias = Annotated[list[AnyText], Field(max_length=MOST_ITEMS)]
Length: TypeAlias = Annotated[int, Field(ge=0, le=MOST_ITEMS)]
Ids: TypeAlias = Annotated[list[AnyId], Field(max_length=MOST_ITEMS)]
Number: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e15, le=1e15)]


class Asked(BaseModel):
    """Refuses fields that nobody knows."""

    model_config = ConfigDict(extra="forbid")


class Wished(Asked):
    """What a list should be like."""

    k: Annotated[StrictInt, Field(ge=0, le=MOST_ITEMS)] = 10
    exclude_seen: StrictBool = True
    categories: Annotated[list[Text], Field(max_length=MOST_ITEMS)] | None = None
    exclude: Ids | None = None
    items: Ids | None = None
    explain: StrictBool = False

    @model_validator(mode="after")
    def _few_reasons(self) -> Wished:
        check_reasons(self.k, self.explain)
        return self


def check_reasons(k: int, explain: bool) -> None:
    """Raise a ValueError where more is to be explained than may be."""
    if explain and k > MOST_REASONS:
        raise ValueError(f"explain takes a k of at most {MOST_REASONS}")


class UserAsked(BaseModel):
    """A list for one user, as a path and a query ask for it; see `routes.reading`."""

    user: Annotated[AnyText, Field(description="Id of the user, percent-encoded.")]
    k: Annotated[Length, Field(description="Longest list.")] = 10
    exclude_seen: Annotated[bool, Field(description="Leave out what the user has.")] = True
    category: Annotated[Several, Field(description="Only items of these categories.")] = []
    exclude: Annotated[Several, Field(description="Items to leave out.")] = []
    items: Annotated[Several, Field(description="The only items to choose from.")] = []
    explain: Annotated[bool, Field(description="Say why.")] = False

    @model_validator(mode="after")
    def _few_reasons(self) -> UserAsked:
        check_reasons(self.k, self.explain)
        return self


class UsersAsked(Wished):
    """Lists for many users."""

    users: Annotated[list[AnyId], Field(min_length=1, max_length=MOST_USERS)]

    @model_validator(mode="after")
    def _few_lines(self) -> UsersAsked:
        if len(self.users) * self.k > MOST_LINES:
            raise ValueError(f"users times k is at most {MOST_LINES:,}")
        if self.explain and len(self.users) * self.k > MOST_REASONS:
            raise ValueError(f"explain takes users times k of at most {MOST_REASONS}")
        return self


class SessionAsked(Wished):
    """A list for somebody of whom only a session is known."""

    session: Ids


class WhyAsked(Asked):
    """Why an item has its score for a session."""

    session: Annotated[list[AnyId], Field(min_length=1, max_length=MOST_ITEMS)]
    item: AnyId
    top: Annotated[StrictInt, Field(ge=1, le=MOST_REASONS)] = 5


class Pair(Asked):
    """A user and an item."""

    user: AnyId
    item: AnyId


class ScoresAsked(Asked):
    """Pairs to be scored."""

    pairs: Annotated[list[Pair], Field(max_length=MOST_PAIRS)]


class PositionAsked(Asked):
    """Where a user or a session stands on the map."""

    user: AnyId | None = None
    session: Ids | None = None
    toward: Annotated[list[AnyId], Field(max_length=100)] = []

    @model_validator(mode="after")
    def _one_of_both(self) -> PositionAsked:
        if (self.user is None) == (self.session is None):
            raise ValueError("give either user or session")
        return self


class EventSent(Asked):
    """One event."""

    user: AnyId
    item: AnyId
    time: Annotated[Number, Field(description="Seconds since 1970.")] | None = None
    rating: Number | None = None
    key: Annotated[Text, Field(min_length=1, max_length=LONGEST_KEY)] | None = None


class EventsSent(Asked):
    """Many events."""

    events: Annotated[list[EventSent], Field(min_length=1, max_length=MOST_EVENTS)]


# -- answers: for the description alone, since they are written as they are made ----------------


class Effect(BaseModel):
    """What a past item did."""

    item: str | int
    title: str | None
    effect: float
    share: float


class Reason(BaseModel):
    """Why an item is in a list."""

    sentence: str
    effects: list[Effect]


class Item(BaseModel):
    """An item in an answer."""

    item: str | int
    title: str | None
    categories: list[str]


class Listed(Item):
    """An item in a list."""

    score: float
    rank: int
    reason: Reason | None = None


IgnoredIds: TypeAlias = Annotated[
    int, Field(description="Unknown ids in items and exclude, which were skipped.")
]


class Answer(BaseModel):
    """A list for a user."""

    version: int
    stale: bool = False
    ignored: IgnoredIds = 0
    user: str | int
    source: Literal["model", "folded_in", "popular"]
    items: list[Listed]


class Problem(BaseModel):
    """What is wrong."""

    error: dict[str, Any]


class SessionAnswer(BaseModel):
    """A list for a session."""

    version: int
    stale: bool = False
    ignored: IgnoredIds = 0
    skipped: list[str | int]
    source: Literal["folded_in", "popular"]
    items: list[Listed]


class UserList(BaseModel):
    """A list for one of many users."""

    user: str | int
    source: Literal["model", "folded_in", "popular"]
    items: list[Listed]


class UsersAnswer(BaseModel):
    """Lists for many users."""

    version: int
    stale: bool = False
    ignored: IgnoredIds = 0
    answers: list[UserList]
