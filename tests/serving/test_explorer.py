"""The explorer in a real browser: what it shows is what the service says, for everybody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import numpy as np
import polars as pl
import pytest
from tests.browser import Visit, visit
from tests.serving.processes import living

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

#: A title that would be dangerous if it were anything but text.
HOSTILE = "<img src=x onerror=document.title='broken'><b>Tea</b>"
ITEM = "i01"
RECOMMENDED = '[aria-label="Recommendations"] .row'
PATHS = ["/", "/user/u001", f"/item/{ITEM}", "/session", "/model"]
#: What people act on; each needs a name for those who cannot see it.
CONTROLS = {"button", "link", "combobox", "searchbox", "textbox", "option", "checkbox", "tab"}


@pytest.fixture(scope="module")
def url(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("explorer")
    items = pl.read_csv(trained / "items.csv")
    named = pl.when(pl.col("item_id") == ITEM).then(pl.lit(HOSTILE)).otherwise("title")
    items.with_columns(title=named).write_csv(place / "items.csv")
    settings = {"items": place / "items.csv", "events": str(place / "events.db")}
    with living(trained / "shop", **settings) as address:
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
    reason = f"because of {effect['title']} ({round(100 * effect['share'])} %)"
    for words in (entry["title"], entry["categories"][0], reason):
        assert words in row.inner_text()
    past = [entry["item"] for entry in ask(url, "users/u001?limit=30")["history"]]
    assert items_of(page.locator('[aria-label="History"] .row')) == past
    near = [str(entry["user"]) for entry in ask(url, "similar-users/u001?k=8")["users"]]
    assert page.locator(".chip").all_inner_texts() == near


def test_an_item_says_why_and_what_is_similar(page: Page, url: str) -> None:
    go(page, url, "/user/u001")
    page.locator(f"{RECOMMENDED} .main").first.click()
    page.wait_for_selector("h2 >> text=Why, for u001")
    [item, *_] = names(ask(url, "recommendations/u001?k=1"))
    why = ask(url, f"explanation?user=u001&item={item}&top=5")
    reasons = items_of(page.locator('[aria-label="Reasons"] .row'))
    assert reasons == [effect["item"] for effect in why["effects"]]
    similar = items_of(page.locator('[aria-label="Similar items"] .row'))
    assert similar == names(ask(url, f"similar-items/{item}?k=12"))


def test_a_session_changes_with_every_click(page: Page, url: str) -> None:
    go(page, url, "/session")
    rows = page.locator('[aria-label="Recommendations for the session"] .row')
    page.wait_for_selector("text=Nobody knows this person yet")
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
    page.wait_for_selector("text=Nobody knows this person yet")


def test_the_map_shows_all_items_and_where_translations_lead(page: Page, url: str) -> None:
    page.wait_for_selector("#map-state", state="hidden")
    said = ask(url, "map")
    drawn = page.evaluate("document.getElementById('plot').data.flatMap(t => t.customdata)")
    assert sorted(drawn) == list(range(said["count"])) == list(range(len(said["item"])))
    go(page, url, "/user/u001")
    page.wait_for_selector("#overlay .me")
    page.locator(f"{RECOMMENDED} .main").first.hover()
    page.wait_for_selector("#overlay .moved")
    [item, *_] = names(ask(url, "recommendations/u001?k=1"))
    toward = ask(url, "map/position", user="u001", toward=[item])
    [there] = toward["toward"]
    assert page.locator("#overlay .way").count() == len(there["moved"])
    ranges = page.evaluate(
        "(p => [p.xaxis.range, p.yaxis.range])(document.getElementById('plot').layout)"
    )
    box = page.locator("#overlay").bounding_box()
    assert box is not None
    (x0, x1), (y0, y1) = ranges
    x, y = there["moved"][0]["position"]
    dot = page.locator("#overlay .moved").first
    assert float(dot.get_attribute("cx") or 0) == pytest.approx(
        (x - x0) / (x1 - x0) * box["width"], abs=0.5
    )
    assert float(dot.get_attribute("cy") or 0) == pytest.approx(
        (y1 - y) / (y1 - y0) * box["height"], abs=0.5
    )
    assert page.locator("#tip").inner_text().startswith(said["title"][said["item"].index(item)])


def test_the_map_can_be_pointed_at_clicked_moved_and_filtered(page: Page, url: str) -> None:
    page.wait_for_selector("#map-state", state="hidden")
    go(page, url, "/session")
    said, box = ask(url, "map"), page.locator("#overlay").bounding_box()
    assert box is not None
    ranges = "(p => [p.xaxis.range, p.yaxis.range].flat())(document.getElementById('plot').layout)"
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
    nearer = page.evaluate(ranges)
    assert nearer[1] - nearer[0] == pytest.approx(0.75 * (x1 - x0))
    assert sum(nearer[:2]) > x0 + x1
    page.get_by_role("button", name="Show everything").click()
    assert page.evaluate(ranges) == pytest.approx([x0, x1, y0, y1])
    page.mouse.move(across, down)
    page.mouse.wheel(0, -100)
    page.wait_for_function(f"{ranges}[1] < {x1}")
    zoomed = page.evaluate(ranges)
    assert (zoomed[1] - zoomed[0]) / (x1 - x0) == pytest.approx(np.exp(-100 / 400), rel=1e-3)
    before, after = (left - x0) / (x1 - x0), (left - zoomed[0]) / (zoomed[1] - zoomed[0])
    assert after == pytest.approx(before, abs=1 / box["width"]), "what is under the pointer stays"
    page.mouse.down()
    page.mouse.move(across + 60, down, steps=3)
    page.mouse.up()
    unit = (zoomed[1] - zoomed[0]) / box["width"]
    page.wait_for_function(f"{ranges}[1] < {zoomed[1]}")
    assert page.evaluate(ranges)[1] == pytest.approx(zoomed[1] - 60 * unit, abs=2 * unit)
    assert page.locator('[aria-label="The session"] .row').count() == 1, "that was no click"
    page.get_by_role("button", name="Show everything").click()
    page.locator("#legend summary").click()  # closed in a narrow window
    button = page.locator("#categories button").first
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert page.evaluate("document.getElementById('plot').data[0].visible") is False
    button.click()
    page.locator("#legend summary").click()


def test_everything_can_be_done_by_keyboard(page: Page, url: str) -> None:
    go(page, url, "/user/u001")
    reached = ["Skip to the content"]
    page.locator(".skip").focus()
    for _ in range(7):
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
    go(page, url, "/model")
    said, text = ask(url, "models"), page.locator("#content").inner_text()
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
    assert page.locator(".source").inner_text().startswith("Nobody knows this person yet")


def test_what_is_unknown_or_away_is_said(opened: Visit, page: Page, url: str) -> None:
    go(page, url, "/item/nothing")
    page.wait_for_selector("text=Nobody and nothing has this id")
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
        seen.page.route("**/plotly.js", lambda route: route.abort())  # not needed here
        seen.page.goto(f"{address}/#/user/u001")
        for attempt, title in [("wrong", "This service asks"), (token, "That token was not right")]:
            seen.page.wait_for_selector(f"#token-title >> text={title}")
            seen.page.locator("#token").fill(attempt)
            seen.page.keyboard.press("Enter")
        seen.page.wait_for_selector(f"{RECOMMENDED} >> nth=11")
        assert seen.page.evaluate("Object.values(sessionStorage)") == [token]
        assert token not in seen.page.evaluate(
            "JSON.stringify([document.cookie, {...localStorage}])"
        )
        assert seen.page.locator("#map-state").inner_text().startswith("The plotting library")


def test_a_phone_is_wide_enough(opened: Visit, page: Page, url: str) -> None:
    page.set_viewport_size({"width": 400, "height": 640})
    outside = """[...document.querySelectorAll("a, button, input, summary")]
        .filter((node) => node.checkVisibility() && !node.matches(".skip"))
        .map((node) => [node.outerHTML, node.getBoundingClientRect()])
        .filter(([, box]) => box.left < 0 || box.right > 400).map(([html]) => html)"""
    for path in PATHS:
        go(page, url, path)
        assert (opened.overflow(), page.evaluate(outside)) == (0, []), path
    page.set_viewport_size({"width": 1000, "height": 640})


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
    said = ask(url, "map")
    with visit(browser, f"{url}/#/user/u005", width=width, height=700) as seen:
        page = seen.page
        page.wait_for_selector("#map-state", state="hidden")
        rows = page.locator(f"{RECOMMENDED} .main")
        rows.first.wait_for()
        for row, item in zip(rows.all(), items_of(page.locator(RECOMMENDED)), strict=True):
            place = said["item"].index(item)
            row.hover()
            page.locator("#tip", has_text=said["title"][place]).wait_for()
            (x0, x1), (y0, y1) = page.evaluate(
                "(p => [p.xaxis.range, p.yaxis.range])(document.getElementById('plot').layout)"
            )
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
