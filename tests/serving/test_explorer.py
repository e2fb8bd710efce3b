"""The explorer in a real browser: what it shows is what the service says, for everybody."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

import httpx
import numpy as np
import polars as pl
import pytest
from tests.browser import Visit, visit
from tests.serving.processes import living

from transcf.data.interactions import Interactions
from transcf.io.model_dir import Versions
from transcf.models.registry import create, load
from transcf.serving.app import POLICY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

#: A title that would be dangerous if it were anything but text.
HOSTILE = "<img src=x onerror=document.title='broken'><b>Tea</b>"
ITEM = "i01"
#: The part of the map that is shown: [[x0, x1], [y0, y1]].
VIEW = "document.getElementById('plot').view"
RECOMMENDED = '[aria-label="Recommendations"] .row'
PATHS = [
    "/", "/user/u001", f"/item/{ITEM}", "/session", "/compare/u001", "/compare/u001/u002",
    "/versions", "/versions/u001/1/1", "/model", "/service", "/api",
]  # fmt: skip
#: What people act on; each needs a name for those who cannot see it.
CONTROLS = {"button", "link", "combobox", "searchbox", "textbox", "option", "checkbox", "tab"}


@pytest.fixture(scope="module")
def url(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service whose map has its final layout."""
    place = tmp_path_factory.mktemp("explorer")
    items = pl.read_csv(trained / "items.csv")
    named = pl.when(pl.col("item_id") == ITEM).then(pl.lit(HOSTILE)).otherwise("title")
    items.with_columns(title=named).write_csv(place / "items.csv")
    settings = {"items": place / "items.csv", "events": str(place / "events.db")}
    with living(trained / "shop", **settings) as address:
        while ask(address, "map?limit=1&layout=neighbors")["pending"]:
            time.sleep(0.1)
        yield address


@pytest.fixture(scope="module")
def opened(browser: Browser, url: str) -> Iterator[Visit]:
    """One window for all tests that need no other, with the map drawn."""
    with visit(browser, url, width=1000, height=640) as seen:
        seen.page.wait_for_selector("#map-state", state="hidden")
        yield seen


@pytest.fixture
def page(opened: Visit, url: str) -> Iterator[Page]:
    """The window, at the start, with an empty session, and without a complaint at the end."""
    opened.page.keyboard.press("Escape")
    go(opened.page, url, "/session")
    if opened.page.locator("#session-count").is_visible():
        opened.page.get_by_role("button", name="Start over").click()
        opened.page.wait_for_selector("#session-count", state="hidden")
    go(opened.page, url, "/")
    opened.errors.clear()
    yield opened.page
    assert (opened.errors, opened.foreign) == ([], [])


def go(page: Page, url: str, path: str) -> None:
    """Open a view; the page itself stays."""
    page.goto(f"{url}/#{path}")
    page.wait_for_selector(f'body[data-shown="{path}"]')


def ask(url: str, path: str, **body: Any) -> Any:
    answer = httpx.post(f"{url}/v1/{path}", json=body) if body else httpx.get(f"{url}/v1/{path}")
    return answer.raise_for_status().json()


def colors_on(page: Page) -> int:
    """How many hues the points of the map have, roughly."""
    image = pytest.importorskip("PIL.Image")
    page.wait_for_timeout(300)  # the next frame, and the end of transitions
    picture = image.open(io.BytesIO(page.locator("#plot").screenshot())).convert("HSV")
    pixels = np.asarray(picture).reshape(-1, 3)
    hues = pixels[(pixels[:, 1] > 90) & (pixels[:, 2] > 90), 0] // 12
    return int((np.bincount(hues) > 20).sum())


def shown_names(page: Page) -> list[tuple[str, list[float]]]:
    """Names on the map, with their boxes."""
    script = """[...document.querySelectorAll("#labels span:not([hidden])")].map((node) => {
        const {left, top, right, bottom} = node.getBoundingClientRect();
        return [node.textContent, [left, top, right, bottom]];
    })"""
    return [(words, box) for words, box in page.evaluate(script)]


def items_of(rows: Locator) -> list[str | None]:
    return [row.get_attribute("data-item") for row in rows.all()]


def names(answer: Any) -> list[str]:
    return [entry["item"] for entry in answer["items"]]


def test_search_by_keyboard_leads_to_users_and_items(page: Page, url: str) -> None:
    page.keyboard.press("/")
    page.keyboard.type("u00", delay=5)
    page.wait_for_selector("#found .option >> text=u001")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1 >> text=u00")
    [first] = ask(url, "search?q=u00&kind=users&k=1")["users"]
    assert page.url.endswith(f"#/user/{first['user']}")
    title = ask(url, "items/i02")["title"]
    page.keyboard.press("/")
    page.keyboard.type(title.lower())
    page.keyboard.press("Enter")  # before the list is there
    page.wait_for_selector(f"h1 >> text={title}")
    page.keyboard.press("/")
    page.keyboard.type("no such thing")
    page.wait_for_selector("#found >> text=Nothing has")
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()


def test_recommendations_history_and_reasons_are_those_of_the_service(page: Page, url: str) -> None:
    go(page, url, "/user/u001")
    said = ask(url, "recommendations/u001?k=12&explain=true")
    assert items_of(page.locator(RECOMMENDED)) == names(said)
    row, entry = page.locator(RECOMMENDED).first, said["items"][0]
    [effect, *_] = entry["reason"]["effects"]
    for words in (
        entry["title"],
        entry["categories"][0],
        f"Because you chose {effect['title']}",
        f"{round(100 * effect['share'])} %",
    ):
        assert words in row.inner_text()
    level = entry["reason"]["evidence"].capitalize()
    assert row.get_by_role("img", name=f"{level} evidence").count() == 1
    past = [entry["item"] for entry in ask(url, "users/u001?limit=30")["history"]]
    assert items_of(page.locator('[aria-label="History"] .row')) == past
    near = ask(url, "similar-users/u001?k=6")["users"]
    cards = page.locator('[aria-label="Similar users"] .card').all_inner_texts()
    assert [card.split("\n")[0] for card in cards] == [entry["user"] for entry in near]
    assert f"{near[0]['count']} events, {near[0]['common']} in common" in cards[0]
    assert near[0]["categories"][0] in cards[0]


def test_an_item_says_why_and_what_is_similar(page: Page, url: str) -> None:
    go(page, url, "/user/u001")
    page.locator(f"{RECOMMENDED} .main").first.click()
    page.wait_for_selector("h2 >> text=Why, for user u001")
    [item, *_] = names(ask(url, "recommendations/u001?k=1"))
    why = ask(url, f"explanation?user=u001&item={item}&top=5")
    assert f"higher than {why['percentile']:g}"[:15] in page.locator(".verdict").inner_text()
    formula = page.locator("details", has_text="Details: score and formula")
    assert why["meaning"] not in formula.inner_text()
    formula.locator("summary").click()
    assert why["meaning"] in formula.inner_text()
    reasons = items_of(page.locator('[aria-label="Reasons"] .row'))
    assert reasons == [effect["item"] for effect in why["effects"]]
    similar = items_of(page.locator('[aria-label="Similar items"] .row'))
    assert similar == names(ask(url, f"similar-items/{item}?k=12"))


def test_an_explanation_says_what_is_not_new_and_how_much_it_rests_on(page: Page, url: str) -> None:
    history = ask(url, "users/u001?limit=100")
    go(page, url, f"/item/{history['history'][0]['item']}?user=u001")
    words = page.locator(".verdict").inner_text()
    assert "u001 has it already, so it is not recommended." in words
    assert f"{history['count']} items in the history" in words
    [item] = names(ask(url, "recommendations/u001?k=1"))
    go(page, url, f"/item/{item}?user=u001")
    assert "has it already" not in page.locator(".verdict").inner_text()


def test_a_session_changes_with_every_click(page: Page, url: str) -> None:
    go(page, url, "/session")
    rows = page.locator('[aria-label="Recommendations for the session"] .row')
    page.wait_for_selector("text=The session is empty")
    session: list[str | None] = []
    for _ in range(2):
        session.append(rows.nth(1).get_attribute("data-item"))
        rows.nth(1).locator(".main").click()
        page.wait_for_selector(f'[aria-label="The session"] [data-item="{session[-1]}"]')
        assert items_of(rows) == names(ask(url, "session", session=session, k=12))
    page.get_by_role("button", name="earlier").first.click()
    page.wait_for_selector(f'[aria-label="The session"] .row:first-child[data-item="{session[0]}"]')
    assert items_of(rows) == names(ask(url, "session", session=session[::-1], k=12))
    page.get_by_role("button", name="Start over").click()
    page.wait_for_selector("text=The session is empty")


def test_the_map_shows_all_items_and_where_translations_lead(page: Page, url: str) -> None:
    page.wait_for_selector("#map-state", state="hidden")
    said = ask(url, "map?layout=neighbors")
    assert len(said["item"]) == said["count"]
    assert colors_on(page) > 3, "points are drawn"
    go(page, url, "/user/u001")
    page.wait_for_selector("#overlay .me")
    page.locator(f"{RECOMMENDED} .main").first.hover()
    page.wait_for_selector("#overlay .moved")
    [item, *_] = names(ask(url, "recommendations/u001?k=1"))
    toward = ask(url, "map/position", user="u001", toward=[item], layout="neighbors")
    [there] = toward["toward"]
    assert page.locator("#overlay .way").count() == len(there["moved"])
    box = page.locator("#overlay").bounding_box()
    assert box is not None
    (x0, x1), (y0, y1) = page.evaluate(VIEW)
    x, y = there["moved"][0]["position"]
    dot = page.locator("#overlay .moved").first
    assert float(dot.get_attribute("cx") or 0) == pytest.approx(
        (x - x0) / (x1 - x0) * box["width"], abs=0.5
    )
    assert float(dot.get_attribute("cy") or 0) == pytest.approx(
        (y1 - y) / (y1 - y0) * box["height"], abs=0.5
    )
    assert page.locator("#tip").inner_text().startswith(said["title"][said["item"].index(item)])


def wait_for(page: Page, condition: str) -> None:
    """Wait until an expression is true; the policy of the page forbids `wait_for_function`."""
    for _ in range(300):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    raise AssertionError(condition)


def test_the_map_can_be_pointed_at_clicked_moved_and_filtered(page: Page, url: str) -> None:
    page.wait_for_selector("#map-state", state="hidden")
    go(page, url, "/session")
    said = ask(url, "map?layout=neighbors")
    box = page.locator("#overlay").bounding_box()
    assert box is not None
    ranges = f"{VIEW}.flat()"
    x0, x1, y0, y1 = page.evaluate(ranges)
    left = min(said["x"])
    place = said["x"].index(left)  # nothing lies over the outermost one
    across = box["x"] + (left - x0) / (x1 - x0) * box["width"]
    down = box["y"] + (y1 - said["y"][place]) / (y1 - y0) * box["height"]
    page.mouse.move(across + 60, down)
    page.mouse.move(across, down, steps=3)
    page.wait_for_selector("#tip >> visible=true")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector(f'[aria-label="The session"] [data-item="{said["item"][place]}"]')
    page.locator("#plot").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    wait_for(page, f"{ranges}[1] < {x1} && {ranges}[0] + {ranges}[1] > {x0 + x1}")
    nearer = page.evaluate(ranges)
    assert nearer[1] - nearer[0] == pytest.approx(0.75 * (x1 - x0))
    assert sum(nearer[:2]) > x0 + x1
    page.get_by_role("button", name="Show everything").click()
    wait_for(page, f"{ranges}[0] === {x0}")
    assert page.evaluate(ranges) == pytest.approx([x0, x1, y0, y1])
    page.mouse.move(across, down)
    page.mouse.wheel(0, -100)
    wait_for(page, f"{ranges}[1] < {x1}")
    zoomed = page.evaluate(ranges)
    assert (zoomed[1] - zoomed[0]) / (x1 - x0) == pytest.approx(np.exp(-100 / 400), rel=1e-3)
    before, after = (left - x0) / (x1 - x0), (left - zoomed[0]) / (zoomed[1] - zoomed[0])
    assert after == pytest.approx(before, abs=1 / box["width"]), "what is under the pointer stays"
    page.mouse.down()
    page.mouse.move(across + 60, down, steps=3)
    page.mouse.up()
    unit = (zoomed[1] - zoomed[0]) / box["width"]
    wait_for(page, f"{ranges}[1] < {zoomed[1]}")
    assert page.evaluate(ranges)[1] == pytest.approx(zoomed[1] - 60 * unit, abs=2 * unit)
    assert page.locator('[aria-label="The session"] .row').count() == 1, "that was no click"
    page.get_by_role("button", name="Show everything").click()
    go(page, url, "/")
    page.locator("#legend summary").click()  # closed in a narrow window
    before, button = colors_on(page), page.locator("#categories button").first
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert 1 <= colors_on(page) < before, "one category has a colour"
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    page.locator("#legend summary").click()


def test_names_on_the_map_do_not_collide_and_more_appear_on_zoom(page: Page, url: str) -> None:
    page.get_by_role("button", name="Show everything").click()
    page.wait_for_timeout(100)
    far = shown_names(page)
    assert len(far) > 3
    titles = ask(url, "map?limit=10")["title"]
    assert {words for words, _ in far} & set(titles), "well-known items have names"
    boxes = [box for _, box in far]
    for place, (left, top, right, bottom) in enumerate(boxes):
        for x0, y0, x1, y1 in boxes[:place]:
            assert left >= x1 or right <= x0 or top >= y1 or bottom <= y0
    for _ in range(4):
        page.get_by_role("button", name="Zoom in").click()
    page.wait_for_timeout(100)
    near = {words for words, _ in shown_names(page)}
    assert near - {words for words, _ in far}
    page.get_by_role("button", name="Show everything").click()


def test_points_are_coloured_by_a_number_of_the_items(page: Page, url: str) -> None:
    page.locator("#legend summary").click()  # closed in a narrow window
    before = colors_on(page)
    page.locator("#color-by").select_option("price")
    page.wait_for_selector(".scale")
    values = ask(url, "map/attribute?name=price")["values"]
    ends = [f"{value:g}" for value in (min(values), max(values))]
    assert page.locator(".scale").inner_text().split() == ends
    assert 1 <= colors_on(page) < before, "one scale"
    page.locator("#color-by").select_option("")
    assert page.locator(".scale").count() == 0
    assert colors_on(page) == before
    page.locator("#legend summary").click()


def test_neighbours_of_an_item_are_joined_to_it(page: Page, url: str) -> None:
    go(page, url, "/item/i02")
    page.wait_for_selector("#overlay .link")
    similar = ask(url, "similar-items/i02?k=12")["items"]
    assert page.locator("#overlay .link").count() == len(similar)
    assert page.locator("#overlay .pick").count() == len(similar)


def test_without_webgl_the_lists_remain(browser: Browser, url: str) -> None:
    with visit(browser, "about:blank") as seen:
        seen.page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
        seen.page.goto(f"{url}/#/user/u001")
        seen.page.wait_for_selector(f"{RECOMMENDED} >> nth=11")
        assert "no WebGL2" in seen.page.locator("#map-state").inner_text()
        assert seen.errors == []


def test_everything_can_be_done_by_keyboard(page: Page, url: str) -> None:
    go(page, url, "/user/u001")
    reached = ["Skip to the content"]
    page.locator(".skip").focus()
    for _ in range(8):
        page.keyboard.press("Tab")
        where = "document.activeElement.id || document.activeElement.textContent.trim()"
        reached.append(page.evaluate(where))
        assert page.locator(":focus-visible").count() == 1, reached
    wanted = [
        "Skip to the content",
        "transcf",
        "query",
        "Explore",
        "Session",
        "Model",
        "Service",
        "theme",
        "help",
    ]
    assert reached == wanted
    page.locator(f"{RECOMMENDED} .main").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = page.evaluate("document.activeElement.closest('.row').dataset.item")
    assert second == names(ask(url, "recommendations/u001?k=3"))[2]
    outline = page.evaluate("getComputedStyle(document.activeElement.closest('.row')).outlineStyle")
    assert outline == "solid", "where the keyboard is can be seen"
    page.keyboard.press("a")
    assert page.locator("#session-count").inner_text() == "1"
    page.keyboard.press("Enter")
    page.wait_for_selector("h2 >> text=Similar items")
    page.keyboard.press("s")
    page.wait_for_selector(f'[aria-label="The session"] [data-item="{second}"]')
    page.keyboard.press("?")
    assert page.locator("#shortcuts").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#shortcuts").is_hidden()


def unnamed(page: Page) -> list[str]:
    """Controls of the accessibility tree that have no name."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    found = [node for node in tree if not node["ignored"] and node["role"]["value"] in CONTROLS]
    assert len(found) > 8, "there are controls"
    return [str(node) for node in found if not node.get("name", {}).get("value", "").strip()]


def test_every_control_has_a_name(page: Page, url: str) -> None:
    for path in PATHS:
        go(page, url, path)
        assert unnamed(page) == [], path
    go(page, url, "/session")
    page.locator('[aria-label="Recommendations for the session"] .main').first.click()
    page.wait_for_selector('[aria-label="The session"] .row')
    page.keyboard.press("/")
    page.wait_for_selector("#found .option")
    assert unnamed(page) == []
    page.keyboard.press("Escape")


def test_the_model_shows_its_figures(page: Page, url: str) -> None:
    accuracy = {"model": {"NDCG@10": 0.1834}, "popularity": {"NDCG@10": 0.0611}}
    check = {"basis": "held_out", "users": 140, **accuracy}
    answer = {"version": 1, "k": 10, "coverage": 0.5, "checks": [check]}
    page.route("**/v1/quality", lambda route: route.fulfill(json=answer))
    go(page, url, "/model")
    said, text = ask(url, "models"), page.locator("#content").text_content() or ""
    assert page.locator("th", has_text="model.safetensors").is_hidden(), "files are folded"
    for words in ("0.1834", "0.0611"):
        assert words in page.locator(".checks").inner_text()
    assert "NDCG@10 is 0.1834, 3 times that of the most popular items (140 users)" in text
    for words in ("150", "60", said["folder"], "epochs", "model.safetensors", said["library"]):
        assert words in text


def test_titles_are_text_and_nothing_else(page: Page, url: str) -> None:
    go(page, url, "/item/i01")
    assert page.locator("h1").inner_text() == HOSTILE
    page.keyboard.press("/")
    page.keyboard.type("onerror")
    page.wait_for_selector("#found .option >> nth=0 >> text=onerror")
    assert HOSTILE in page.locator("#found .option").first.inner_text()
    assert page.locator("#content img, #found img, #found b").count() == 0
    assert "broken" not in page.title().split(" · ")
    page.keyboard.press("Escape")


def test_somebody_unknown_gets_what_is_popular(page: Page, url: str) -> None:
    strange = "a/b ☕ %2e"
    go(page, url, f"/user/{quote(strange, safe='')}")
    assert page.locator("h1").inner_text() == strange
    assert page.locator(".source").inner_text().startswith("The model does not know this user yet")


def test_what_is_unknown_or_away_is_said(opened: Visit, page: Page, url: str) -> None:
    go(page, url, "/item/nothing")
    page.wait_for_selector("text=There is no user or item with this id")
    page.context.set_offline(True)
    page.keyboard.press("s")
    page.wait_for_selector("#notice >> text=The service does not answer")
    page.wait_for_selector("#content >> text=The service is away")
    page.context.set_offline(False)
    page.locator("#notice button").click()
    page.wait_for_selector("h1 >> text=A session")
    assert page.locator("#notice").is_hidden()
    # Chromium itself notes what could not be loaded.
    assert all(said.startswith("Failed to load resource") for said in opened.errors)
    opened.errors.clear()


def test_a_token_is_asked_for_and_kept_in_the_tab(
    browser: Browser, trained: Path, tmp_path: Path
) -> None:
    token = "a-token-of-some-length"
    (tmp_path / "token").write_text(token)
    settings = {"events": str(tmp_path / "events.db"), "token_file": tmp_path / "token"}
    with living(trained / "shop", **settings) as address, visit(browser, "about:blank") as seen:
        seen.page.goto(f"{address}/#/user/u001")
        for attempt, title in [("wrong", "This service asks"), (token, "That token was not right")]:
            seen.page.wait_for_selector(f"#token-title >> text={title}")
            seen.page.locator("#token").fill(attempt)
            seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector(f"{RECOMMENDED} >> nth=11")
        seen.page.locator("#requests summary").click()
        seen.page.locator("#requests").get_by_role("button", name="curl").first.click()
        assert "Bearer $TRANSCF_TOKEN" in seen.page.locator("#requests pre").first.inner_text()
        assert token not in seen.page.content()
        assert seen.page.evaluate("Object.values(sessionStorage)") == [token]
        assert token not in seen.page.evaluate(
            "JSON.stringify([document.cookie, {...localStorage}])"
        )


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_is_wide_enough(opened: Visit, page: Page, url: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 640})
    outside = """[...document.querySelectorAll("a, button, input, summary")]
        .filter((node) => node.checkVisibility() && !node.matches(".skip"))
        .map((node) => [node.outerHTML, node.getBoundingClientRect()])
        .filter(([, box]) => box.left < 0 || box.right > innerWidth).map(([html]) => html)"""
    go(page, url, "/session")
    page.locator('[aria-label="Recommendations for the session"] .main').first.click()
    page.wait_for_selector("#session-count")
    for path in PATHS:
        go(page, url, path)
        assert (opened.overflow(), page.evaluate(outside)) == (0, []), path
    page.set_viewport_size({"width": 1000, "height": 640})


def test_the_list_comes_first_on_a_phone_and_the_map_is_a_tab(browser: Browser, url: str) -> None:
    with visit(browser, f"{url}/#/user/u001", width=390, height=800) as seen:
        page, asked = seen.page, []
        page.on("request", lambda request: asked.append(request.url))
        page.wait_for_selector(RECOMMENDED)
        assert page.locator("#map").is_hidden()
        assert not [address for address in asked if "/v1/map" in address], "fetched when opened"
        page.get_by_role("button", name="Map").click()
        page.wait_for_selector("#overlay .me")
        assert page.locator(RECOMMENDED).first.is_hidden()
        assert page.locator("h1").is_visible(), "it says whose map this is"
        page.get_by_role("button", name="List").click()
        assert page.locator(RECOMMENDED).first.is_visible()
        assert (seen.errors, seen.overflow()) == ([], 0)


def test_filters_are_those_of_the_service_and_in_the_address(page: Page, url: str) -> None:
    go(page, url, "/user/u001")
    name = ask(url, "categories")["categories"][0]["category"]
    page.get_by_label("Category", exact=True).select_option(name)
    page.wait_for_selector(f'body[data-shown="/user/u001?category={quote_plus(name)}"]')
    query = f"k=12&category={quote(name)}"
    assert items_of(page.locator(RECOMMENDED)) == names(ask(url, f"recommendations/u001?{query}"))
    page.get_by_label("with items of the history").check()
    page.wait_for_selector('body[data-shown$="seen=1"]')
    listed = names(ask(url, f"recommendations/u001?{query}&exclude_seen=false"))
    assert items_of(page.locator(RECOMMENDED)) == listed
    go(page, url, "/user/u001?k=24")
    assert page.locator(RECOMMENDED).count() == 24


def test_rows_can_be_grouped_by_reason(page: Page, url: str) -> None:
    said = ask(url, "recommendations/u001?k=12&explain=true")
    for place, entry in enumerate(said["items"]):
        cause = {"item": f"i{place % 2:02}", "title": f"Cause {place % 2}"}
        entry["reason"]["effects"] = [{**cause, "effect": 0.6, "share": 0.6}]
    page.route("**/v1/recommendations/u001*", lambda route: route.fulfill(json=said))
    go(page, url, "/user/u001")
    assert "6 of 12 because of Cause 0" in page.locator(".groups").inner_text()
    page.get_by_role("button", name="Group by reason").click()
    groups = page.locator(".group-of")
    assert groups.locator("h3").all_inner_texts() == [
        "Because you chose Cause 0",
        "Because you chose Cause 1",
    ]
    for place in (0, 1):
        assert items_of(groups.nth(place).locator(".row")) == names(said)[place::2]
    page.unroute("**/v1/recommendations/u001*")


def test_two_users_are_compared(page: Page, url: str) -> None:
    go(page, url, "/user/u001")
    page.get_by_role("link", name="Compare users").click()
    page.get_by_label("Second user").fill("u002")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_selector("h1 >> text=u001 and u002")
    lists = [names(ask(url, f"recommendations/{user}?k=12")) for user in ("u001", "u002")]
    for place, listed in enumerate(lists):
        assert items_of(page.locator(".column").nth(place).locator(".row")) == listed
    both = sorted(set(lists[0]) & set(lists[1]))
    assert sorted(items_of(page.locator(".column").first.locator(".row.both"))) == both
    assert f"{len(both)} of 12" in page.locator(".facts").inner_text()


def test_two_versions_are_compared(
    browser: Browser, shop: Path, log: Interactions, tmp_path: Path
) -> None:
    Versions(shop / "shop").add(create("ease").fit(log))
    settings = {"events": str(tmp_path / "events.db"), "verb": "bought"}
    with living(shop / "shop", **settings) as address, visit(browser, "about:blank") as seen:
        page = seen.page
        page.goto(f"{address}/#/user/u001")
        page.get_by_role("link", name="Compare versions").click()
        page.wait_for_selector("h1 >> text=Versions 1 and 2 for user u001")
        lists = [names(ask(address, f"versions/{n}/recommendations/u001?k=12")) for n in (1, 2)]
        for place, listed in enumerate(lists):
            assert items_of(page.locator(".column").nth(place).locator(".row")) == listed
        common = len(set(lists[0]) & set(lists[1]))
        assert f"{common} of 12" in page.locator(".facts").inner_text()
        assert "EASE" in page.locator(".column").nth(1).inner_text()
        assert "Because you bought" in page.locator(".column").first.inner_text()
        page.wait_for_timeout(200)
        assert page.url.endswith("#/versions/u001"), "the service still serves the same version"
        assert seen.errors == []


def test_requests_can_be_copied_and_answers_read(page: Page, url: str) -> None:
    go(page, url, "/user/u001")
    page.locator("#requests summary").click()
    first = page.locator("#requests li").first
    shown = first.locator("pre")
    first.get_by_role("button", name="curl").click()
    path = "v1/recommendations/u001?k=12&explain=true"
    assert shown.inner_text() == f"curl '{url}/{path}'"
    first.get_by_role("button", name="Python").click()
    scope: dict[str, Any] = {}
    exec(shown.inner_text(), scope)
    assert scope["answer"] == ask(url, path.removeprefix("v1/"))
    first.get_by_role("button", name="JSON").click()
    assert json.loads(shown.inner_text()) == scope["answer"]
    assert page.locator("#requests").get_by_role("link", name="API reference").count() == 1
    for path in PATHS:
        go(page, url, path)
        assert page.locator("#requests li").count(), path


def test_the_service_tab_shows_load_and_switches_versions(
    browser: Browser, shop: Path, tmp_path: Path
) -> None:
    versions = Versions(shop / "shop")
    versions.switch(versions.add(load(shop / "shop")))
    with living(shop / "shop", events=str(tmp_path / "events.db")) as address:
        ask(address, "events", user="u001", item="i01")
        with visit(browser, f"{address}/#/service") as seen:
            page = seen.page
            page.wait_for_selector("dt >> text=p99")
            figures = page.locator(".figures").all_inner_texts()
            assert "Events received\n1" in figures[1]
            assert "yes" in figures[0]
            page.on("dialog", lambda dialog: dialog.accept())
            page.get_by_role("button", name="Serve version 1").click()
            page.wait_for_selector("tr.current th >> text=1", timeout=10_000)
            assert (versions.current(), seen.errors) == (1, [])


def test_nothing_violates_the_policy(browser: Browser, url: str) -> None:
    assert "unsafe" not in POLICY
    with visit(browser, url) as seen:
        seen.page.add_init_script(
            "window.broken = []; addEventListener('securitypolicyviolation', "
            "(event) => window.broken.push(event.violatedDirective + event.blockedURI));"
        )
        for path in PATHS:
            seen.page.goto("about:blank")
            go(seen.page, url, path)
            seen.page.wait_for_timeout(100)
            assert seen.page.evaluate("window.broken") == [], path
        seen.page.goto("about:blank")
        seen.page.goto(f"{url}/docs")
        route = seen.page.locator(".route", has=seen.page.get_by_text("GET /v1/quality"))
        route.get_by_text("Answer").click()
        assert route.get_by_text("popularity", exact=True).is_visible()
        assert (seen.page.evaluate("window.broken"), seen.errors, seen.foreign) == ([], [], [])


def lightness(page: Page, what: str) -> float:
    """From 0, black, to 1, of a colour of the body."""
    script = f"getComputedStyle(document.body).{what}.match(/\\d+/g).slice(0, 3)"
    return sum(map(float, page.evaluate(script))) / 765


def test_colours_follow_the_system_and_the_button(page: Page) -> None:
    assert lightness(page, "backgroundColor") > 0.9 > 0.2 > lightness(page, "color")
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-theme=dark]")
    assert lightness(page, "backgroundColor") < 0.2 < 0.8 < lightness(page, "color")
    page.keyboard.press("t")  # light, whatever the system has
    assert lightness(page, "backgroundColor") > 0.9
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="Colours: light").click()
    assert lightness(page, "backgroundColor") < 0.2
    page.get_by_role("button", name="Colours: dark").click()
    assert lightness(page, "backgroundColor") > 0.9


@pytest.mark.parametrize("width", [820, 1080])
def test_a_label_never_covers_its_point(browser: Browser, url: str, width: int) -> None:
    said = ask(url, "map?layout=neighbors")
    with visit(browser, f"{url}/#/user/u005", width=width, height=700) as seen:
        page = seen.page
        page.wait_for_selector("#map-state", state="hidden")
        rows = page.locator(f"{RECOMMENDED} .main")
        rows.first.wait_for()
        for row, item in zip(rows.all(), items_of(page.locator(RECOMMENDED)), strict=True):
            place = said["item"].index(item)
            row.hover()
            page.locator("#tip", has_text=said["title"][place]).wait_for()
            (x0, x1), (y0, y1) = page.evaluate(VIEW)
            board, tip = (
                page.locator("#overlay").bounding_box(),
                page.locator("#tip").bounding_box(),
            )
            assert board is not None
            assert tip is not None
            x = board["x"] + (said["x"][place] - x0) / (x1 - x0) * board["width"]
            y = board["y"] + (y1 - said["y"][place]) / (y1 - y0) * board["height"]
            is_beside = not (tip["x"] <= x <= tip["x"] + tip["width"])
            assert is_beside or not (tip["y"] <= y <= tip["y"] + tip["height"])


def test_the_name_of_the_user_stays_on_the_map(page: Page, url: str) -> None:
    go(page, url, "/user/u005")
    page.wait_for_selector("#overlay .me")
    board, mark = (page.locator(f"#overlay{kind}").bounding_box() for kind in ("", " .me"))
    assert board is not None
    assert mark is not None
    right, middle = board["x"] + board["width"], board["y"] + board["height"] / 2
    page.mouse.move(board["x"] + 20, middle)
    page.mouse.down()
    page.mouse.move(board["x"] + 20 + right - 40 - mark["x"], middle, steps=4)
    page.mouse.up()
    page.wait_for_timeout(300)
    name = page.locator("#overlay text").bounding_box()
    assert name is not None
    assert board["x"] < name["x"] < name["x"] + name["width"] <= right
    page.locator("#plot").press("0")


def test_a_name_stands_on_the_map_once(page: Page, url: str) -> None:
    go(page, url, "/session")  # the most popular items are recommended, and named anyway
    page.wait_for_selector("#overlay .pick")
    page.wait_for_timeout(300)
    shown = [words for words, _ in shown_names(page)]
    assert len(shown) > 3
    assert len(set(shown)) == len(shown)


def test_an_explanation_has_an_address_of_its_own(page: Page, url: str) -> None:
    go(page, url, "/item/i02")
    page.get_by_label("User", exact=True).fill("u003")
    page.get_by_role("button", name="Explain").click()
    page.wait_for_selector("h2 >> text=Why, for user u003")
    assert page.url == f"{url}/#/item/i02?user=u003"
    page.locator('[aria-label="Similar items"] .main').first.click()
    page.wait_for_selector('body[data-shown^="/item/"]:not([data-shown*="i02"])')
    assert page.url.endswith("?user=u003")
    page.reload()
    page.wait_for_selector("h2 >> text=Why, for user u003")


@pytest.mark.parametrize("width", [390, 1000])
def test_long_names_have_their_place(
    browser: Browser, log: Interactions, tmp_path: Path, width: int
) -> None:
    frame = log.to_frame().with_columns(pl.col("user_id") + f"-{'0123456789' * 8}@example.org")
    create("transcf-mixture", dim=8, epochs=1).fit(frame).save(tmp_path / "model")
    items = frame.select("item_id").unique()
    long = pl.format("Item {} {}", "item_id", pl.lit("and what came of it " * 12))
    items.with_columns(title=long, category=pl.lit("a very long category " * 4)).write_csv(
        tmp_path / "items.csv"
    )
    with living(tmp_path / "model", items=tmp_path / "items.csv") as address:
        one, other = [quote(card["user"]) for card in ask(address, "search?q=&k=2")["users"]]
        with visit(browser, address, width=width) as seen:
            for path in ("/", f"/user/{one}", f"/compare/{one}/{other}"):
                go(seen.page, address, path)
                assert seen.overflow() == 0, path
                script = "all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
                assert seen.page.eval_on_selector_all(".card, .column > header", script) == 0, path
            go(seen.page, address, f"/user/{one}")
            reasons = seen.page.locator(f"{RECOMMENDED} .reason").all_inner_texts()
            assert reasons
            assert max(map(len, reasons)) < 200


def test_the_legend_leaves_out_categories_without_a_colour(
    browser: Browser, shop: Path, tmp_path: Path
) -> None:
    items = pl.read_csv(shop / "items.csv").with_row_index()
    kinds = pl.concat_str(pl.lit("kind "), (pl.col("index") % 15).cast(pl.String))
    items.drop("index").with_columns(category=items.select(kinds).to_series()).write_csv(
        shop / "items.csv"
    )
    settings = {"items": shop / "items.csv", "events": str(tmp_path / "events.db")}
    with (
        living(shop / "shop", **settings) as address,
        visit(browser, address, width=1400) as seen,
    ):
        buttons = seen.page.locator("#categories button")
        seen.page.get_by_role("button", name="5 more").wait_for()
        assert buttons.count() == 11
        seen.page.get_by_role("button", name="5 more").click()
        assert buttons.count() == 15
        assert seen.errors == []


def test_the_start_says_how_accurate_the_model_is(page: Page, url: str) -> None:
    assert "has not been measured" in page.locator(".good").inner_text()
    said = ask(url, "models")
    compared = {"metric": "NDCG@10", "model": 0.1, "popularity": 0.0216, "users": 651}
    said["report"] = said["report"] | {"held_out_metric": compared}
    page.route("**/v1/models", lambda route: route.fulfill(json=said))
    page.reload()
    page.wait_for_selector("text=NDCG@10 is 0.10, 4.6 times that of")
    page.unroute("**/v1/models")
    page.reload()
    page.wait_for_selector("text=has not been measured")
