"""Routes of the service.

FastAPI's query models take 40 microseconds more than `_read_query` for the six parameters of a
recommendation: 5.8 % of the 0.69 ms of such a request (benchmarks/serving.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.responses import Response

from transcf.serving import queries, schemas
from transcf.serving.errors import error_response, json_response
from transcf.serving.events import EventCache
from transcf.serving.model_version import ModelVersion
from transcf.serving.queries import RecommendRequest
from transcf.serving.ranking import resolve_sessions, resolve_users
from transcf.serving.schemas import MAX_EXPLAINED, MAX_ITEMS, MAX_POINTS, Length, TextId
from transcf.serving.service import Service

router = APIRouter()

#: Query parameters that may be repeated.
_REPEATED = frozenset(("category", "exclude", "items"))


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _query(request: Request, query: Callable[[ModelVersion, EventCache], Any]) -> Response:
    return json_response(await _service(request).query(query))


async def _recommend(request: Request, asked: RecommendRequest) -> Response:
    return Response(await _service(request).recommend(asked), media_type="application/json")


def _read_query(request: Request) -> schemas.UserRequest:
    """Read path and query parameters; of a repeated one that is no list the last counts."""
    values = dict[str, Any]()
    for name, value in request.query_params.multi_items():
        if name in _REPEATED:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    try:
        return schemas.UserRequest.model_validate(values | request.path_params)
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


# -- recommendations -----------------------------------------------------------------------------


@router.get(
    "/v1/recommendations/{user:path}",
    response_model=schemas.Recommendations,
    openapi_extra=_describe_query(),
)
async def recommend(request: Request) -> Response:
    """Recommend items to a user."""
    return await _recommend(request, _read_query(request))


@router.post("/v1/recommendations", response_model=schemas.ManyRecommendations)
async def recommend_many(request: Request, asked: schemas.UsersRequest) -> Response:
    """Recommend items to many users."""
    return await _recommend(request, asked)


@router.post("/v1/session", response_model=schemas.SessionRecommendations)
async def recommend_session(request: Request, asked: schemas.SessionRequest) -> Response:
    """Recommend items for a session."""
    return await _recommend(request, asked)


# -- neighbours, explanations, facts, the map ----------------------------------------------------


@router.get("/v1/similar-items/{item:path}", response_model=schemas.SimilarItems)
async def similar_items(request: Request, item: TextId, k: Length = 10) -> Response:
    """Find the items most similar to an item."""
    return await _query(request, lambda version, _: queries.similar_items(version, item, k))


@router.get("/v1/similar-users/{user:path}", response_model=schemas.SimilarUsers)
async def similar_users(request: Request, user: TextId, k: Length = 10) -> Response:
    """Find the users most similar to a user."""
    return await _query(request, lambda version, _: queries.similar_users(version, user, k))


@router.get("/v1/explanation", response_model=schemas.Explained)
async def explain_user(
    request: Request,
    user: TextId,
    item: TextId,
    top: Annotated[int, Query(ge=1, le=MAX_EXPLAINED)] = 5,
) -> Response:
    """Explain the score of an item for a user."""
    return await _query(
        request, lambda version, events: queries.explain_user(version, events, user, item, top)
    )


@router.post("/v1/explanation", response_model=schemas.Explained)
async def explain_session(request: Request, asked: schemas.ExplainRequest) -> Response:
    """Explain the score of an item for a session."""
    session, item, top = asked.session, asked.item, asked.top
    return await _query(
        request, lambda version, _: queries.explain_session(version, session, item, top)
    )


@router.post("/v1/scores", response_model=schemas.PairScores)
async def scores(request: Request, asked: schemas.ScoresRequest) -> Response:
    """Score pairs of users and items."""
    pairs = [(pair.user, pair.item) for pair in asked.pairs]
    return await _query(request, lambda version, events: queries.scores(version, events, pairs))


@router.get("/v1/items/{item:path}", response_model=schemas.ItemFacts)
async def item_facts(request: Request, item: TextId) -> Response:
    """Return the metadata of an item."""
    return await _query(request, lambda version, _: queries.item_facts(version, item))


@router.get("/v1/users/{user:path}", response_model=schemas.UserFacts)
async def user_facts(
    request: Request, user: TextId, limit: Annotated[int, Query(ge=0, le=MAX_ITEMS)] = 100
) -> Response:
    """Return the history of a user."""
    return await _query(
        request, lambda version, events: queries.user_facts(version, events, user, limit)
    )


@router.get("/v1/search", response_model=schemas.Found)
async def search(
    request: Request,
    q: Annotated[str, Query(max_length=200)] = "",
    kind: Literal["items", "users", "all"] = "all",
    k: Length = 20,
) -> Response:
    """Find items and users by id and title."""
    return await _query(request, lambda version, _: queries.search(version, q, kind, k))


@router.get("/v1/categories")
async def categories(request: Request) -> Response:
    """List the categories."""
    return await _query(request, lambda version, _: queries.categories(version))


@router.get("/v1/map")
async def item_map(
    request: Request, limit: Annotated[int, Query(ge=0, le=MAX_POINTS)] = 50_000
) -> Response:
    """Return items in two dimensions."""
    return await _query(request, lambda version, _: version.projection.points(limit))


@router.post("/v1/map/position")
async def position(request: Request, asked: schemas.PositionRequest) -> Response:
    """Return the position of a user or a session on the map."""

    def find(version: ModelVersion, events: EventCache) -> dict[str, Any]:
        if asked.user is not None:
            user = resolve_users(version, events, [asked.user])[0]
        else:
            user, _ = resolve_sessions(version, [asked.session or []])[0]
        return version.projection.position(user, version.rankable_rows(asked.toward))

    return await _query(request, find)


# -- events and the service itself ---------------------------------------------------------------


@router.post("/v1/events", response_model=schemas.Stored)
async def add_events(
    request: Request, sent: schemas.EventsRequest | schemas.EventRequest
) -> Response:
    """Store one event or many; they are durable when the answer is sent."""
    events = sent.events if isinstance(sent, schemas.EventsRequest) else [sent]
    return json_response(asdict(await _service(request).add_events(events)))


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """Describe the served version."""
    return await _query(request, lambda *_: _service(request).versions.describe())


@router.get("/healthz")
async def alive() -> Response:
    """Answer while the process is alive."""
    return json_response({"status": "ok"})


@router.get("/readyz")
async def ready(request: Request) -> Response:
    """Return whether requests can be answered in full."""
    service = _service(request)
    trouble = await service.query(lambda _, events: events.error)
    if trouble is not None:
        return error_response(503, "unavailable", trouble, 1)
    return json_response({"status": "ready", "version": service.versions.current.number})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return Prometheus metrics."""
    return Response(_service(request).metrics.text(), media_type="text/plain; version=0.0.4")
