"""Recommendations: of a user, of many, of a session."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from transcf.serving.ranking import RecommendOptions
from transcf.serving.requests import RecommendRequest
from transcf.serving.routes.reading import described, read
from transcf.serving.schemas import (
    Answer,
    SessionAnswer,
    SessionAsked,
    UserAsked,
    UsersAnswer,
    UsersAsked,
    Wished,
)
from transcf.serving.service import Service

router = APIRouter(tags=["recommendations"])


def service_of(request: Request) -> Service:
    """Return what answers."""
    service: Service = request.app.state.service
    return service


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


@router.get(
    "/v1/recommendations/{user:path}",
    response_model=Answer,
    openapi_extra=described(UserAsked, "user"),
)
async def recommend(request: Request) -> Response:
    """Recommend items to a user."""
    asked = read(UserAsked, request)
    only = tuple(asked.items) or None
    wish = RecommendOptions(
        asked.k, asked.exclude_seen, tuple(asked.category), tuple(asked.exclude), only
    )
    ask = RecommendRequest(wish, users=(asked.user,), explain=asked.explain)
    return _json(await service_of(request).lists(ask))


@router.post("/v1/recommendations", response_model=UsersAnswer)
async def recommend_many(request: Request, asked: UsersAsked) -> Response:
    """Recommend items to many users in one call."""
    users = tuple(dict.fromkeys(asked.users))
    ask = RecommendRequest(_wish(asked), users=users, many=True, explain=asked.explain)
    return _json(await service_of(request).lists(ask))


@router.post("/v1/session", response_model=SessionAnswer)
async def recommend_session(request: Request, asked: SessionAsked) -> Response:
    """Recommend items to somebody of whom only a session is known."""
    ask = RecommendRequest(_wish(asked), session=tuple(asked.session), explain=asked.explain)
    return _json(await service_of(request).lists(ask))


def _wish(asked: Wished) -> RecommendOptions:
    return RecommendOptions(
        asked.k,
        asked.exclude_seen,
        tuple(asked.categories or ()),
        tuple(asked.exclude or ()),
        None if asked.items is None else tuple(asked.items),
    )
