"""The files of the explorer page.

Files are sent compressed, under names with a digest of all files, so that browsers keep them until
one changes. Starlette's `StaticFiles` does neither; the few files are kept in memory.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import re
from functools import cached_property
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


class _File:
    """A file in memory, with its compressed form."""

    def __init__(self, name: str, content: bytes) -> None:
        self.content = content
        self.kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        self.digest = hashlib.sha256(content).hexdigest()[:16]

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.content, 6, mtime=0)

    def response(self, request: Request, cache_control: str) -> Response:
        """Return the file, compressed if the client takes that; 304 if the client has it."""
        gzipped = "gzip" in request.headers.get("accept-encoding", "")
        tag = f'"{self.digest}{"-gzip" if gzipped else ""}"'
        headers = {**_HEADERS, "Cache-Control": cache_control, "ETag": tag}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if gzipped:
            headers["Content-Encoding"] = "gzip"
        return Response(
            self.compressed if gzipped else self.content, headers=headers, media_type=self.kind
        )


class _Page:
    """The files of the explorer page by name; `digest` changes with any of them."""

    def __init__(self) -> None:
        files = {path.name: path.read_bytes() for path in sorted(PAGE.iterdir()) if path.is_file()}
        self.digest = hashlib.sha256(repr(files).encode()).hexdigest()[:12]
        # Browsers would find imported scripts one after the other; some are only loaded on demand.
        late = set(re.findall(rb'import\("\./([^"]+)"\)', files["main.js"]))
        preloads = "".join(
            f'  <link rel="modulepreload" href="page/{name}">\n'
            for name in files
            if name.endswith(".js") and name.encode() not in late
        )
        index = files.pop("index.html").replace(b"</head>", preloads.encode() + b"</head>")
        self.index = _File("index.html", index.replace(b'"page/', f'"page/{self.digest}/'.encode()))
        self._files = {name: _File(name, content) for name, content in files.items()}

    def file(self, name: str) -> _File:
        if name not in self._files:
            raise HTTPException(404)
        return self._files[name]


def add_pages(app: FastAPI) -> None:
    """Add the explorer page, which shows the description of all routes as well."""
    page = _Page()

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return page.index.response(request, _CHECKED)

    @app.get("/page/{name}", include_in_schema=False)
    async def file(request: Request, name: str) -> Response:
        return page.file(name).response(request, _CHECKED)

    @app.get("/page/{digest}/{name}", include_in_schema=False)
    async def digested_file(request: Request, digest: str, name: str) -> Response:
        control = _IMMUTABLE if digest == page.digest else _CHECKED
        return page.file(name).response(request, control)

    @app.get("/openapi.json", include_in_schema=False)
    async def description() -> Response:
        return JSONResponse(app.openapi())  # `json_response` would write large limits as text

    @app.get("/docs", include_in_schema=False)
    async def docs() -> RedirectResponse:
        return RedirectResponse("./#/api")
