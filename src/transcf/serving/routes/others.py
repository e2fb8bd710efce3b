"""Neighbours, reasons, scores, facts, search and the map."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from transcf.serving.errors import as_json
from transcf.serving.events.cache import EventCache
from transcf.serving.limits import MOST_ITEMS, MOST_REASONS
from transcf.serving.loaded_model import usable_rows
from transcf.serving.routes.lists import service_of
from transcf.serving.schemas import AnyText, Length, PositionAsked, ScoresAsked, WhyAsked
from transcf.serving.users import find_people, find_sessions
from transcf.serving.version_manager import ModelVersion

router = APIRouter(tags=["facts"])
#: Most points of a map.
_POINTS = 200_000


@router.get("/v1/similar-items/{item:path}")
async def similar_items(request: Request, item: AnyText, k: Length = 10) -> Response:
    """Find the items most similar to an item."""
    service = service_of(request)
    return as_json(await service.ask(lambda desk, _: desk.looking.similar_items(item, k)))


@router.get("/v1/similar-users/{user:path}")
async def similar_users(request: Request, user: AnyText, k: Length = 10) -> Response:
    """Find the users most similar to a user."""
    service = service_of(request)
    return as_json(await service.ask(lambda desk, _: desk.looking.similar_users(user, k)))


@router.get("/v1/explanation")
async def explain_user(
    request: Request,
    user: AnyText,
    item: AnyText,
    top: Annotated[int, Query(ge=1, le=MOST_REASONS)] = 5,
) -> Response:
    """Say why an item has its score for a user."""

    def question(desk: ModelVersion, recent: EventCache) -> dict[str, object]:
        return desk.looking.explain_user(recent, user, item, top)

    return as_json(await service_of(request).ask(question))


@router.post("/v1/explanation")
async def explain_session(request: Request, asked: WhyAsked) -> Response:
    """Say why an item has its score for a session."""

    def question(desk: ModelVersion, recent: EventCache) -> dict[str, object]:
        return desk.looking.explain_session(asked.session, asked.item, asked.top)

    return as_json(await service_of(request).ask(question))


@router.post("/v1/scores")
async def scores(request: Request, asked: ScoresAsked) -> Response:
    """Score pairs of users and items."""
    pairs = [(pair.user, pair.item) for pair in asked.pairs]
    service = service_of(request)
    return as_json(await service.ask(lambda desk, recent: desk.looking.scores(recent, pairs)))


@router.get("/v1/items/{item:path}")
async def item_facts(request: Request, item: AnyText) -> Response:
    """Return what is known of an item."""
    return as_json(await service_of(request).ask(lambda desk, _: desk.looking.item(item)))


@router.get("/v1/users/{user:path}")
async def user_facts(
    request: Request, user: AnyText, limit: Annotated[int, Query(ge=0, le=MOST_ITEMS)] = 100
) -> Response:
    """Return what is known of a user."""
    service = service_of(request)
    return as_json(await service.ask(lambda desk, recent: desk.looking.user(recent, user, limit)))


@router.get("/v1/search")
async def search(
    request: Request,
    q: Annotated[str, Query(max_length=200)] = "",
    kind: Literal["items", "users", "all"] = "all",
    k: Length = 20,
) -> Response:
    """Search for items and users."""
    return as_json(await service_of(request).ask(lambda desk, _: desk.search(q, kind, k)))


@router.get("/v1/categories")
async def categories(request: Request) -> Response:
    """List the categories."""
    return as_json(await service_of(request).ask(lambda desk, _: desk.looking.categories()))


@router.get("/v1/map")
async def item_map(
    request: Request, limit: Annotated[int, Query(ge=0, le=_POINTS)] = 50_000
) -> Response:
    """Return items on a plane."""
    return as_json(await service_of(request).ask(lambda desk, _: desk.plane.points(limit)))


@router.post("/v1/map/position")
async def position(request: Request, asked: PositionAsked) -> Response:
    """Return where somebody stands on that plane."""

    def question(desk: ModelVersion, recent: EventCache) -> dict[str, object]:
        if asked.user is not None:
            person = find_people(desk.served, recent, [asked.user])[0]
        else:
            person, _ = find_sessions(desk.served, [asked.session or []])[0]
        return desk.plane.position(person, usable_rows(desk.served, list(asked.toward)))

    return as_json(await service_of(request).ask(question))
