"""Reports: sections of text, tables and charts, written as one HTML file or as Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias
from urllib.parse import quote

from transcf.data.atomic import atomic_write
from transcf.data.files import path_of
from transcf.errors import MissingExtraError, ParameterError
from transcf.experiments.figures import Drawing
from transcf.tables import escape_markdown

if TYPE_CHECKING:
    import jinja2

#: Endings of the files of reports.
PAGE_SUFFIXES = (".html", ".htm", ".md", ".markdown")
#: Blocks of a section: "facts" are short labels with values, "figures" a list of `Drawing`.
Kind: TypeAlias = Literal["text", "note", "list", "code", "facts", "table", "figures"]


@dataclass
class Section:
    """A part of a report. Text is plain: it is escaped when it is written."""

    title: str
    blocks: list[tuple[Kind, Any]] = field(default_factory=list)

    def add(self, kind: Kind, content: Any) -> Self:
        """Append a block; empty content is left out."""
        if content:
            self.blocks.append((kind, content))
        return self


@dataclass
class Page:
    """A report.

    The HTML file needs no other file and no network, fits phones and paper, and is light or dark as
    the reader's system is. Markdown has the same content, with charts in SVG files.
    """

    title: str
    lead: str = ""
    sections: list[Section] = field(default_factory=list)

    def section(self, title: str) -> Section:
        """Append a section and return it."""
        self.sections.append(Section(title))
        return self.sections[-1]

    def to_html(self) -> str:
        """Render the HTML file; needs Jinja2."""
        return _template().render(page=self)

    def to_markdown(self, folder: str = "figures") -> str:
        """Render Markdown, which refers to charts in `folder`."""
        parts = [f"# {escape_markdown(self.title)}"]
        parts += [escape_markdown(self.lead, paragraph=True)] if self.lead else []
        number = 0
        for section in self.sections:
            parts.append(f"## {escape_markdown(section.title)}")
            for kind, content in section.blocks:
                if kind != "figures":
                    parts.append(_markdown(kind, content))
                    continue
                for drawing in content:
                    number += 1
                    title, alt = map(escape_markdown, (drawing.title, drawing.alt))
                    parts.append(f"**{title}**\n\n![{alt}]({quote(folder)}/{number}.svg)")
        return "\n\n".join(parts) + "\n"

    def drawings(self) -> list[Drawing]:
        """Return all charts in order."""
        blocks = [block for section in self.sections for block in section.blocks]
        return [one for kind, content in blocks if kind == "figures" for one in content]

    def write(self, path: Path | str) -> list[Path]:
        """Write a file in the format of its suffix, .html or .md, and return all files written.

        The charts of `NAME.md` are written to the folder `NAME_figures` next to it.
        """
        path = path_of(path)
        if _is_html(path):
            texts = {path: self.to_html()}
        else:
            folder = path.with_name(f"{path.stem}_figures")
            numbered = enumerate(self.drawings(), start=1)
            texts = {folder / f"{number}.svg": one.to_file() for number, one in numbered}
            texts[path] = self.to_markdown(folder.name)
        for target, text in texts.items():
            with atomic_write(target) as unfinished:
                unfinished.write_text(text, encoding="utf-8")
        return list(texts)


def check_file(path: Path | str) -> None:
    """Check that a report can be written in the format of a file name: .html or .md."""
    if _is_html(path):
        _template()


def _is_html(path: Path | str) -> bool:
    suffix = Path(path).suffix.lower()
    if suffix not in PAGE_SUFFIXES:
        raise ParameterError(f"The format of {path} is unknown: call the report .html or .md.")
    return suffix.startswith(".htm")


def _template() -> jinja2.Template:
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError("Writing HTML", "plots") from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("transcf", "experiments"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("page.html.j2")


def _markdown(kind: Kind, content: Any) -> str:
    match kind:
        case "table":
            return str(content.to_markdown())
        case "code":
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", content)), default=0))
            return f"{fence}\n{content}\n{fence}"
        case "list":
            return "\n".join(f"- {escape_markdown(line, paragraph=True)}" for line in content)
        case "facts":
            pairs = [map(escape_markdown, pair) for pair in content.items()]
            return "\n".join(f"- {label}: **{value}**" for label, value in pairs)
    return ("> " if kind == "note" else "") + escape_markdown(content, paragraph=True)
