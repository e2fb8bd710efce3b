"""`Client` and `AsyncClient`: the service as Python methods, with timeouts and retries.

Both clients share everything but the call of httpx. Retries need no library: the delay depends on
the `Retry-After` header, and the rest is a short loop.
"""

from __future__ import annotations

import asyncio
import random
import time as clock
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from itertools import count
from types import MethodType
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    Unpack,
    overload,
)
from urllib.parse import quote
from uuid import uuid4

import httpx

from transcf.data.ids import Id
from transcf.errors import ParameterError, ServiceError, shown
from transcf.serving import schemas
from transcf.serving.schemas import Options

P = ParamSpec("P")
T = TypeVar("T")
_Outcome: TypeAlias = httpx.Response | httpx.TransportError

#: Status codes after which a request is repeated.
_RETRIED = (429, 502, 503, 504)
#: Seconds before the first retry, and the longest delay, whatever the service asks for.
_FIRST_DELAY, _MAX_DELAY = 0.1, 30.0


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request with an answer of type T. It may be repeated, since events have keys.

    `path` is below `/v1/`, with percent-encoded ids; without a `body` the request is a GET.
    """

    path: str
    params: Mapping[str, Any] | None = None
    body: Mapping[str, Any] | None = None


def encode_id(value: Id) -> str:
    """Encode an id as the last segment of a path; `..` would change the path."""
    text = quote(str(value), safe="")
    return text.replace(".", "%2E") if text in (".", "..") else text


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop arguments that are None, and turn iterables into lists."""
    return {
        name: list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
        for name, value in values.items()
        if value is not None
    }


def _with_key(event: Mapping[str, Any]) -> dict[str, Any]:
    return {**event} if event.get("key") is not None else {**event, "key": uuid4().hex}


class _Method(Generic[P, T]):
    """Decorates a method that builds a call: the method of a client sends it."""

    def __init__(self, build: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._build = build

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Any:
        if client is None:
            return self._build
        build = MethodType(self._build, client)
        return wraps(build)(lambda *args, **kwargs: client.send(build(*args, **kwargs)))


class _Connection:
    """What both clients share: methods, checked arguments, retry delays and answers."""

    _http_class: ClassVar[Any]

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 3,
        transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise ParameterError(
                f"url={shown(url)} is not allowed; it must start with http:// or https://."
            )
        if not timeout > 0:
            raise ParameterError(f"timeout={shown(timeout)} is not allowed; it must be above 0.")
        if retries < 0:
            raise ParameterError(f"retries={shown(retries)} is not allowed; it must be at least 0.")
        self._url, self._retries = url.rstrip("/"), retries
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = self._http_class(transport=transport, headers=headers, timeout=timeout)

    @_Method
    def recommend(
        self, user: Id, k: int = 10, **options: Unpack[Options]
    ) -> Call[schemas.Recommendations]:
        """Recommend items to a user.

        Args:
            user: User id; unknown users get popular items (see `source`).
            k: Longest list.
            options: `exclude_seen`, `categories`, `exclude`, `items` and `explain`; see
                `transcf.serving.schemas.Options`.
        """
        given: dict[str, Any] = {"k": k, **options}
        given["category"] = given.pop("categories", None)
        return Call(f"recommendations/{encode_id(user)}", _given(given))

    @_Method
    def recommend_many(
        self, users: Iterable[Id], k: int = 10, **options: Unpack[Options]
    ) -> Call[schemas.ManyRecommendations]:
        """Recommend items to many users in one request; see `recommend`."""
        return Call("recommendations", body=_given({"users": users, "k": k, **options}))

    @_Method
    def recommend_for(
        self, session: Iterable[Id], k: int = 10, **options: Unpack[Options]
    ) -> Call[schemas.SessionRecommendations]:
        """Recommend items for a session, its oldest item first; see `recommend`."""
        return Call("session", body=_given({"session": session, "k": k, **options}))

    @_Method
    def similar_items(self, item: Id, k: int = 10) -> Call[schemas.SimilarItems]:
        """Find the items most similar to an item."""
        return Call(f"similar-items/{encode_id(item)}", {"k": k})

    @_Method
    def similar_users(self, user: Id, k: int = 10) -> Call[schemas.SimilarUsers]:
        """Find the users most similar to a user."""
        return Call(f"similar-users/{encode_id(user)}", {"k": k})

    @_Method
    def explain(self, user: Id, item: Id, top: int = 5) -> Call[schemas.Explained]:
        """Explain the score of an item by the items of a user's history."""
        return Call("explanation", {"user": user, "item": item, "top": top})

    @_Method
    def explain_for(self, session: Iterable[Id], item: Id, top: int = 5) -> Call[schemas.Explained]:
        """Explain the score of an item by the items of a session."""
        return Call("explanation", body={"session": list(session), "item": item, "top": top})

    @_Method
    def score(self, pairs: Iterable[tuple[Id, Id]]) -> Call[schemas.PairScores]:
        """Score (user, item) pairs."""
        body = {"pairs": [{"user": user, "item": item} for user, item in pairs]}
        return Call("scores", body=body)

    @_Method
    def item(self, item: Id) -> Call[schemas.ItemFacts]:
        """Return the metadata of an item."""
        return Call(f"items/{encode_id(item)}")

    @_Method
    def user(self, user: Id, limit: int = 100) -> Call[schemas.UserFacts]:
        """Return the history of a user, newest first."""
        return Call(f"users/{encode_id(user)}", {"limit": limit})

    @_Method
    def search(
        self, text: str, kind: Literal["items", "users", "categories", "all"] = "all", k: int = 20
    ) -> Call[schemas.Found]:
        """Find items by title and id, users by id, and categories by name."""
        return Call("search", {"q": text, "kind": kind, "k": k})

    @_Method
    def models(self) -> Call[dict[str, Any]]:
        """Return settings, metrics, checksums and versions of the served model."""
        return Call("models")

    @_Method
    def send_event(
        self,
        user: Id,
        item: Id,
        *,
        time: float | None = None,
        rating: float | None = None,
        key: str | None = None,
    ) -> Call[schemas.Stored]:
        """Store an event; it is durable when this returns.

        Args:
            user: User id, known or new.
            item: Item id, known or new.
            time: Seconds since 1970; None for now.
            rating: Optional rating.
            key: Idempotency key: an event with a known key is not stored again. None generates one.
        """
        event = {"user": user, "item": item, "time": time, "rating": rating, "key": key}
        return Call("events", body=_with_key(_given(event)))

    @_Method
    def send_events(self, events: Iterable[schemas.Event]) -> Call[schemas.Stored]:
        """Store events in one request, all or none; see `send_event`."""
        return Call("events", body={"events": [_with_key(event) for event in events]})

    def _request(self, call: Call[Any]) -> dict[str, Any]:
        """Return the arguments of httpx's `request`."""
        method, url = "GET" if call.body is None else "POST", f"{self._url}/v1/{call.path}"
        return {"method": method, "url": url, "params": call.params, "json": call.body}

    def _delay(self, attempt: int, outcome: _Outcome) -> float | None:
        """Return the seconds before the next attempt; None if there is none."""
        wanted = ""
        if isinstance(outcome, httpx.Response):
            if outcome.status_code not in _RETRIED:
                return None
            wanted = outcome.headers.get("retry-after", "")
        if attempt >= self._retries:
            return None
        if wanted.isdigit():
            return min(float(wanted), _MAX_DELAY)
        jitter = random.uniform(0.5, 1.0)  # clients that were refused together return one by one
        return float(min(_FIRST_DELAY * 2**attempt, _MAX_DELAY) * jitter)

    def _read(self, call: Call[T], outcome: _Outcome) -> T:
        """Return the JSON of an answer, or raise the error of the service."""
        if not isinstance(outcome, httpx.Response):
            late = isinstance(outcome, httpx.TimeoutException)
            kind = type(outcome).__name__
            what = "did not answer in time" if late else f"cannot be reached ({kind})"
            tries = f" in {self._retries + 1} attempts" if self._retries else ""
            sentence = f"The service at {self._url} {what}{tries}: is it running?"
            raise ServiceError(sentence, code="away") from outcome
        content: Any = None
        with suppress(ValueError):
            content = outcome.json()
        if outcome.is_success and content is not None:
            answer: T = content
            return answer
        error = content.get("error") if isinstance(content, dict) else None
        error = error if isinstance(error, dict) else {}
        default = f"The service at {self._url} answered {outcome.status_code} without a reason."
        code, message = str(error.get("code", "")), str(error.get("message", default))
        raise ServiceError(message, code=code, status=outcome.status_code)


class Client(_Connection):
    """Client of a service that `transcf serve` runs; threads may share it.

    Every method raises a `ServiceError` with the sentence of the service. Answers are the
    dictionaries of docs/reference/service.md; `transcf.serving.schemas` has their types.

    Args:
        url: Address of the service.
        token: Token, if the service requires one.
        timeout: Seconds for each attempt.
        retries: How often a request is repeated if it gets no answer or the service is busy.
        transport: Transport of httpx, for tests and proxies.

    Example:
        >>> with Client("http://127.0.0.1:8080") as shop:  # doctest: +SKIP
        ...     _ = shop.send_event("ann", "i042")
        ...     [entry["title"] for entry in shop.recommend("ann", k=2)["items"]]
        ['Dark Oolong No. 7', 'Smoky Assam No. 112']
    """

    _http_class = httpx.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send a call, repeat it if necessary, and return its answer."""
        for attempt in count():
            try:
                outcome: _Outcome = self._http.request(**self._request(call))
            except httpx.TransportError as error:
                outcome = error
            delay = self._delay(attempt, outcome)
            if delay is None:
                break
            clock.sleep(delay)
        return self._read(call, outcome)


class AsyncClient(_Connection):
    """Asynchronous client; arguments and methods are those of `Client`.

    Example:
        >>> async def titles(user: str) -> list[str | None]:
        ...     async with AsyncClient("http://127.0.0.1:8080") as shop:
        ...         return [entry["title"] for entry in (await shop.recommend(user))["items"]]
    """

    _http_class = httpx.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send a call, repeat it if necessary, and return its answer."""
        for attempt in count():
            try:
                outcome: _Outcome = await self._http.request(**self._request(call))
            except httpx.TransportError as error:
                outcome = error
            delay = self._delay(attempt, outcome)
            if delay is None:
                break
            await asyncio.sleep(delay)
        return self._read(call, outcome)
