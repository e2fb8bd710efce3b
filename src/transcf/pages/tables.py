"""Tables of text with marks: for terminals, for Markdown and for HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import polars as pl

from transcf.pages.words import in_html, in_markdown, paragraph

#: What is special about a cell: the best of its column, not told apart from the best, less
#: important than the others (such as what others printed).
Mark: TypeAlias = Literal["", "best", "alike", "quiet"]

#: What stands for a mark where there is neither bold nor colour.
SIGNS: dict[str, str] = {"best": "*", "alike": "="}
#: In Markdown, around the text.
_AROUND: dict[str, str] = {"best": "**", "alike": "*"}
#: In HTML, an element each, so that it is not colour alone that tells.
_ELEMENTS: dict[str, str] = {"best": "strong", "alike": "em"}
_NUMBER = re.compile(r"^[-\u2212+]?[.\d]")
_EMPTY = ("", "-")


@dataclass(frozen=True)
class Cell:
    """Text in a table, and what is special about it.

    Example:
        >>> Cell("0.1234", "best").in_text(), Cell("0.12").in_text()
        ('0.1234 *', '0.12')
    """

    text: str
    mark: Mark = ""

    def in_text(self) -> str:
        """Write it for a terminal."""
        return f"{self.text} {SIGNS[self.mark]}" if self.mark in SIGNS else self.text

    def in_markdown(self) -> str:
        """Write it in Markdown: the best bold, what is not told apart from it in italics."""
        around = _AROUND.get(self.mark, "") if self.text else ""
        return f"{around}{in_markdown(self.text)}{around}"

    def in_html(self) -> str:
        """Write it as the content of a cell."""
        element = _ELEMENTS.get(self.mark)
        text = in_html(self.text)
        return f"<{element}>{text}</{element}>" if element and text else text


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        title: One line.
        columns: Names.
        rows: As many cells each as there are columns, text or `Cell`.
        notes: Lines that belong below the table.
        align: A letter for each column, "l" or "r"; unless given, columns of numbers go to the
            right.
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
        """Make a table of a polars frame; numbers that are not whole get so many digits.

        Example:
            >>> Table.of(pl.DataFrame({"a": ["x"], "b": [0.5]}), "T", digits=2).rows
            [['x', '0.50']]
        """
        rows = [[_text(value, digits) for value in row] for row in frame.iter_rows()]
        return cls(title, frame.columns, rows, notes)

    def cells(self) -> list[list[Cell]]:
        """The rows, every cell of them a `Cell`."""
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in r] for r in self.rows]

    def alignment(self) -> str:
        """A letter for each column."""
        if self.align:
            return self.align
        columns = zip(*self.cells(), strict=True) if self.rows else ([] for _ in self.columns)
        return "".join("r" if _are_numbers(column) else "l" for column in columns)

    def in_text(self) -> list[list[str]]:
        """The rows as a terminal shows them."""
        return [[cell.in_text() for cell in row] for row in self.cells()]

    def to_text(self) -> str:
        """Write it for a terminal, in columns.

        Example:
            >>> print(Table("Title", ["model", "N@10"], [["x", "1"]], ["A note."]).to_text())
            Title
            model  N@10
            x         1
            A note.
        """
        lines = [list(self.columns), *self.in_text()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        sides = [str.rjust if side == "r" else str.ljust for side in self.alignment()]
        shown = [
            "  ".join(
                side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)
            )
            for row in lines
        ]
        return "\n".join([self.title, *shown, *self.notes])

    def to_markdown(self, *, titled: bool = True) -> str:
        """Write it in Markdown; without its title and its notes if it is not `titled`.

        Example:
            >>> print(Table("Title", ["a", "b"], [["x", Cell("1", "best")]]).to_markdown())
            **Title**
            <BLANKLINE>
            | a | b |
            |---|--:|
            | x | **1** |
        """
        dividers = "|".join("--:" if side == "r" else "---" for side in self.alignment())
        lines = [_line(map(in_markdown, self.columns)), f"|{dividers}|"]
        lines += [_line(cell.in_markdown() for cell in row) for row in self.cells()]
        if not titled:
            return "\n".join(lines)
        notes = [line for note in self.notes for line in ("", paragraph(note))]
        return "\n".join([f"**{in_markdown(self.title)}**", "", *lines, *notes])

    def to_html(self, key: str) -> str:
        """Write it in HTML: in a box in which it can be moved sideways, notes below.

        Args:
            key: A name for it that no other part of the page has.
        """
        sides = self.alignment()
        head = "".join(
            f'<th scope="col" class="{side}">{in_html(name)}</th>'
            for side, name in zip(sides, self.columns, strict=True)
        )
        body = "\n".join(f"<tr>{_html_row(row, sides)}</tr>" for row in self.cells())
        notes = "".join(f"<p>{in_html(note)}</p>" for note in self.notes)
        return (
            f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{key}">\n<table>'
            f'<caption id="{key}">{in_html(self.title)}</caption>\n<thead><tr>{head}</tr></thead>'
            f"\n<tbody>\n{body}\n</tbody></table>\n</div>"
            + (f'\n<div class="notes">{notes}</div>' if notes else "")
        )

    def _repr_html_(self) -> str:
        """Show it in notebooks."""
        return self.to_html(f"table-{id(self):x}")


def _html_row(row: Sequence[Cell], sides: str) -> str:
    """The first cell names the row."""
    parts = []
    for place, (cell, side) in enumerate(zip(row, sides, strict=True)):
        names = f'class="{" ".join(filter(None, [side, cell.mark]))}"'
        kind = f'th scope="row" {names}' if place == 0 else f"td {names}"
        parts.append(f"<{kind}>{cell.in_html()}</{kind[:2]}>")
    return "".join(parts)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _are_numbers(cells: Iterable[Cell]) -> bool:
    """Whether cells hold numbers, or nothing, and not nothing alone."""
    filled = [cell.text for cell in cells if cell.text not in _EMPTY]
    return bool(filled) and all(_NUMBER.match(text) for text in filled)


def _text(value: Any, digits: int) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)
