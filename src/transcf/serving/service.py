"""`Service`: the state of one worker and its threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from transcf.errors import ParameterError
from transcf.serving.auth import Tokens
from transcf.serving.batching import Batcher, OverloadedError
from transcf.serving.events import (
    Added,
    Event,
    EventCache,
    EventStore,
    StoreError,
    events_url,
    invalid_reason,
)
from transcf.serving.item_metadata import read_item_metadata
from transcf.serving.metrics import Metrics
from transcf.serving.model_version import ModelVersion
from transcf.serving.queries import RecommendRequest, recommend
from transcf.serving.schemas import EventRequest, SessionRequest, UsersRequest
from transcf.serving.settings import ServiceSettings
from transcf.serving.versions import VersionManager, Versions

T = TypeVar("T")
log = logging.getLogger("transcf.serving")

#: Largest batches of recommendation requests and of event requests.
_MAX_LISTS, _MAX_POSTS = 128, 256
#: Seconds between two checks for a new model version, new tokens and the event store.
_CHECK_EVERY = 0.5


class Service:
    """Answers the requests of one worker.

    Recommendations, events, explanations and all other queries have a thread and a queue each:
    concurrent requests share one matrix product or one transaction, and slow requests delay no
    others.

    Args:
        settings: The settings.

    Raises:
        TransCFError: The model, the items or the events cannot be read.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.tokens = Tokens(settings.token_file)
        versions = Versions(settings.model.absolute())
        versions.check()
        metadata = {} if settings.items is None else read_item_metadata(settings.items)
        url = events_url(settings.model, settings.events)
        self._store = EventStore(url)
        self.events = EventCache(EventStore(url))
        self.versions = VersionManager(versions, metadata, self.events)
        self.events.restart(self.versions.current.events_after)
        self.metrics = Metrics()
        most = settings.max_queued_cost
        self._recommendations = Batcher(self._recommend, _MAX_LISTS, "recommendations", most)
        self._posts = Batcher(self._add, _MAX_POSTS, "events", most)
        self._queries: Batcher[Callable[[], Any], Any] = Batcher(_run, 1, "queries", most)
        self._explanations: Batcher[Callable[[], Any], Any] = Batcher(_run, 1, "explanations", most)
        self._batchers = (self._recommendations, self._posts, self._queries, self._explanations)
        self._store_error: str | None = None
        self._store.continue_after(self.versions.current.events_after)
        self._watchers: list[asyncio.Task[None]] = []

    async def recommend(self, request: RecommendRequest) -> bytes:
        """Answer a request for recommendations, together with concurrent ones.

        Raises:
            OverloadedError: Too much work of this kind is waiting.
        """
        users = len(request.users) if isinstance(request, UsersRequest) else 1
        if not request.explain:
            return await self._recommendations.submit(request, users)
        history = len(request.session) if isinstance(request, SessionRequest) else 0

        def explain(version: ModelVersion, events: EventCache) -> bytes:
            return recommend(version, events, [request])[0]

        return await self.query(explain, explanation_cost(users * request.k, history), slow=True)

    async def query(
        self,
        query: Callable[[ModelVersion, EventCache], T],
        cost: float = 1.0,
        *,
        slow: bool = False,
    ) -> T:
        """Run any other query on the current version and all events stored by now.

        Args:
            query: The query.
            cost: What it costs, about milliseconds of processor time.
            slow: Whether it waits in the queue of explanations instead of that of other queries.

        Raises:
            OverloadedError: Too much work of this kind is waiting.
        """

        def run() -> T:
            self.events.update()
            return query(self.versions.current, self.events)

        answer: T = await (self._explanations if slow else self._queries).submit(run, cost)
        return answer

    async def add_events(self, requests: Sequence[EventRequest]) -> Added:
        """Store events; they are durable when it returns.

        Raises:
            ParameterError: No model can learn from one of them.
        """
        now = time.time()
        events = [
            Event(str(r.user), str(r.item), now if r.time is None else r.time, r.rating, r.key)
            for r in requests
        ]
        version = self.versions.current
        for event in events:
            reason = invalid_reason(event, version.users, version.items, now)
            if reason is not None:
                raise ParameterError(reason)
        added = await self._posts.submit(events)
        self.metrics.events.labels("stored").inc(added.stored)
        self.metrics.events.labels("repeated").inc(added.repeated)
        return added

    def _add(self, batches: Sequence[Sequence[Event]]) -> Sequence[Added]:
        """Store batches of events, and note whether storing works."""
        try:
            added = self._store.add(batches)
        except StoreError as error:
            self.metrics.store_errors.labels("write").inc()
            if self._store_error is None:
                log.error("Events cannot be stored: %s", error)
            self._store_error = str(error)
            raise
        if self._store_error is not None:
            log.info("Events can be stored again.")
            self._store_error = None
        return added

    def _recommend(self, requests: Sequence[RecommendRequest]) -> list[bytes | Exception]:
        self.metrics.batches.observe(len(requests))
        self.events.update()
        return self._answer(self.versions.current, requests)

    def _answer(
        self, version: ModelVersion, requests: Sequence[RecommendRequest]
    ) -> list[bytes | Exception]:
        """Answer requests together; if one fails, each on its own."""
        try:
            return [*recommend(version, self.events, requests)]
        except Exception as error:
            if len(requests) == 1:
                return [error]
            return [answer for one in requests for answer in self._answer(version, [one])]

    @property
    def is_ready(self) -> bool:
        """Whether requests can be answered in full: events can be read and stored."""
        return self.events.error is None and self._store_error is None

    async def start(self) -> None:
        """Begin to check for new versions, and whether the event store works."""
        self._sample()
        self._watchers = [
            asyncio.create_task(self._watch_versions()),
            asyncio.create_task(self._watch_store()),
        ]

    async def _watch_versions(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY)
            refused = len(self.versions.refused)
            try:
                await asyncio.to_thread(self.versions.check)
            except Exception:
                log.exception("Checking for a new version failed")
            self.metrics.refused_versions.inc(max(0, len(self.versions.refused) - refused))

    async def _watch_store(self) -> None:
        """Read new events, write to the store now and then, read tokens, sample metrics."""
        checked, failures = float("-inf"), 0
        while True:
            try:
                await asyncio.to_thread(self.events.update)
                self.metrics.store_errors.labels("read").inc(self.events.failures - failures)
                failures = self.events.failures
                if time.monotonic() - checked >= self.settings.check_seconds:
                    checked = time.monotonic()
                    with contextlib.suppress(StoreError, OverloadedError):
                        await self._posts.submit([])
                self.tokens.reload()
                self._sample()
            except Exception:
                log.exception("Checking the event store failed")
            await asyncio.sleep(_CHECK_EVERY)

    def _sample(self) -> None:
        """Set gauges."""
        metrics, version = self.metrics, self.versions.current
        for batcher in self._batchers:
            metrics.queued.labels(batcher.name).set(len(batcher))
        metrics.ready.set(self.is_ready)
        metrics.version.set(version.number)
        metrics.version_made.set(self.versions.versions.made(version.number) or 0)
        metrics.event_lag.set(max(0, self.events.last - version.events_after))
        metrics.sample_process()

    async def stop(self) -> None:
        """Finish requests in progress and close everything."""
        for watcher in self._watchers:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the threads once they are idle and close the event stores."""
        for batcher in self._batchers:
            batcher.close()
        self._store.close()
        self.events.store.close()


def explanation_cost(items: int, history: int) -> float:
    """Return the cost of explaining some items by a history.

    Measured with TransCFMixture, EASE, BPR and iALS: about a millisecond for each explained item,
    and half to one and a half more for a history of 1,000 items.
    """
    return 2 + items * (1 + history / 1000)


def _run(queries: Sequence[Callable[[], T]]) -> list[T]:
    return [query() for query in queries]
