"""`AsyncClient`: the same as `Client`, for programs that wait for many things at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

import httpx

from transcf.data.ids import Id
from transcf.serving import calls, results
from transcf.serving.calls import Call
from transcf.serving.results import Event, Options
from transcf.serving.retry import Outcome, RetryPolicy

T = TypeVar("T")


class AsyncClient:
    """Asks a service that `transcf serve` runs; see `Client`, whose arguments and methods it has.

    Example:
        >>> async def titles(user: str) -> list[str | None]:
        ...     async with AsyncClient("http://127.0.0.1:8080") as shop:
        ...         return [entry["title"] for entry in (await shop.recommend(user))["items"]]
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Connect when the first question is asked."""
        self._manners = RetryPolicy(url, token, timeout, retries)
        self._http = httpx.AsyncClient(transport=transport, **self._manners.options)

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(self, call: Call[T]) -> T:
        """Send a call, again where that is worth it, and return its answer."""
        attempt, outcome = 0, await self._sent(call)
        while (pause := self._manners.pause(attempt, outcome)) is not None:
            await asyncio.sleep(pause)
            attempt, outcome = attempt + 1, await self._sent(call)
        answer: T = self._manners.read(outcome)
        return answer

    async def _sent(self, call: Call[Any]) -> Outcome:
        try:
            return await self._http.request(**self._manners.request(call))
        except httpx.TransportError as error:
            return error

    async def recommend(
        self, user: Id, k: int = 10, **options: Unpack[Options]
    ) -> results.Recommendations:
        """As `Client.recommend`."""
        return await self.ask(calls.recommend(user, k, options))

    async def recommend_many(
        self, users: Iterable[Id], k: int = 10, **options: Unpack[Options]
    ) -> results.ManyRecommendations:
        """As `Client.recommend_many`."""
        return await self.ask(calls.recommend_many(users, k, options))

    async def recommend_for(
        self, session: Iterable[Id], k: int = 10, **options: Unpack[Options]
    ) -> results.SessionRecommendations:
        """As `Client.recommend_for`."""
        return await self.ask(calls.recommend_for(session, k, options))

    async def similar_items(self, item: Id, k: int = 10) -> results.SimilarItems:
        """As `Client.similar_items`."""
        return await self.ask(calls.similar_items(item, k))

    async def similar_users(self, user: Id, k: int = 10) -> results.SimilarUsers:
        """As `Client.similar_users`."""
        return await self.ask(calls.similar_users(user, k))

    async def explain(self, user: Id, item: Id, top: int = 5) -> results.Explained:
        """As `Client.explain`."""
        return await self.ask(calls.explain(user, item, top))

    async def explain_for(self, session: Iterable[Id], item: Id, top: int = 5) -> results.Explained:
        """As `Client.explain_for`."""
        return await self.ask(calls.explain_for(session, item, top))

    async def score(self, pairs: Iterable[tuple[Id, Id]]) -> results.PairScores:
        """As `Client.score`."""
        return await self.ask(calls.score(pairs))

    async def item(self, item: Id) -> results.ItemFacts:
        """As `Client.item`."""
        return await self.ask(calls.item(item))

    async def user(self, user: Id, limit: int = 100) -> results.UserFacts:
        """As `Client.user`."""
        return await self.ask(calls.user(user, limit))

    async def search(
        self, text: str, kind: Literal["items", "users", "all"] = "all", k: int = 20
    ) -> results.Found:
        """As `Client.search`."""
        return await self.ask(calls.search(text, kind, k))

    async def models(self) -> dict[str, Any]:
        """As `Client.models`."""
        return await self.ask(calls.models())

    async def send_event(
        self,
        user: Id,
        item: Id,
        *,
        time: float | None = None,
        rating: float | None = None,
        key: str | None = None,
    ) -> results.Stored:
        """As `Client.send_event`."""
        return await self.ask(calls.send_event(user, item, time=time, rating=rating, key=key))

    async def send_events(self, events: Iterable[Event]) -> results.Stored:
        """As `Client.send_events`."""
        return await self.ask(calls.send_events(events))
