"""The application: routes, pages and middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from transcf import __version__
from transcf.parallel import use_threads
from transcf.serving.auth import AuthMiddleware
from transcf.serving.errors import add_exception_handlers
from transcf.serving.middleware import LoadLimiter, ObserveMiddleware
from transcf.serving.pages import add_pages
from transcf.serving.routes import router
from transcf.serving.schemas import Problem
from transcf.serving.service import Service

_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem} for code in (401, 403, 404, 409, 413, 422, 429, 503, 504)
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
    add_pages(app)
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
