"""The page at `/`, for people who want to look around."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import HTMLResponse

router = APIRouter(include_in_schema=False)


@router.get("/")
async def page() -> HTMLResponse:
    """Say where things are."""
    return HTMLResponse('<!doctype html><title>transcf</title><a href="/docs">Routes</a>')
