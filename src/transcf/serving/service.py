"""`Service`: the state of one worker. Its threads answer concurrent requests together.

Neither `prometheus-fastapi-instrumentator` nor `make_asgi_app` of prometheus_client is used: the
first would rename all time series, the second is no route of the OpenAPI description. They would
replace five lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

import prometheus_client as prometheus
from prometheus_client.multiprocess import MultiProcessCollector

from transcf.errors import ParameterError
from transcf.io.model_dir import Versions
from transcf.serving.errors import RefusedError
from transcf.serving.events import (
    Event,
    EventCache,
    EventStore,
    StoreError,
    events_url,
    invalid_reason,
)
from transcf.serving.items import read_item_metadata
from transcf.serving.model_version import ModelVersion, VersionManager
from transcf.serving.ranking import RecommendRequest, recommend
from transcf.serving.schemas import EventRequest, SessionRequest, Stored, UsersRequest
from transcf.serving.settings import ServiceSettings, Tokens

T = TypeVar("T")
R = TypeVar("R")
log = logging.getLogger("transcf.serving")

#: Largest batches of recommendation requests (their cost) and of event requests.
_MAX_LISTS, _MAX_POSTS = 128, 256
#: Cost of loading another version.
_LOAD_COST = 500
#: Seconds between two checks for a new model version, new tokens and the event store.
_CHECK_EVERY = 0.5
#: Environment variable with the folder in which workers share metrics; read by prometheus_client.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: Methods that have a time series of their own: clients may send any word.
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Batcher(Generic[T, R]):
    """Runs a function on batches of queued requests, on a thread of its own.

    While the thread is busy, requests are queued; when it is free, it takes all of them. No request
    waits for a batch to fill, so a single request is as fast as without batching.

    `run` maps requests to as many answers, in order; an answer that is an exception is raised for
    its request, one that `run` raises for all requests. `max_size` is the largest batch, in units
    of cost; a request of more is a batch of its own.
    """

    def __init__(
        self,
        run: Callable[[Sequence[T]], Sequence[R | Exception]],
        max_size: int,
        name: str,
        settings: ServiceSettings,
    ) -> None:
        self._run, self._max_size, self._settings = run, max_size, settings
        self.name, self._cost = name, 0.0
        self.queue: deque[tuple[T, float, asyncio.Future[R]]] = deque()
        self.thread = ThreadPoolExecutor(1, name)
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: T, cost: float = 1.0) -> R:
        """Return the answer to a request, or refuse it if too much work is queued already."""
        if self._cost and self._cost + cost > self._settings.max_queued_cost:
            raise _overloaded(self._settings)
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.queue.append((request, cost, answer))
        self._cost += cost
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        """Answer requests until the queue is empty."""
        loop = asyncio.get_running_loop()
        try:
            while self.queue:
                taken = self._take()
                batch = [(request, future) for request, _, future in taken if not future.done()]
                requests = [request for request, _ in batch]  # without those that were cancelled
                answers: Sequence[R | Exception] = []
                try:
                    if batch:
                        answers = await loop.run_in_executor(self.thread, self._run, requests)
                except Exception as error:
                    answers = [error] * len(batch)
                for (_, future), answer in zip(batch, answers, strict=True):
                    if future.done():
                        continue
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
                self._cost -= sum(cost for _, cost, _ in taken)
        finally:
            self._task = None

    def _take(self) -> list[tuple[T, float, asyncio.Future[R]]]:
        """Take the requests of the next batch from the queue."""
        taken = [self.queue.popleft()]
        size = taken[0][1]
        while self.queue and size + self.queue[0][1] <= self._max_size:
            taken.append(self.queue.popleft())
            size += taken[-1][1]
        return taken


class Metrics:
    """Prometheus metrics of a service, in a registry of their own.

    Gauges are sampled twice a second. With several workers they are sums over the workers, the
    largest value for versions and the smallest for `transcf_ready`; figures of processes are there
    for each worker.
    """

    def __init__(self) -> None:
        self._registry = prometheus.CollectorRegistry()
        self._process = prometheus.ProcessCollector(registry=None)
        self._shares = METRICS_FOLDER in os.environ
        if not self._shares:
            self._registry.register(self._process)
            prometheus.GCCollector(self._registry)
        counter = partial(prometheus.Counter, registry=self._registry)
        histogram = partial(prometheus.Histogram, registry=self._registry)
        labels, seconds = ["route", "method", "status"], "transcf_request_seconds"
        self._requests = counter("transcf_requests", "Answered requests.", labels)
        self._seconds = histogram(seconds, "Time to answer.", ["route"], buckets=_SECONDS)
        self.refused = counter("transcf_refused", "Refused requests.", ["reason"])
        self.batches = histogram(
            "transcf_batch_size", "Requests answered together.", buckets=_SIZES
        )
        self.events = counter("transcf_events", "Received events.", ["outcome"])
        failures = "Failures of the event store."
        self.store_errors = counter("transcf_store_errors", failures, ["operation"])
        self.refused_versions = counter("transcf_refused_versions", "Broken versions.")

        def gauge(name: str, text: str, *labels: str, mode: Any = "livesum") -> prometheus.Gauge:
            return prometheus.Gauge(
                name, text, labels, multiprocess_mode=mode, registry=self._registry
            )

        in_progress = "Requests that are being answered."
        self.in_progress = gauge("transcf_requests_in_progress", in_progress)
        self.queued = gauge("transcf_queued", "Requests that wait for a thread.", "queue")
        self.ready = gauge("transcf_ready", "1 if /readyz says so.", mode="livemin")
        self.version = gauge("transcf_version", "Served version.", mode="livemax")
        written = "When it was written, since 1970."
        self.version_made = gauge("transcf_version_made_seconds", written, mode="livemax")
        not_learned = "Events that the served version has not learned from."
        self.event_lag = gauge("transcf_event_lag", not_learned, mode="livemax")
        self.worker = gauge("transcf_worker", "Figures of a process.", "figure", mode="liveall")
        self.count_request = lru_cache(1024)(self._children)

    def _children(self, route: str, method: str, status: int) -> tuple[Any, Any]:
        """Return counter and histogram of a kind of request; methods of clients are not labels."""
        known = method if method in _METHODS else "other"
        return self._requests.labels(route, known, str(status)), self._seconds.labels(route)

    def sample_process(self) -> None:
        """Write the figures of this process where other workers can read them."""
        for metric in self._process.collect() if self._shares else ():
            for sample in metric.samples:
                self.worker.labels(sample.name.removeprefix("process_")).set(sample.value)

    def text(self) -> bytes:
        """Return the metrics of all workers in the Prometheus text format."""
        registry = prometheus.CollectorRegistry() if self._shares else self._registry
        if self._shares:
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return prometheus.generate_latest(registry)


class Service:
    """Answers the requests of one worker.

    Recommendations, events, explanations and all other queries have a thread and a queue each:
    concurrent requests share one matrix product or one transaction, and slow requests delay no
    others.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.tokens = None if settings.token_file is None else Tokens(settings.token_file)
        versions = Versions.of(settings.model)
        metadata = {} if settings.items is None else read_item_metadata(settings.items)
        url = events_url(settings.model, settings.events)
        self._store = EventStore(url)
        self.events = EventCache(EventStore(url))
        self.versions = VersionManager(versions, metadata, self.events)
        self.events.restart(self.versions.current.events_after)
        self._store.continue_after(self.versions.current.events_after)
        self.metrics = Metrics()
        self._recommendations = Batcher(self._recommend, _MAX_LISTS, "recommendations", settings)
        self._posts = Batcher(self._add, _MAX_POSTS, "events", settings)
        self._queries = Batcher(_run, 1, "queries", settings)
        self._explanations = Batcher(_run, 1, "explanations", settings)
        self._batchers = (self._recommendations, self._posts, self._queries, self._explanations)
        self._store_error: StoreError | None = None
        self._store_checked, self._read_failures = float("-inf"), 0
        self._store_answered, self._is_late = 0.0, False
        self._watchers: list[asyncio.Task[None]] = []
        self._slow = 0  # slow queries that wait or run

    async def recommend(self, request: RecommendRequest, number: int | None = None) -> bytes:
        """Answer a request for recommendations in JSON, together with concurrent ones.

        Explanations, and lists of a version that need not be the served one, are slow queries.
        """
        cost = recommendation_cost(request)
        if number is None and not request.explain:
            return await self._recommendations.submit(request, cost)

        def run(current: ModelVersion) -> bytes:
            version = current if number is None else self.versions.load(number)
            return recommend(version, [request])[0]

        return await self.query(run, cost + (0 if number is None else _LOAD_COST), slow=True)

    def _recommend(self, requests: Sequence[RecommendRequest]) -> Sequence[bytes | Exception]:
        """Answer requests together; if one fails, each on its own."""
        self.metrics.batches.observe(len(requests))
        self.events.update()
        try:
            return recommend(self.versions.current, requests)
        except Exception as error:
            if len(requests) == 1:
                return [error]
        return [answer for request in requests for answer in self._recommend([request])]

    async def query(
        self, query: Callable[[ModelVersion], T], cost: float = 1.0, *, slow: bool = False
    ) -> T:
        """Run any other query on the current version and all events stored by now.

        Slow ones wait in the queue of explanations, and take at most half of all places.
        """

        def run() -> T:
            self.events.update()
            return query(self.versions.current)

        if slow and self._slow >= max(1, self.settings.max_requests // 2):
            raise _overloaded(self.settings)
        self._slow += slow
        try:
            answer: T = await (self._explanations if slow else self._queries).submit(run, cost)
            return answer
        finally:
            self._slow -= slow

    async def add_events(self, requests: Sequence[EventRequest]) -> Stored:
        """Store events; they are durable when it returns."""
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
        self.metrics.events.labels("stored").inc(added["stored"])
        self.metrics.events.labels("repeated").inc(added["repeated"])
        return added

    def _add(self, batches: Sequence[Sequence[Event]]) -> Sequence[Stored]:
        """Store batches of events, and note whether storing works."""
        try:
            added = self._store.add(batches)
        except StoreError as error:
            self.metrics.store_errors.labels("write").inc()
            if self._store_error is None:
                log.error("Events cannot be stored: %s", error)
            self._store_error = error
            raise
        if self._store_error is not None:
            log.info("Events can be stored again.")
            self._store_error = None
        return added

    @property
    def is_ready(self) -> bool:
        """Whether requests can be answered in full: events can be read and stored, in time."""
        return self.events.error is None and self._store_error is None and not self._is_late

    async def start(self) -> None:
        """Begin to check for new versions, and whether the event store works."""
        self._store_answered = time.monotonic()
        checks = (self._check_versions, self._check_store, self._renew_trend, self._sample)
        self._watchers = [asyncio.create_task(_repeat(check)) for check in checks]

    async def _check_versions(self) -> None:
        if not await asyncio.to_thread(self.versions.check):
            self.metrics.refused_versions.inc()

    async def _check_store(self) -> None:
        """Read new events, and write to the store now and then."""
        await asyncio.to_thread(self.events.update)
        self.metrics.store_errors.labels("read").inc(self.events.failures - self._read_failures)
        self._read_failures = self.events.failures
        if time.monotonic() - self._store_checked >= self.settings.check_seconds:
            self._store_checked = time.monotonic()
            with contextlib.suppress(StoreError, RefusedError):
                await self._posts.submit([])
        self._store_answered = time.monotonic()

    async def _renew_trend(self) -> None:
        await asyncio.to_thread(self.versions.renew_trend)

    async def _sample(self) -> None:
        """Read tokens and set gauges; this never waits for the event store, which may hang."""
        if self.tokens is not None:
            self.tokens.reload()
        silent = time.monotonic() - self._store_answered
        was_late, self._is_late = self._is_late, silent > self.settings.request_seconds
        if self._is_late and not was_late:
            log.error("The event store has not answered for %.0f seconds.", silent)
        metrics, version = self.metrics, self.versions.current
        for batcher in self._batchers:
            metrics.queued.labels(batcher.name).set(len(batcher.queue))
        metrics.ready.set(self.is_ready)
        metrics.version.set(version.number)
        metrics.version_made.set(self.versions.versions.made(version.number) or 0)
        metrics.event_lag.set(max(0, self.events.last - version.events_after))
        metrics.sample_process()

    async def stop(self) -> None:
        """Finish requests in progress and close everything."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the threads once they are idle and close the event stores."""
        for batcher in self._batchers:
            batcher.thread.shutdown()
        self._store.close()
        self.events.store.close()


def _overloaded(settings: ServiceSettings) -> RefusedError:
    sentence = "Too much work is waiting: try again in a moment, or ask for less."
    return RefusedError(503, "overloaded", sentence, settings.retry_after)


def recommendation_cost(request: RecommendRequest) -> float:
    """Return the cost of the lists of a request, at least 1 for each list.

    Measured with TransCFMixture, which takes longest, and 5,000 items: with a session of 1,000
    items 2 milliseconds for a list of 10 and 21 for one of 1,000, without a session 4 for one of
    1,000. The histories of users are not known before the request is admitted.
    """
    lists = len(request.users) if isinstance(request, UsersRequest) else 1
    history = len(request.session) if isinstance(request, SessionRequest) else 0
    if request.explain:
        return explanation_cost(lists * request.k, history)
    return lists * max(1.0, (1 / 2 + request.k / 250) * (1 + history / 250))


def explanation_cost(items: int, history: int) -> float:
    """Return the cost of explaining some items by a history.

    Measured with TransCFMixture, EASE, BPR and iALS: about a millisecond for each explained item,
    and half to one and a half more for a history of 1,000 items.
    """
    return 2 + items * (1 + history / 1000)


def _run(queries: Sequence[Callable[[], Any]]) -> list[Any]:
    return [query() for query in queries]


async def _repeat(check: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await check()
        except Exception:
            log.exception("A check of versions or of the event store failed")
        await asyncio.sleep(_CHECK_EVERY)
