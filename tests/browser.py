"""A real browser for pages: what it complains about, what it asks for, whether it all fits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: Names under which systems have it.
NAMES = ("chromium", "chromium-browser", "google-chrome")
#: It neither calls home nor asks anything, and needs no rights that a container lacks.
QUIET = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def executable() -> str | None:
    """Where the browser is; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Visit:
    """A page that is open in the browser.

    Attributes:
        page: To look at and to act on.
        errors: What it complained about: console errors and uncaught exceptions.
        foreign: Addresses that it asked for on other hosts than its own.
    """

    page: Page
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(script))


@contextmanager
def visit(
    browser: Browser, address: str, *, width: int = 1000, height: int = 800, dark: bool = False
) -> Iterator[Visit]:
    """Open an address (file:// or http://) in a window of its own, and write down what happens."""
    scheme = "dark" if dark else "light"
    window = {"width": width, "height": height}
    page = browser.new_page(viewport=window, color_scheme=scheme)  # type: ignore[arg-type]
    seen, home = Visit(page), urlsplit(address).netloc

    def asked(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("file", "data", "blob", "about") and parts.netloc != home:
            seen.foreign.append(url)

    page.on("console", lambda said: said.type == "error" and seen.errors.append(said.text))
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: asked(request.url))
    try:
        page.goto(address)
        yield seen
    finally:
        page.close()
