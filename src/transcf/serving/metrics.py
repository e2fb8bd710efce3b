"""Prometheus metrics of the service.

`prometheus-fastapi-instrumentator` is not used: it would replace a few lines of
`ObserveMiddleware` and rename all time series.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

#: Environment variable with the folder in which workers share metrics; read by prometheus_client.
METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: Methods that have a time series of their own: clients may send any word.
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Metrics:
    """Prometheus metrics of a service, in a registry of their own.

    Gauges are sampled twice a second. With several workers they are sums over the workers, the
    largest value for versions and the smallest for `transcf_ready`; figures of processes are there
    for each worker.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._process = ProcessCollector(registry=None)
        own: dict[str, Any] = {"registry": self._registry}
        if METRICS_FOLDER not in os.environ:
            self._registry.register(self._process)
            GCCollector(self._registry)
        labels = ["route", "method", "status"]
        self._requests = Counter("transcf_requests", "Answered requests.", labels, **own)
        self._seconds = Histogram(
            "transcf_request_seconds", "Time to answer.", ["route"], buckets=_SECONDS, **own
        )
        self.refused = Counter("transcf_refused", "Refused requests.", ["reason"], **own)
        self.batches = Histogram(
            "transcf_batch_size", "Requests answered together.", buckets=_SIZES, **own
        )
        self.events = Counter("transcf_events", "Received events.", ["outcome"], **own)
        self.store_errors = Counter(
            "transcf_store_errors", "Failures of the event store.", ["operation"], **own
        )
        self.refused_versions = Counter("transcf_refused_versions", "Broken versions.", **own)

        def gauge(name: str, text: str, *labels: str, mode: Any = "livesum") -> Gauge:
            return Gauge(name, text, labels, multiprocess_mode=mode, **own)

        self.in_progress = gauge(
            "transcf_requests_in_progress", "Requests that are being answered."
        )
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
        if METRICS_FOLDER not in os.environ:
            return
        for metric in self._process.collect():
            for sample in metric.samples:
                self.worker.labels(sample.name.removeprefix("process_")).set(sample.value)

    def text(self) -> bytes:
        """Return the metrics of all workers in the Prometheus text format."""
        registry = self._registry
        if METRICS_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
