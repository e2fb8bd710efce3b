"""Tables of text with marked cells, for terminals, Markdown and HTML; meanings of metrics.

Polars prints frames, but has neither marks of single cells, nor notes, nor escaped Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

if TYPE_CHECKING:
    import polars as pl

#: The best of its column, or not significantly different from the best.
Mark: TypeAlias = Literal["", "best", "tied"]

_TEXT_SIGNS = {"best": " *", "tied": " ="}
_MARKDOWN_SIGNS = {"best": "**", "tied": "*"}
_HTML_SIGNS = {"best": "strong", "tied": "em"}
_NUMBER = re.compile(r"^[-\u2212+]?[.\d]")
#: Characters with a meaning in Markdown, anywhere in a line.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)")
#: Markup at the beginning of a paragraph: headings, list items, rules.
_FIRST = re.compile(r"^(?:#{1,6}|[-+]|\d+[.)])(?=\s|$)|^-{3}")

#: By the part of a metric name before the @, in the order of tables.
MEANINGS = {
    "HitRate": "share of users with a held-out item in the first N of their list",
    "NDCG": "1 if the held-out items come first, less further down, 0 beyond N",
    "MRR": "1 / place of the first held-out item, 0 beyond N",
    "Recall": "share of a user's held-out items in the first N",
    "Precision": "held-out items in the first N, divided by N",
    "MAP": "mean average precision of the first N",
    "novelty": "mean of -log2(share of users who have the item) over the first N, in bits",
    "ILD": "intra-list diversity, mean of 1 - cosine over the pairs of the first N",
    "AUC": "share of the other candidates that come after a held-out item, equal scores half",
    "coverage": "share of the items that are in the first N of any user",
    "popularity": "mean training events of the first N",
    "gini": "0 if all items are recommended equally often, towards 1 if always the same few",
    "future": "share of the first N that did not exist yet when the held-out event happened",
}
#: Meaning of the ± behind a value.
ERROR = "± = standard error over users, what another sample of users would change"


def escape_markdown(text: object, *, paragraph: bool = False) -> str:
    r"""Escape text for a line of Markdown, or for a whole paragraph."""
    line = _SPECIAL.sub(lambda found: "\\" + found[0], " ".join(str(text).split()))
    if not paragraph:
        return line
    return _FIRST.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", line)


@dataclass(frozen=True)
class Cell:
    """Text of a table with a mark. `str` writes it for a terminal."""

    text: str
    mark: Mark = ""

    def __str__(self) -> str:
        return self.text + _TEXT_SIGNS.get(self.mark, "")

    def to_markdown(self) -> str:
        """Write the best in bold and ties with it in italics."""
        sign = _MARKDOWN_SIGNS.get(self.mark, "") if self.text else ""
        return f"{sign}{escape_markdown(self.text)}{sign}"


@dataclass(frozen=True)
class Table:
    """A table of text: a title, names of columns, rows of text or `Cell`, and lines below it.

    `align` has "l" or "r" for each column; by default columns of numbers are right-aligned.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    notes: Sequence[str] = ()
    align: str = ""

    @classmethod
    def of(
        cls, frame: pl.DataFrame, title: str, notes: Sequence[str] = (), *, digits: int = 4
    ) -> Self:
        """Format a polars frame; floats get `digits` decimals."""
        rows = [[text_of(value, digits) for value in row] for row in frame.iter_rows()]
        return cls(title, frame.columns, rows, notes)

    def cells(self) -> list[list[Cell]]:
        """Return the rows with every cell as a `Cell`."""
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in r] for r in self.rows]

    def alignment(self) -> str:
        """Return "l" or "r" for each column."""
        if self.align:
            return self.align
        columns = zip(*self.cells(), strict=True) if self.rows else [()] * len(self.columns)
        return "".join("r" if _all_numbers(column) else "l" for column in columns)

    def to_text(self) -> str:
        """Write it for a terminal, in columns."""
        lines = [list(self.columns), *([str(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        pads = [str.rjust if side == "r" else str.ljust for side in self.alignment()]
        shown = (map(lambda pad, cell, width: pad(cell, width), pads, row, widths) for row in lines)
        return "\n".join([self.title, *map("  ".join, shown), *self.notes])

    def to_markdown(self, *, titled: bool = True) -> str:
        """Write it in Markdown, with title and notes if `titled`."""
        dividers = "|".join("--:" if side == "r" else "---" for side in self.alignment())
        rows = [map(escape_markdown, self.columns)]
        rows += [map(Cell.to_markdown, row) for row in self.cells()]
        head, *body = (f"| {' | '.join(row)} |" for row in rows)
        lines = "\n".join([head, f"|{dividers}|", *body])
        if not titled:
            return lines
        notes = [escape_markdown(note, paragraph=True) for note in self.notes]
        return "\n\n".join([f"**{escape_markdown(self.title)}**", lines, *notes])

    def to_html(self, key: str) -> str:
        """Write it in HTML, in a box that scrolls sideways; `key` is a unique id."""
        sides = self.alignment()
        heads = [
            f'<th scope="col" class="{side}">{escape(name)}</th>'
            for side, name in zip(sides, self.columns, strict=True)
        ]
        body = ""
        for row in self.cells():
            cells = zip(row, sides, strict=True)
            content = "".join(_html_cell(*pair, first=not n) for n, pair in enumerate(cells))
            body += f"<tr>{content}</tr>\n"
        notes = "".join(f'\n<p class="notes">{escape(note)}</p>' for note in self.notes)
        return (
            f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{key}">\n<table>'
            f'<caption id="{key}">{escape(self.title)}</caption>\n<thead><tr>{"".join(heads)}</tr>'
            f"</thead>\n<tbody>\n{body}</tbody></table></div>{notes}"
        )

    def _repr_html_(self) -> str:
        return self.to_html(f"table-{id(self):x}")


def _html_cell(cell: Cell, side: str, *, first: bool) -> str:
    """Write a cell; the first one of a row is its header."""
    tag, scope = ("th", ' scope="row"') if first else ("td", "")
    mark = _HTML_SIGNS.get(cell.mark, "span")
    content = f"<{mark}>{escape(cell.text)}</{mark}>"
    return f'<{tag}{scope} class="{side} {cell.mark}">{content}</{tag}>'


def _all_numbers(cells: Iterable[Cell]) -> bool:
    """Return whether all cells that are not empty hold numbers, and at least one does."""
    filled = [cell.text for cell in cells if cell.text not in ("", "-")]
    return bool(filled) and all(map(_NUMBER.match, filled))


def text_of(value: Any, digits: int = 4) -> str:
    """Format a value of a table, or a list or dict of values; floats get `digits` decimals."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text_of(each, digits)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(text_of(each, digits) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def legend(names: Iterable[str], *more: str) -> str:
    """Explain metrics such as "NDCG@10" in one line, each kind once, and further explanations."""
    kinds = dict.fromkeys(name.partition("@")[0] for name in names)
    meanings = [
        f"{kind} = {MEANINGS[kind]}" if kind == "AUC" else f"{kind}@N = {MEANINGS[kind]}"
        for kind in kinds
    ]
    return "; ".join([*meanings, *more]) + "."
