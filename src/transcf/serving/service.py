"""`Service`: the state of one worker and its threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from transcf.errors import ParameterError
from transcf.serving.batching import Batcher
from transcf.serving.events import (
    Added,
    Event,
    EventCache,
    EventStore,
    events_url,
    invalid_reason,
)
from transcf.serving.item_metadata import read_item_metadata
from transcf.serving.middleware import Limits, Metrics, read_token
from transcf.serving.model_version import ModelVersion
from transcf.serving.queries import RecommendRequest, recommend
from transcf.serving.schemas import EventRequest
from transcf.serving.versions import VersionManager, Versions

T = TypeVar("T")
log = logging.getLogger("transcf.serving")

#: Largest batches of recommendation requests and of event requests.
_MAX_LISTS, _MAX_POSTS = 128, 256
#: Seconds between two checks for a new model version.
_CHECK_EVERY = 0.5


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service.

    Attributes:
        model: Model folder.
        events: Where events are stored; None for a file next to the model.
        items: Table of items, or None.
        token_file: File with a token, or None.
        limits: Limits of a worker.
    """

    model: Path
    events: str | None = None
    items: Path | None = None
    token_file: Path | None = None
    limits: Limits = field(default_factory=Limits)


class Service:
    """Answers the requests of one worker.

    Recommendations, events and all other queries have a thread each: concurrent requests share one
    matrix product or one transaction, and a slow query delays no recommendations.

    Args:
        settings: The settings.

    Raises:
        TransCFError: The model, the items or the events cannot be read.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.token = read_token(settings.token_file)
        versions = Versions(settings.model.absolute())
        versions.check()
        metadata = {} if settings.items is None else read_item_metadata(settings.items)
        url = events_url(settings.model, settings.events)
        self._store = EventStore(url)
        self.events = EventCache(EventStore(url))
        self.versions = VersionManager(versions, metadata, self.events)
        self.events.restart(self.versions.current.events_after)
        self.metrics = Metrics()
        self._recommendations = Batcher(self._recommend, _MAX_LISTS, "recommendations")
        self._posts = Batcher(self._store.add, _MAX_POSTS, "events")
        self._queries: Batcher[Callable[[], Any], Any] = Batcher(_run, 1, "queries")
        self._watcher: asyncio.Task[None] | None = None

    async def recommend(self, request: RecommendRequest) -> bytes:
        """Answer a request for recommendations, together with concurrent ones."""
        if request.explain:  # slow

            def explain(version: ModelVersion, events: EventCache) -> bytes:
                return recommend(version, events, [request])[0]

            return await self.query(explain)
        return await self._recommendations.submit(request)

    async def query(self, query: Callable[[ModelVersion, EventCache], T]) -> T:
        """Run any other query on the current version and all events stored by now."""

        def run() -> T:
            self.events.update()
            return query(self.versions.current, self.events)

        answer: T = await self._queries.submit(run)
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

    async def start(self) -> None:
        """Begin to check for new versions."""
        self.metrics.version.set(self.versions.current.number)
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY)
            refused = len(self.versions.refused)
            try:
                await asyncio.to_thread(self.versions.check)
            except Exception:
                log.exception("Checking for a new version failed")
            self.metrics.version.set(self.versions.current.number)
            self.metrics.refused_versions.inc(max(0, len(self.versions.refused) - refused))

    async def stop(self) -> None:
        """Finish requests in progress and close everything."""
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the threads once they are idle and close the event stores."""
        for batcher in (self._recommendations, self._posts, self._queries):
            batcher.close()
        self._store.close()
        self.events.store.close()


def _run(queries: Sequence[Callable[[], T]]) -> list[T]:
    return [query() for query in queries]
