"""Pages: what is written is what was said, whatever is in it, and the same each time."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest

from transcf.errors import MissingExtraError, ParameterError
from transcf.experiments.pages import Page, bars, canvas, check_file, heat_map, lines
from transcf.tables import Cell, Table

NASTY = "<script>alert('x')</script> & \"quotes\" | $a$ `b` *c* [d](e)"


class Reader(HTMLParser):
    """Collects text and attributes, and checks that elements close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert not reader.open
    assert len(reader.ids) == len(set(reader.ids)), "two parts of the page have one name"
    return reader


@pytest.fixture(scope="module")
def page() -> Page:
    page = Page(NASTY, NASTY)
    rows = [[NASTY, Cell("0.5", "best")], ["plain", Cell("0.4", "tied")]]
    table = Table(NASTY, [NASTY, "NDCG@10"], rows, [NASTY])
    chart = bars(
        [NASTY, "b"],
        {"NDCG@10": [0.2, None]},
        errors={"NDCG@10": [0.01, None]},
        published=[0.25, None],
        title=NASTY,
        axis=NASTY,
    )
    page.add(NASTY, {NASTY: NASTY}, table, None, [chart, chart])
    page.add("not shown", [])
    return page


def test_html_is_whole_and_says_everything_as_it_was_said(page: Page) -> None:
    html = page.to_html()
    reader = read(html)
    assert "<script" not in html
    assert not re.search(r'(?:src|href)="(?!#|data:,)', html), "nothing is asked of the network"
    said = [text for text in reader.text if NASTY in " ".join(text.split())]
    # Title twice, lead, contents, headings, blocks, table, captions, axes and names in figures.
    assert len(said) >= 14
    assert "not shown" not in html


def test_markdown_says_the_same_and_keeps_its_form(page: Page, tmp_path: Path) -> None:
    *figures, text = page.write(tmp_path / "a page.md")
    written = text.read_text()
    assert [path.name for path in figures] == ["1.svg", "2.svg"]
    assert "(a%20page_figures/1.svg)" in written
    assert "<script>" not in written.replace("\\<", "")
    lines = [line for line in written.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {3}
    assert lines[2].endswith("| **0.5** |")
    assert lines[3] == "| plain | *0.4* |"
    for path in figures:
        root = ElementTree.fromstring(path.read_text())
        assert root.tag.endswith("svg")
        words = [e.text for e in root.iter() if e.tag.endswith("}text")]
        assert NASTY in words, "text stays text"


def test_the_same_page_gives_the_same_bytes(tmp_path: Path) -> None:
    def drawn() -> str:
        page = Page("one")
        grid = heat_map(["a", "b"], ["c", "d"], [[1.0, 2.0], [None, 3.0]],
                        title="t", row_axis="r", column_axis="c")  # fmt: skip
        curve = lines({"x": [(1, 0.1), (2, 0.2)]}, title="t", x_axis="epoch", y_axis="y")
        page.add("figures", [grid, curve])
        return page.to_html()

    first = drawn()
    assert drawn() == first
    read(first)
    assert "#0102" not in first, "every placeholder has become a colour of the page"
    style, _, body = first.partition("</style>")
    assert "currentColor" in body
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    for name in {"--ink", *re.findall(r"var\((--[\w-]+)", body)}:
        assert f"{name}:" in light
        assert f"{name}:" in dark


def test_figures_have_their_numbers_as_text() -> None:
    grid = heat_map(["1", "2"], ["3"], [[0.5], [None]], title="T", row_axis="a", column_axis="b")
    chart = bars(["x", "y"], {"z": [0.5, None]}, title="T", axis="z")
    for drawing in (grid, chart):
        assert re.findall(r">(\d\.\d{4})</text>", drawing.svg) == ["0.5000"]


def test_a_row_without_a_bar_keeps_its_name() -> None:
    chart = bars(["x", "y"], {"a": [0.5, 0.4], "b": [0.3, None]}, title="T", axis="z")
    texts = [text.text for text in ElementTree.fromstring(chart.svg).iter() if text.text]
    assert {"x", "y"} <= set(texts)


def test_a_frame_becomes_a_table() -> None:
    frame = pl.DataFrame({"name": ["a", None], "n": [1200, 3], "x": [0.25, None]})
    table = Table.of(frame, "T", digits=2)
    assert table.rows == [["a", "1,200", "0.25"], ["-", "3", "-"]]
    assert table.alignment() == "lrr"
    page = Page("T")
    page.add("S", table)
    assert 'scope="col" class="r">n</th>' in page.to_html()


def test_what_cannot_be_written_or_drawn_is_refused(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(ParameterError, match=r"call the report \.html or \.md"):
        Page("x").write(tmp_path / "x.pdf")
    for module, needs in (
        ("matplotlib.figure", lambda: canvas(1.0).__enter__()),
        ("jinja2", lambda: check_file("x.html")),
    ):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(MissingExtraError, match=r"transcf\[plots\]"):
            needs()
    check_file("x.md")
