"""The application: routes, pages and middleware."""

from __future__ import annotations

import html
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from transcf import __version__
from transcf.errors import MissingExtraError
from transcf.parallel import use_threads
from transcf.serving.auth import AuthMiddleware
from transcf.serving.errors import add_exception_handlers, json_response
from transcf.serving.middleware import LoadLimiter, ObserveMiddleware
from transcf.serving.routes import router
from transcf.serving.schemas import Problem
from transcf.serving.service import Service

_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem} for code in (401, 403, 404, 409, 413, 422, 429, 503, 504)
}
PAGE = Path(__file__).with_name("page")
#: Scripts come from this service only, none is inline. plotly compiles WebGL code ('unsafe-eval')
#: and writes style elements ('unsafe-inline').
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",  # browsers ask again, and get a 304 by the ETag
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def create_app(service: Service) -> FastAPI:
    """Create the application of one worker.

    Example:
        >>> app = create_app(Service(load_settings({"model": "shop"})))  # doctest: +SKIP
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with use_threads(1):  # requests run concurrently already
            await service.start()
            yield
            await service.stop()

    app = FastAPI(
        title="transcf",
        version=__version__,
        description="Recommendations; see docs/reference/service.md.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        responses=_ERRORS,
    )
    app.state.service = service
    app.include_router(router)
    _add_pages(app)
    add_exception_handlers(app)
    # The last one is the outermost.
    settings, metrics = service.settings, service.metrics
    app.add_middleware(AuthMiddleware, tokens=service.tokens, rate_limit=settings.rate_limit)
    app.add_middleware(
        LoadLimiter,
        settings=settings,
        refused=lambda reason: metrics.refused.labels(reason).inc(),
        note_active=metrics.in_progress.set,
    )
    app.add_middleware(ObserveMiddleware, metrics=metrics, settings=settings)
    return app


def plotly_script() -> Path:
    """Return plotly's script, without importing plotly, which takes a second.

    Raises:
        MissingExtraError: plotly is not installed.
    """
    found = find_spec("plotly")
    if found is None or found.origin is None:
        raise MissingExtraError("The explorer's map", "serve")
    return Path(found.origin).with_name("package_data") / "plotly.min.js"


class _PageFiles(StaticFiles):
    """Files of the explorer page, and plotly's script."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        if path == "plotly.js":
            script = plotly_script()
            return str(script), script.stat()
        return super().lookup_path(path)

    async def get_response(self, path: str, scope: Any) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_PAGE_HEADERS)
        return response


def _add_pages(app: FastAPI) -> None:
    """Add the explorer page and the description of all routes; nothing loads other hosts."""
    files = _PageFiles(directory=PAGE)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)

    @app.get("/page/{name}", include_in_schema=False)
    async def file(request: Request, name: str) -> Response:
        return await files.get_response(name, request.scope)

    @app.get("/openapi.json", include_in_schema=False)
    async def description() -> Response:
        return json_response(app.openapi())

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(_list_routes(app.openapi()))


def _list_routes(description: dict[str, Any]) -> str:
    """Return an HTML page with all routes of an OpenAPI description."""
    rows = []
    for path, methods in description["paths"].items():
        for method, about in methods.items():
            parameters = ", ".join(p["name"] for p in about.get("parameters", []))
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = body.get("schema", {})
            kinds = [part.get("$ref", "") for part in schema.get("anyOf", [schema])]
            names = " or ".join(kind.rpartition("/")[2] for kind in kinds)
            cells = (method.upper(), path, about.get("description", ""), parameters, names)
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
