"""The explorer's first visit, and how smoothly its map moves.

First visit: bytes, and seconds until the first content and the map are there, of a shop with 7,000
items; also on slow 3G (400 kbit/s, 300 ms, emulated by the browser).

Frames: a headless browser draws WebGL in software, the slowest there is; the points of the map are
made up here. Four seconds each; a screen of 60 Hz has a frame every 16.7 ms. "at rest" is the
longest frame of the three seconds after: where drawing is slow, points are drawn again then.

Run: python benchmarks/explorer.py [--points 50000] [--visits] [--json]
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from _load import HOST, free_port, running, serve_words
from transcf.data.synthetic import item_table, synthesize
from transcf.models.registry import create

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS, REST, CATEGORIES, WINDOW = 4.0, 3.0, 14, {"width": 1400, "height": 860}
ITEMS = 7000
SLOW_3G = {
    "offline": False, "latency": 300, "downloadThroughput": 50_000, "uploadThroughput": 50_000
}  # fmt: skip
QUIET = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
START = """() => {
    const own = (window.seen_ = []);  // an earlier watch ends with its own list
    const note = (time) => {
        if (own !== window.seen_) return;
        own.push(time);
        requestAnimationFrame(note);
    };
    requestAnimationFrame(note);
}"""
STOP = "() => { const seen = window.seen_; window.seen_ = null; return seen; }"


def made_up(n: int) -> dict[str, Any]:
    """Points in clouds, one for each category, as `GET /v1/map` answers."""
    random = np.random.default_rng(0)
    category = random.integers(0, CATEGORIES, n)
    places = random.normal(size=(CATEGORIES, 2))[category] + 0.4 * random.normal(size=(n, 2))
    return {
        "version": 1, "of": "item vectors", "translations": False, "attributes": [],
        "shares": [0.2, 0.1], "count": n,
        "categories": [f"category {number}" for number in range(CATEGORIES)],
        "item": [f"item {row}" for row in range(n)], "title": [f"Item {row}" for row in range(n)],
        "category": category[:, None].tolist(), "layout": "tsne", "pending": False,
        "users": sorted(random.zipf(2, n).tolist(), reverse=True),
        "x": places[:, 0].round(4).tolist(), "y": places[:, 1].round(4).tolist(),
    }  # fmt: skip


def act(page: Page, what: str) -> None:
    """Do one thing for some seconds."""
    box = page.locator("#plot").bounding_box()
    assert box is not None
    x, y, step = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, 0
    page.mouse.move(x, y)
    if what == "drag":
        page.mouse.down()
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        step += 1
        if what == "nothing":
            time.sleep(0.05)
        elif what == "zoom":
            page.mouse.wheel(0, 60 if step // 10 % 2 else -60)
        else:
            page.mouse.move(x + 7 * step % 200 - 100, y + 5 * step % 120 - 60)
    page.mouse.up()


def measure(page: Page, what: str) -> dict[str, Any]:
    page.evaluate(START)
    act(page, what)
    gaps = np.diff(page.evaluate(STOP))
    page.evaluate(START)
    time.sleep(REST)
    after = np.diff(page.evaluate(STOP))
    at = {"median": 50, "p95": 95, "longest": 100}
    figures = {name: round(float(np.percentile(gaps, share)), 1) for name, share in at.items()}
    return {"what": what, "frames": len(gaps), **figures, "at rest": round(float(after.max()), 1)}


def look(points: int, address: str) -> tuple[float, list[dict[str, Any]]]:
    """Seconds until the map is there, and times of frames."""
    from playwright.sync_api import sync_playwright

    body = json.dumps(made_up(points))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET))
        page = browser.new_page(viewport=WINDOW)  # type: ignore[arg-type]
        page.route(
            "**/v1/map?*", lambda route: route.fulfill(body=body, content_type="application/json")
        )
        started = time.perf_counter()
        page.goto(address)
        page.wait_for_selector("#map-state", state="hidden", timeout=120_000)
        until = time.perf_counter() - started
        rows = [measure(page, what) for what in ("nothing", "drag", "zoom", "point")]
        browser.close()
    return until, rows


def visit(address: str, slow: bool) -> dict[str, Any]:
    """Open the page in a browser without a cache; return bytes and seconds."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET))
        page = browser.new_page(viewport=WINDOW)  # type: ignore[arg-type]
        network = page.context.new_cdp_session(page)
        network.send("Network.enable")
        if slow:
            network.send("Network.emulateNetworkConditions", SLOW_3G)
        sizes: list[float] = []
        network.on("Network.loadingFinished", lambda e: sizes.append(e["encodedDataLength"]))
        started = time.perf_counter()
        page.goto(address, wait_until="commit")
        page.wait_for_selector("h1", timeout=60_000)
        content = time.perf_counter() - started
        page.wait_for_selector("#map-state", state="hidden", timeout=120_000)
        until = time.perf_counter() - started
        page.wait_for_timeout(500)
        browser.close()
    return {"bytes": int(sum(sizes)), "content": round(content, 2), "map": round(until, 2)}


def first_visits(place: Path) -> dict[str, dict[str, Any]]:
    """Serve a shop of 7,000 items and visit it."""
    log = synthesize(users=3000, items=ITEMS, interactions=80_000)
    assert log.categories is not None, "synthetic data has categories"
    create("popularity").fit(log).save(place / "shop")
    item_table(log.categories).write_csv(place / "items.csv")
    port = free_port()
    words = [*serve_words(place / "shop", port), "--items", str(place / "items.csv")]
    with running(words, port, log=DEVNULL):
        address = f"http://{HOST}:{port}"
        while httpx.get(f"{address}/v1/map?limit=1&layout=neighbors", timeout=60).json()["pending"]:
            time.sleep(1)
        return {"fast": visit(address, slow=False), "slow 3G": visit(address, slow=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--visits", action="store_true", help="measure first visits as well")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if shutil.which("chromium") is None:
        print("There is no Chromium here: `make browser` installs it.")
        return
    with tempfile.TemporaryDirectory() as place:
        visits = first_visits(Path(place)) if options.visits else {}
        create("popularity").fit(synthesize()).save(Path(place) / "model")
        port = free_port()
        with running(serve_words(Path(place) / "model", port), port, log=DEVNULL):
            until, rows = look(options.points, f"http://{HOST}:{port}/")
    if options.json:
        drawn = {"points": options.points, "seconds_until_drawn": until, "rows": rows}
        print(json.dumps({"visits": visits, **drawn}))
        return
    for name, seen in visits.items():
        print(
            f"First visit, {name}: {seen['bytes']:,} bytes, content after {seen['content']} s, "
            f"map of {ITEMS:,} items after {seen['map']} s"
        )
    print(f"{options.points:,} points, drawn after {until:.1f} s; milliseconds between frames:")
    print(f"{'':10}{'frames':>8}{'median':>9}{'p95':>9}{'longest':>9}{'at rest':>9}")
    for row in rows:
        figures = "".join(f"{row[name]:9.1f}" for name in ("median", "p95", "longest", "at rest"))
        print(f"{row['what']:10}{row['frames']:8}{figures}")


if __name__ == "__main__":
    main()
