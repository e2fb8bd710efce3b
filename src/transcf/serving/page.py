"""The explorer: the page at `/`, its parts under `/page/`, and plotly's script from its wheel.

Everything comes from this service, and the page's policy lets the browser ask nobody else.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec

from fastapi import APIRouter, HTTPException, Request, Response

from transcf.errors import MissingExtraError

#: Scripts come from here alone, none from the page's own text. plotly compiles what draws by WebGL
#: while it runs (hence 'unsafe-eval') and writes rules into style elements ('unsafe-inline').
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
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_PLOTLY = "plotly.js"

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Asset:
    """A file of the page.

    Attributes:
        content: What is in it.
        kind: Its media type.
        tag: Changes with the content, for browsers that have it already.
    """

    content: bytes
    kind: str
    tag: str


@cache
def assets() -> dict[str, Asset]:
    """Read all files of the page, by name.

    Raises:
        MissingExtraError: plotly is not installed.
    """
    folder = files("transcf.serving") / "page"
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    if find_spec("plotly") is None:
        raise MissingExtraError("The explorer's map", "serve")
    script = files("plotly") / "package_data" / "plotly.min.js"  # importing plotly takes a second
    found[_PLOTLY] = script.read_bytes()
    return {name: _asset(name, content) for name, content in found.items()}


def _asset(name: str, content: bytes) -> Asset:
    digest = hashlib.sha256(content).hexdigest()[:32]
    return Asset(content, _TYPES[name.rpartition(".")[2]], f'"{digest}"')


@router.get("/")
async def index(request: Request) -> Response:
    """Answer with the page itself."""
    return _answer(request, assets()["index.html"])


@router.get("/page/{name}")
async def part(request: Request, name: str) -> Response:
    """Answer with one of its parts."""
    if name not in assets():
        raise HTTPException(404)
    return _answer(request, assets()[name])


def _answer(request: Request, asset: Asset) -> Response:
    headers = {
        "Cache-Control": "no-cache",  # ask whether it is still the same: a tag is enough then
        "Content-Security-Policy": POLICY,
        "ETag": asset.tag,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    if request.headers.get("if-none-match") == asset.tag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.kind, headers=headers)
