"""Figures for Prometheus; those of several workers are added up."""

from __future__ import annotations

import os
import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from transcf.serving.limits import App, Message, Receive, Scope, Send

#: Where the library looks for the folder that workers share.
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """What is counted, in a registry of its own."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self._own = CollectorRegistry()
        own: dict[str, Any] = {"registry": self._own}
        self.requests = Counter(
            "transcf_requests", "Answered requests.", ["route", "method", "status"], **own
        )
        self.seconds = Histogram(
            "transcf_request_seconds", "Time to answer.", ["route"], buckets=_SECONDS, **own
        )
        self.refused = Counter("transcf_refused", "Requests turned away.", ["reason"], **own)
        self.batches = Histogram(
            "transcf_batch_size", "Requests answered together.", buckets=_SIZES, **own
        )
        self.events = Counter("transcf_events", "Events taken in.", ["outcome"], **own)
        self.version = Gauge(
            "transcf_version", "Version that is served.", multiprocess_mode="max", **own
        )
        self.refused_versions = Counter("transcf_refused_versions", "Broken versions.", **own)

    def text(self) -> bytes:
        """Return all figures in Prometheus' form."""
        registry = self._own
        if FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


class MetricsMiddleware:
    """Counts requests by route, method and status.

    Args:
        app: What answers.
        metrics: Where they are counted.
    """

    def __init__(self, app: App, metrics: Metrics) -> None:
        """Keep both."""
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and count."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            # Routes rather than paths: ids are nobody's business, and there are many of them.
            route = getattr(scope.get("route"), "path_format", "other")
            self._metrics.requests.labels(route, scope["method"], str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - started)
