"""The application: its routes, and what is around them.

FastAPI's query models take about 40 microseconds more than `_read_query` for the six parameters of
a recommendation (76 instead of 37, a bare application called in process). That is about 5.7 % of
the 0.69 ms of processor time that benchmarks/serving.py shows for a top 10; the share itself was
not measured under load.
"""

from __future__ import annotations

import asyncio
import gzip
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from transcf import __version__
from transcf.parallel import use_threads
from transcf.serving import queries, ranking, schemas
from transcf.serving.errors import add_exception_handlers, json_bytes, json_response, store_failed
from transcf.serving.middleware import Gate
from transcf.serving.model_version import ModelVersion
from transcf.serving.service import Service, explanation_cost

_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Problem} for code in (401, 403, 404, 409, 413, 422, 429, 503, 504)
}
#: Query parameters that may be repeated.
_REPEATED = frozenset(("category", "exclude", "items"))
#: Bytes of JSON from which on it is compressed, if the client takes that; how gzip begins.
_MIN_GZIPPED, _GZIP = 4096, b"\x1f\x8b"
#: The files of the explorer page.
PAGE = Path(__file__).with_name("page")
#: Scripts and styles come from this service only; none is inline or compiled from text.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

router, _pages = APIRouter(), APIRouter(include_in_schema=False)


def create_app(service: Service) -> FastAPI:
    """Create the application of one worker."""

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
    app.include_router(_pages)
    app.mount("/page", GZipMiddleware(_page))
    add_exception_handlers(app)
    app.add_middleware(Gate, service=service)
    return app


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


# -- recommendations -----------------------------------------------------------------------------


def _read_query(request: Request) -> schemas.UserRequest:
    """Read path and query parameters; of a repeated one that is no list the last counts."""
    values = dict[str, Any]()
    for name, value in request.query_params.multi_items():
        if name in _REPEATED:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    try:
        return schemas.UserRequest.model_validate(values | {"user": request.path_params["user"]})
    except ValidationError as error:
        found = [{**one, "loc": ("query", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(found) from error


def _describe_query() -> dict[str, Any]:
    """Return the parameters of `_read_query` for the OpenAPI description."""
    schema = schemas.UserRequest.model_json_schema()
    parameters = [
        {
            "name": name,
            "in": "path" if name == "user" else "query",
            "required": name == "user",
            "description": about.pop("description"),
            "schema": about,
        }
        for name, about in schema["properties"].items()
    ]
    return {"parameters": parameters}


@router.get(
    "/v1/recommendations/{user:path}",
    response_model=schemas.Recommendations,
    openapi_extra=_describe_query(),
)
async def recommend(request: Request) -> Response:
    """Recommend items to a user."""
    answer = await _service(request).recommend(_read_query(request))
    return Response(answer, media_type="application/json")


@router.get(
    "/v1/versions/{version}/recommendations/{user:path}",
    response_model=schemas.Recommendations,
    openapi_extra=_describe_query(),
)
async def recommend_by_version(request: Request, version: int) -> Response:
    """Recommend items to a user by a version that need not be the served one."""
    answer = await _service(request).recommend(_read_query(request), version)
    return Response(answer, media_type="application/json")


@router.post("/v1/recommendations", response_model=schemas.ManyRecommendations)
async def recommend_many(request: Request, asked: schemas.UsersRequest) -> Response:
    """Recommend items to many users."""
    return Response(await _service(request).recommend(asked), media_type="application/json")


@router.post("/v1/session", response_model=schemas.SessionRecommendations)
async def recommend_session(request: Request, asked: schemas.SessionRequest) -> Response:
    """Recommend items for a session."""
    return Response(await _service(request).recommend(asked), media_type="application/json")


# -- other queries -------------------------------------------------------------------------------


async def _answer(
    request: Request,
    query: Callable[[ModelVersion], Any],
    cost: float = 2.0,
    *,
    slow: bool = False,
) -> Response:
    """Run a query, and write and compress its answer in the same thread; see `Service.query`."""
    gzipped = "gzip" in request.headers.get("accept-encoding", "")

    def run(version: ModelVersion) -> bytes:
        body = json_bytes(query(version))
        return gzip.compress(body, 5) if gzipped and len(body) >= _MIN_GZIPPED else body

    body = await _service(request).query(run, cost, slow=slow)
    response = Response(body, media_type="application/json")
    response.headers["vary"] = "accept-encoding"
    if body.startswith(_GZIP):
        response.headers["content-encoding"] = "gzip"
    return response


def _add_query(
    method: str,
    path: str,
    query: Callable[..., Any],
    cost: Callable[..., float] = lambda **_: 2.0,
    *,
    slow: bool = False,
) -> None:
    """Add a query as a route with its parameters after `version`."""

    async def endpoint(request: Request, **arguments: Any) -> Response:
        run = partial(query, **arguments)
        return await _answer(request, run, cost(**arguments), slow=slow)

    signature = inspect.signature(query, eval_str=True)
    _, *parameters = signature.parameters.values()
    request = inspect.signature(endpoint, eval_str=True).parameters["request"]
    endpoint.__name__, endpoint.__doc__ = query.__name__, query.__doc__
    endpoint.__signature__ = inspect.Signature([request, *parameters])  # type: ignore[attr-defined]
    answer = signature.return_annotation
    router.add_api_route(path, endpoint, methods=[method], response_model=answer)


_add_query("GET", "/v1/similar-items/{item:path}", queries.similar_items)
_add_query("GET", "/v1/similar-users/{user:path}", queries.similar_users)
_add_query("GET", "/v1/explanation", ranking.explain_user, slow=True)
_add_query(
    "POST",
    "/v1/explanation",
    ranking.explain_session,
    lambda asked: explanation_cost(1, len(asked.session)),
    slow=True,
)
_add_query("POST", "/v1/scores", queries.scores, lambda asked: 1 + len(asked.pairs) / 20, slow=True)
_add_query("GET", "/v1/items/{item:path}", queries.item_facts)
_add_query("GET", "/v1/users/{user:path}", queries.user_facts)
_add_query("GET", "/v1/search", queries.search)
_add_query("GET", "/v1/categories", queries.categories)
_add_query("GET", "/v1/quality", queries.quality, lambda: 500, slow=True)
_add_query("GET", "/v1/map", queries.item_map, lambda limit, **_: 5 + limit / 100, slow=True)
_add_query("GET", "/v1/map/attribute", queries.item_attribute, lambda limit, **_: 5 + limit / 100)
_add_query(
    "POST", "/v1/map/position", queries.position, lambda asked: 2 + len(asked.toward), slow=True
)


# -- events and the service itself ---------------------------------------------------------------


@router.post("/v1/events", response_model=schemas.Stored)
async def add_events(
    request: Request, sent: schemas.EventsRequest | schemas.EventRequest
) -> Response:
    """Store one event or many; they are durable when the answer is sent."""
    events = sent.events if isinstance(sent, schemas.EventsRequest) else [sent]
    return json_response(await _service(request).add_events(events))


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """Describe the served version."""
    service = _service(request)
    own = {"verb": service.settings.verb}
    return await _answer(request, lambda _: service.versions.describe() | own, 1.0)


@router.post("/v1/models/current")
async def switch_version(request: Request, asked: schemas.SwitchRequest) -> Response:
    """Serve another version; all workers load it within a second."""
    await asyncio.to_thread(_service(request).versions.switch, asked.version)
    return json_response({"current": asked.version})


@router.get("/healthz")
async def alive() -> Response:
    """Answer while the process is alive."""
    return json_response({"status": "ok"})


@router.get("/readyz")
async def ready(request: Request) -> Response:
    """Return whether requests can be answered in full."""
    service = _service(request)
    if not service.is_ready:
        return store_failed(service.settings.retry_after)
    return json_response({"status": "ready", "version": service.versions.current.number})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return Prometheus metrics."""
    return Response(_service(request).metrics.text(), media_type="text/plain; version=0.0.4")


# -- the page and the description of all routes --------------------------------------------------


class _PageFiles(StaticFiles):
    """Files with a policy for scripts; browsers ask at each visit whether they have changed.

    They are small and always sent whole: what Starlette answers to a wrong range is not JSON.
    """

    def file_response(
        self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200
    ) -> Response:
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"range"]
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["accept-ranges"] = "none"
        response.headers["content-security-policy"] = POLICY
        response.headers["referrer-policy"] = "no-referrer"
        response.headers["cache-control"] = "no-cache"
        return response


_page = _PageFiles(directory=PAGE)


@_pages.get("/")
async def page(request: Request) -> Response:
    """Return the explorer page, which shows the description of all routes as well."""
    return await _page.get_response("index.html", request.scope)


@_pages.get("/openapi.json")
async def description(request: Request) -> Response:
    """Return the description of all routes; `json_response` would write large limits as text."""
    return JSONResponse(request.app.openapi())


@_pages.get("/docs")
async def docs() -> Response:
    """Lead to the description of all routes on the page."""
    return RedirectResponse("./#/api")
