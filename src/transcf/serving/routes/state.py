"""Events in, and what the service says of itself."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request
from starlette.responses import Response

from transcf.serving.errors import as_json, problem
from transcf.serving.routes.lists import service_of
from transcf.serving.schemas import EventSent, EventsSent
from transcf.serving.service import events_of

router = APIRouter(tags=["service"])


@router.post("/v1/events")
async def take_events(request: Request, sent: EventsSent | EventSent) -> Response:
    """Store one event or many; the answer comes when all is on disk."""
    several = sent.events if isinstance(sent, EventsSent) else [sent]
    return as_json(asdict(await service_of(request).post(events_of(several))))


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """Say what is served."""
    service = service_of(request)
    return as_json(await service.ask(lambda desk, recent: service.shelf.describe()))


@router.get("/healthz")
async def alive() -> Response:
    """Answer while the process lives."""
    return as_json({"status": "ok"})


@router.get("/readyz")
async def ready(request: Request) -> Response:
    """Say whether requests can be answered in full."""
    service = service_of(request)
    trouble = await service.ask(lambda desk, recent: recent.trouble)
    if trouble is not None:
        return problem(503, "unavailable", trouble, 1)
    return as_json({"status": "ready", "version": service.shelf.desk.served.version})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return figures for Prometheus."""
    text = service_of(request).metrics.text()
    return Response(text, media_type="text/plain; version=0.0.4")
