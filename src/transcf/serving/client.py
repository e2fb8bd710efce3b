"""`Client`: the service as Python methods, with time-outs and retries.

Questions may be asked again, and events carry keys by which the service knows them again; so
whatever gets no answer is repeated, after a while that doubles each time, or as long as the
service asks for.
"""

from __future__ import annotations

import time as clock
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


class Client:
    """Asks a service that `transcf serve` runs; threads may share it.

    Every method raises a `ServiceError` with the sentence of the service. Answers are those of
    docs/serving.md: dictionaries whose types are in `transcf.serving.results`.

    Args:
        url: Where it is.
        token: What it asks for, if it does.
        timeout: Seconds for each attempt.
        retries: How often to ask again where there was no answer, or the service said later.
        transport: How httpx sends, for tests and proxies.

    Example:
        >>> with Client("http://127.0.0.1:8080") as shop:  # doctest: +SKIP
        ...     _ = shop.send_event("ann", "i042")
        ...     [entry["title"] for entry in shop.recommend("ann", k=2)["items"]]
        ['Dark Oolong No. 7', 'Smoky Assam No. 112']
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Connect when the first question is asked."""
        self._manners = RetryPolicy(url, token, timeout, retries)
        self._http = httpx.Client(transport=transport, **self._manners.options)

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, call: Call[T]) -> T:
        """Send a call, again where that is worth it, and return its answer."""
        attempt, outcome = 0, self._sent(call)
        while (pause := self._manners.pause(attempt, outcome)) is not None:
            clock.sleep(pause)
            attempt, outcome = attempt + 1, self._sent(call)
        answer: T = self._manners.read(outcome)
        return answer

    def _sent(self, call: Call[Any]) -> Outcome:
        try:
            return self._http.request(**self._manners.request(call))
        except httpx.TransportError as error:
            return error

    def recommend(
        self, user: Id, k: int = 10, **options: Unpack[Options]
    ) -> results.Recommendations:
        """Recommend items to a user.

        Args:
            user: Id of the user; somebody unknown gets what is popular (`source` says so).
            k: Longest list.
            options: `exclude_seen`, `categories`, `exclude`, `items` and `explain`; see
                `transcf.serving.results.Options`.
        """
        return self.ask(calls.recommend(user, k, options))

    def recommend_many(
        self, users: Iterable[Id], k: int = 10, **options: Unpack[Options]
    ) -> results.ManyRecommendations:
        """Recommend items to many users in one call; see `recommend`."""
        return self.ask(calls.recommend_many(users, k, options))

    def recommend_for(
        self, session: Iterable[Id], k: int = 10, **options: Unpack[Options]
    ) -> results.SessionRecommendations:
        """Recommend items to somebody known by a session alone, its oldest item first."""
        return self.ask(calls.recommend_for(session, k, options))

    def similar_items(self, item: Id, k: int = 10) -> results.SimilarItems:
        """Find the items most similar to an item."""
        return self.ask(calls.similar_items(item, k))

    def similar_users(self, user: Id, k: int = 10) -> results.SimilarUsers:
        """Find the users most similar to a user."""
        return self.ask(calls.similar_users(user, k))

    def explain(self, user: Id, item: Id, top: int = 5) -> results.Explained:
        """Say which past items drew an item."""
        return self.ask(calls.explain(user, item, top))

    def explain_for(self, session: Iterable[Id], item: Id, top: int = 5) -> results.Explained:
        """Say which items of a session drew an item."""
        return self.ask(calls.explain_for(session, item, top))

    def score(self, pairs: Iterable[tuple[Id, Id]]) -> results.PairScores:
        """Score (user, item) pairs, to rank what somebody else has found."""
        return self.ask(calls.score(pairs))

    def item(self, item: Id) -> results.ItemFacts:
        """Return what is known of an item."""
        return self.ask(calls.item(item))

    def user(self, user: Id, limit: int = 100) -> results.UserFacts:
        """Return a user's history, newest first."""
        return self.ask(calls.user(user, limit))

    def search(
        self, text: str, kind: Literal["items", "users", "all"] = "all", k: int = 20
    ) -> results.Found:
        """Find items and users by their ids and titles."""
        return self.ask(calls.search(text, kind, k))

    def models(self) -> dict[str, Any]:
        """Return what is served: settings, figures, checksums, versions."""
        return self.ask(calls.models())

    def send_event(
        self,
        user: Id,
        item: Id,
        *,
        time: float | None = None,
        rating: float | None = None,
        key: str | None = None,
    ) -> results.Stored:
        """Store an event; it is on the disk when this returns.

        Args:
            user: Who, also somebody new.
            item: What, also something new.
            time: When, in seconds since 1970; now if it is None.
            rating: How it was rated, if it was.
            key: What names the event; one that comes again is not stored again. Without one it
                gets a key that no other has.
        """
        return self.ask(calls.send_event(user, item, time=time, rating=rating, key=key))

    def send_events(self, events: Iterable[Event]) -> results.Stored:
        """Store events in one call, all or none; see `send_event`."""
        return self.ask(calls.send_events(events))
