"""A report in a real browser: nothing to complain about, nothing asked for, and all of it fits."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.browser import visit
from tests.experiments.stored_results import RESULTS, results_of

from transcf.experiments.report import page_of


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = page_of(results_of(RESULTS)).write(tmp_path_factory.mktemp("page") / "r.html")
    return path


@pytest.mark.parametrize(("width", "dark"), [(400, True), (1400, False)])
def test_a_report_opens_quietly_and_fits(browser, report: Path, width: int, dark: bool) -> None:
    with visit(browser, report.as_uri(), width=width, dark=dark) as seen:
        assert seen.overflow() == 0
        assert seen.page.locator("figure svg").count() >= 4
        links = seen.page.locator("nav a")
        assert links.count() == seen.page.locator("main section").count()
        for place in range(links.count()):
            target = links.nth(place).get_attribute("href")
            assert seen.page.locator(f"[id='{target[1:]}']").count() == 1
        for figure in seen.page.locator("figure svg").all():
            assert figure.bounding_box()["width"] <= width
        ink = seen.page.locator("figure svg text").first.evaluate("e => getComputedStyle(e).fill")
        assert ink == ("rgb(228, 233, 237)" if dark else "rgb(29, 39, 48)")
    assert (seen.errors, seen.foreign) == ([], [])


def test_what_goes_wrong_in_a_page_is_noticed(browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<body style='width: 900px'><script>nowhere()</script>"
        "<img src='http://127.0.0.1:9/picture.png'>"
    )
    with visit(browser, bad.as_uri(), width=400) as seen:
        assert seen.overflow() >= 500
    assert any("nowhere" in error for error in seen.errors)
    assert seen.foreign == ["http://127.0.0.1:9/picture.png"]
