"""The application: routes, manners and a page that lists them, all from this machine."""

from __future__ import annotations

import html
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response

from transcf import __version__
from transcf.parallel import use_threads
from transcf.serving import page
from transcf.serving.auth import AuthMiddleware
from transcf.serving.errors import add_words, as_json
from transcf.serving.limits import LoadLimiter
from transcf.serving.metrics import MetricsMiddleware
from transcf.serving.routes import lists, others, state
from transcf.serving.schemas import Problem
from transcf.serving.service import Service

_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem} for code in (401, 403, 404, 409, 413, 422, 503, 504)
}


def create_app(service: Service) -> FastAPI:
    """Make the application of one worker.

    Args:
        service: What answers.

    Example:
        >>> app = create_app(Service(ServiceSettings(Path("models/shop"))))  # doctest: +SKIP
    """

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        # Requests run side by side already: more threads for each would only get in their way.
        with use_threads(1):
            await service.start()
            yield
            await service.stop()

    app = FastAPI(
        title="transcf",
        version=__version__,
        description="Recommendations; see docs/serving.md.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        responses=_ERRORS,
    )
    app.state.service = service
    for router in (lists.router, others.router, state.router, page.router):
        app.include_router(router)
    _add_description(app)
    add_words(app)
    # The last one is the outermost.
    app.add_middleware(AuthMiddleware, token=service.token)
    app.add_middleware(
        LoadLimiter,
        limits=service.settings.limits,
        refused=lambda reason: service.metrics.refused.labels(reason).inc(),
    )
    app.add_middleware(MetricsMiddleware, metrics=service.metrics)
    return app


def _add_description(app: FastAPI) -> None:
    """Add the description for machines, and one for people that loads nothing from elsewhere."""

    @app.get("/openapi.json", include_in_schema=False)
    async def description() -> Response:
        return as_json(app.openapi())

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(_listing(app.openapi()))


def _listing(described: dict[str, Any]) -> str:
    """Write all routes as a page."""
    rows = []
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            named = ", ".join(p["name"] for p in about.get("parameters", []))
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {})
            cells = (method.upper(), path, about.get("description", ""), named, _shape(body))
            rows.append("".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells))
    heads = "".join(f"<th>{name}</th>" for name in ("", "route", "what", "parameters", "body"))
    table = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>transcf: routes</title>'
        "<style>:root{color-scheme:light dark}body{font:16px system-ui;margin:2rem}"
        "td,th{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0}</style>"
        f"<h1>Routes</h1><p>For machines: <a href='/openapi.json'>openapi.json</a></p>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{table}</tbody></table></html>"
    )


def _shape(body: dict[str, Any]) -> str:
    """Name what a body has to be."""
    schema = body.get("schema", {})
    parts = schema.get("anyOf", [schema])
    return " or ".join(part.get("$ref", "").rpartition("/")[2] for part in parts)
