"""A page of sections: put together once, written as one HTML file or as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Self, TypeAlias
from urllib.parse import quote

from transcf.data.atomic import whole_file
from transcf.data.paths import path_of
from transcf.errors import ParameterError
from transcf.pages.drawing import Drawing
from transcf.pages.tables import Table
from transcf.pages.words import anchor, in_html, in_markdown, paragraph

#: Endings of files and what they hold.
FORMS = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}


@dataclass(frozen=True)
class Text:
    """A paragraph; `kind` is "text" or "note", which stands out."""

    text: str
    kind: str = "text"


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Lines to be typed into a shell, or the like."""

    text: str


@dataclass(frozen=True)
class KeyFigures:
    """A few figures that matter most: what they are, what they come to."""

    figures: Mapping[str, str]


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    text: str


Block: TypeAlias = Text | Bullets | Code | KeyFigures | Heading | Table | Drawing


@dataclass
class Section:
    """A part of a page with a heading of its own; what is added comes out in that order.

    All text is plain: whatever is in it, it comes out as it is.
    """

    title: str
    blocks: list[Block] = field(default_factory=list)

    def text(self, text: str) -> Self:
        """Add a paragraph."""
        return self._with(Text(text))

    def note(self, text: str) -> Self:
        """Add a paragraph that stands out, such as a warning."""
        return self._with(Text(text, "note"))

    def bullets(self, lines: Iterable[str]) -> Self:
        """Add a list."""
        return self._with(Bullets(list(lines)))

    def code(self, text: str) -> Self:
        """Add a command, or several, a line each."""
        return self._with(Code(text))

    def key_figures(self, figures: Mapping[str, str]) -> Self:
        """Add figures that matter most, by what they are."""
        return self._with(KeyFigures(dict(figures)))

    def heading(self, text: str) -> Self:
        """Add a heading one level below that of the section."""
        return self._with(Heading(text))

    def table(self, table: Table) -> Self:
        """Add a table."""
        return self._with(table)

    def figure(self, drawing: Drawing) -> Self:
        """Add a figure; those that follow one another stand side by side where there is room."""
        return self._with(drawing)

    def _with(self, block: Block) -> Self:
        self.blocks.append(block)
        return self


@dataclass
class Page:
    """A page that people read.

    As HTML it is one file that asks for nothing: readable on a phone and on paper, light or dark as
    the reader's system is. As Markdown it says the same, its figures in files beside it.

    Example:
        >>> page = Page("Delicious", "What came out.")
        >>> section = page.section("Figures").key_figures({"N@10 of EASE": "0.1234"})
        >>> section = section.table(Table("All", ["model", "N@10"], [["ease", "0.1234"]]))
        >>> print(page.to_markdown())
        # Delicious
        <BLANKLINE>
        What came out.
        <BLANKLINE>
        ## Figures
        <BLANKLINE>
        - N@10 of EASE: **0.1234**
        <BLANKLINE>
        **All**
        <BLANKLINE>
        | model | N@10 |
        |---|--:|
        | ease | 0.1234 |
        <BLANKLINE>
        >>> page.to_html().startswith("<!doctype html>")
        True
    """

    title: str
    lead: str = ""
    sections: list[Section] = field(default_factory=list)

    def section(self, title: str) -> Section:
        """Add a section, and return it."""
        self.sections.append(Section(title))
        return self.sections[-1]

    def to_html(self) -> str:
        """Write it as one HTML document."""
        names = _distinct(anchor(section.title) for section in self.sections)
        parts = [_html_section(s, name) for s, name in zip(self.sections, names, strict=True)]
        lead = f'\n<p class="lead">{in_html(self.lead)}</p>' if self.lead else ""
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            # Nothing is asked of anybody, not even by mistake.
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'; img-src data:\">\n"
            '<link rel="icon" href="data:,">\n'
            f"<title>{in_html(self.title)}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n"
            f"<header><h1>{in_html(self.title)}</h1>{lead}</header>\n"
            f"{self._contents(names)}<main>\n" + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"
        )

    def to_markdown(self, figures: str = "figures") -> str:
        """Write it as Markdown.

        Args:
            figures: Folder of the figures, as the text refers to it.
        """
        lines = [f"# {in_markdown(self.title)}", *([paragraph(self.lead)] if self.lead else [])]
        number = 0
        for section in self.sections:
            lines.append(f"## {in_markdown(section.title)}")
            for block in section.blocks:
                number += isinstance(block, Drawing)
                lines.append(_markdown_block(block, f"{quote(figures)}/{number}.svg"))
        return "\n\n".join(lines) + "\n"

    def drawings(self) -> list[Drawing]:
        """The figures, in their order."""
        return [b for section in self.sections for b in section.blocks if isinstance(b, Drawing)]

    def write(self, path: Path | str) -> list[Path]:
        """Write it to a file, by its ending: .html, or .md with its figures in a folder beside it.

        The folder is called like the file, with `_figures` in place of the ending.

        Returns:
            What was written.

        Raises:
            ParameterError: The ending is another one.
            WriteError: The system refuses to write it.
        """
        path = path_of(path)
        texts: dict[Path, str] = {}
        if form_of(path) == "html":
            texts[path] = self.to_html()
        else:
            folder = path.with_name(f"{path.stem}_figures")
            for number, drawing in enumerate(self.drawings(), start=1):
                texts[folder / f"{number}.svg"] = svg_file(drawing)
            texts[path] = self.to_markdown(folder.name)
        for target, text in texts.items():
            with whole_file(target) as unfinished:
                unfinished.write_text(text, encoding="utf-8")
        return list(texts)

    def _contents(self, names: Sequence[str]) -> str:
        """Links to the sections, where there are several."""
        if len(names) < 2:
            return ""
        entries = "".join(
            f'<li><a href="#{name}">{in_html(section.title)}</a></li>'
            for name, section in zip(names, self.sections, strict=True)
        )
        return f'<nav aria-label="Contents"><ol>{entries}</ol></nav>\n'


def form_of(path: Path | str) -> str:
    """Return "html" or "markdown" by the ending of a name.

    Raises:
        ParameterError: It is neither.
    """
    ending = Path(path).suffix.lower()
    if ending not in FORMS:
        raise ParameterError(
            f"{path} does not say by its ending what to write: call the report .html or .md."
        )
    return FORMS[ending]


def _distinct(names: Iterable[str]) -> list[str]:
    """Number names that come again."""
    given: list[str] = []
    for name in names:
        number, new = 1, name
        while new in given:
            number += 1
            new = f"{name}-{number}"
        given.append(new)
    return given


def _html_section(section: Section, name: str) -> str:
    parts = [f'<section id="{name}">\n<h2>{in_html(section.title)}</h2>']
    keyed = [(f"{name}--{place}", block) for place, block in enumerate(section.blocks, start=1)]
    for drawn, group in groupby(keyed, key=lambda pair: isinstance(pair[1], Drawing)):
        inside = "\n".join(_html_block(block, key) for key, block in group)
        parts.append(f'<div class="figures">\n{inside}\n</div>' if drawn else inside)
    return "\n".join([*parts, "</section>"])


def _html_block(block: Block, key: str) -> str:
    match block:
        case Table() | Drawing():
            return block.to_html(key)
        case Text(text, kind):
            return f'<p class="{kind}">{in_html(text)}</p>'
        case Bullets(lines):
            return "<ul>" + "".join(f"<li>{in_html(line)}</li>" for line in lines) + "</ul>"
        case Code(text):
            return f'<pre tabindex="0"><code>{in_html(text)}</code></pre>'
        case Heading(text):
            return f"<h3>{in_html(text)}</h3>"
        case KeyFigures(figures):
            pairs = "".join(
                f"<div><dt>{in_html(what)}</dt><dd>{in_html(figure)}</dd></div>"
                for what, figure in figures.items()
            )
            return f'<dl class="key">{pairs}</dl>'


def _markdown_block(block: Block, source: str) -> str:
    match block:
        case Table():
            return block.to_markdown()
        case Drawing():
            return block.to_markdown(source)
        case Text(text, "note"):
            return f"> {paragraph(text)}"
        case Text(text):
            return paragraph(text)
        case Bullets(lines):
            return "\n".join(f"- {paragraph(line)}" for line in lines)
        case Code(text):
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
            return f"{fence}\n{text}\n{fence}"
        case Heading(text):
            return f"### {in_markdown(text)}"
        case KeyFigures(figures):
            return "\n".join(
                f"- {in_markdown(what)}: **{in_markdown(figure)}**"
                for what, figure in figures.items()
            )


@cache
def _style() -> str:
    return files("transcf.pages").joinpath("style.css").read_text(encoding="utf-8")


def svg_file(drawing: Drawing) -> str:
    """Write a figure as an SVG file of its own, in the colours of pages, light and dark."""
    colors = _style().partition("/* The page */")[0]
    return drawing.to_file(colors + "text { font-family: sans-serif }\n")
