"""The files of the explorer page.

Files are sent compressed, under names with a digest of all files, so that browsers keep them until
one changes. Starlette's `StaticFiles` does neither; the few files are kept in memory.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response

PAGE = Path(__file__).with_name("page")
#: Scripts and styles come from this service only; none is inline or compiled from text.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}
#: Browsers ask again, and get a 304 by the ETag; or they never ask again.
_CHECKED, _IMMUTABLE = "no-cache", "public, max-age=31536000, immutable"


def _index(files: Mapping[str, bytes], digest: str) -> bytes:
    """Return the page with links to files under their digest."""
    # Browsers would find imported scripts one after the other; some are only loaded on demand.
    late = set(re.findall(rb'import\("\./([^"]+)"\)', files["main.js"]))
    preloads = "".join(
        f'  <link rel="modulepreload" href="page/{name}">\n'
        for name in files
        if name.endswith(".js") and name.encode() not in late
    )
    index = files["index.html"].replace(b"</head>", preloads.encode() + b"</head>")
    return index.replace(b'"page/', f'"page/{digest}/'.encode())


@cache
def _encode(content: bytes, gzipped: bool) -> tuple[bytes, str]:
    """Return a file as it is sent, and its tag."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    if gzipped:
        return gzip.compress(content, 6, mtime=0), f'"{digest}-gzip"'
    return content, f'"{digest}"'


def _response(request: Request, name: str, content: bytes, cache_control: str) -> Response:
    """Return a file, compressed if the client takes that; 304 if the client has it."""
    gzipped = "gzip" in request.headers.get("accept-encoding", "")
    body, tag = _encode(content, gzipped)
    headers = {**_HEADERS, "Cache-Control": cache_control, "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if gzipped:
        headers["Content-Encoding"] = "gzip"
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(body, headers=headers, media_type=kind)


def add_pages(app: FastAPI) -> None:
    """Add the explorer page, which shows the description of all routes as well."""
    files = {path.name: path.read_bytes() for path in sorted(PAGE.iterdir()) if path.is_file()}
    current = hashlib.sha256(repr(files).encode()).hexdigest()[:12]
    page = _index(files, current)
    del files["index.html"]

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return _response(request, "index.html", page, _CHECKED)

    @app.get("/page/{name}", include_in_schema=False)
    @app.get("/page/{digest}/{name}", include_in_schema=False)
    async def file(request: Request, name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        control = _IMMUTABLE if request.path_params.get("digest") == current else _CHECKED
        return _response(request, name, files[name], control)

    @app.get("/openapi.json", include_in_schema=False)
    async def description() -> Response:
        return JSONResponse(app.openapi())  # `json_response` would write large limits as text

    @app.get("/docs", include_in_schema=False)
    async def docs() -> RedirectResponse:
        return RedirectResponse("./#/api")
