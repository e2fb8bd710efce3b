"""Recommendations: of a user, of many, of a session."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from transcf.serving.asking import Ask
from transcf.serving.limits import MOST_ITEMS
from transcf.serving.ranking import Wish
from transcf.serving.schemas import (
    Answer,
    AnyText,
    Length,
    SessionAnswer,
    SessionAsked,
    UsersAnswer,
    UsersAsked,
    Wished,
    check_reasons,
)
from transcf.serving.service import Service

router = APIRouter(tags=["recommendations"])
_Several = Annotated[list[AnyText], Query(max_length=MOST_ITEMS)]


def service_of(request: Request) -> Service:
    """Return what answers."""
    service: Service = request.app.state.service
    return service


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


@router.get("/v1/recommendations/{user:path}", response_model=Answer)
async def recommend(
    request: Request,
    user: Annotated[AnyText, Path(description="Id of the user, percent-encoded.")],
    k: Annotated[Length, Query(description="Longest list.")] = 10,
    exclude_seen: Annotated[bool, Query(description="Leave out what the user has.")] = True,
    category: Annotated[_Several, Query(description="Only items of these categories.")] = [],  # noqa: B006
    exclude: Annotated[_Several, Query(description="Items to leave out.")] = [],  # noqa: B006
    items: Annotated[_Several, Query(description="The only items to choose from.")] = [],  # noqa: B006
    explain: Annotated[bool, Query(description="Say why.")] = False,
) -> Response:
    """Recommend items to a user."""
    try:
        check_reasons(k, explain)
    except ValueError as error:
        found = {"loc": ("query", "k"), "msg": str(error), "type": "value_error"}
        raise RequestValidationError([found]) from error
    wish = Wish(k, exclude_seen, tuple(category), tuple(exclude), tuple(items) or None)
    ask = Ask(wish, users=(user,), explain=explain)
    return _json(await service_of(request).lists(ask))


@router.post("/v1/recommendations", response_model=UsersAnswer)
async def recommend_many(request: Request, asked: UsersAsked) -> Response:
    """Recommend items to many users in one call."""
    users = tuple(dict.fromkeys(asked.users))
    ask = Ask(_wish(asked), users=users, many=True, explain=asked.explain)
    return _json(await service_of(request).lists(ask))


@router.post("/v1/session", response_model=SessionAnswer)
async def recommend_session(request: Request, asked: SessionAsked) -> Response:
    """Recommend items to somebody of whom only a session is known."""
    ask = Ask(_wish(asked), session=tuple(asked.session), explain=asked.explain)
    return _json(await service_of(request).lists(ask))


def _wish(asked: Wished) -> Wish:
    return Wish(
        asked.k,
        asked.exclude_seen,
        tuple(asked.categories or ()),
        tuple(asked.exclude or ()),
        None if asked.items is None else tuple(asked.items),
    )
