"""Reports: sections of facts, tables and charts, written as one HTML file or as Markdown.

Charts are SVG, drawn by matplotlib. Text and lines take the text colour of the page around them, so
that charts are readable in light and in dark. Text stays text, and the same data gives the same
bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import numpy as np

from transcf.data.atomic import atomic_write_text
from transcf.data.files import path_of
from transcf.errors import MissingExtraError, ParameterError, needs_extra
from transcf.tables import Table, escape_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Endings of the files of reports.
PAGE_SUFFIXES = (".html", ".md")
#: Numbers; None where there is none.
Values: TypeAlias = Sequence[float | None]

#: Placeholder that becomes the text colour of the page.
INK = "#010203"
#: Colours of series: distinguishable by colour-blind readers, visible on white and on black.
SERIES = ("#2f8fd0", "#dd6b20", "#14a37f", "#c267a0", "#bf9210", "#7d8fa9")
#: Colours of bars by their meaning.
BEST, TIED, OTHER, BASELINE = "#14936f", "#6cc5a6", "#7496b3", "#a3abb3"

_WIDTH = 4.8  # inches; text is readable on a phone
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "transcf",
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # dollar signs in names are no formulas
    "axes.edgecolor": f"{INK}80",
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "axes.prop_cycle": f"cycler(color={SERIES}, marker={tuple('osD^vP')})",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": f"{INK}80",
    "ytick.color": f"{INK}80",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": f"{INK}28",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.markerscale": 1.3,
}
_FILE_STYLE = """<style>
svg { color: #1d2730 }
text { font-family: sans-serif !important }
@media (prefers-color-scheme: dark) { svg { color: #e4e9ed } }
</style>"""


@dataclass(frozen=True)
class Drawing:
    """A chart."""

    title: str
    svg: str  # an `<svg>` element

    def to_html(self, key: str) -> str:
        """Return the SVG element for a page; `key` makes its ids unique there."""
        return re.sub(r'(\bid="|url\(#|href="#)', rf"\1{key}-", self.svg)

    def to_file(self) -> str:
        """Return the text of an SVG file, which is light or dark as the system is."""
        return re.sub(r"(<svg [^>]*>)", lambda tag: tag[0] + _FILE_STYLE, self.svg, count=1) + "\n"


#: A part of a section: labels with short values, a table, or charts side by side.
Block: TypeAlias = Mapping[str, str] | Table | Sequence[Drawing]


@dataclass
class Page:
    """A report. Text is plain: it is escaped when it is written.

    The HTML file needs no other file and no network, fits phones and paper, and is light or dark as
    the reader's system is. Markdown has the same content, with charts in SVG files.
    """

    title: str
    lead: str = ""
    sections: dict[str, list[Block]] = field(default_factory=dict)  # by title

    def add(self, section: str, *blocks: Block | None) -> None:
        """Append blocks to a section; empty ones are left out."""
        if shown := [block for block in blocks if block]:
            self.sections.setdefault(section, []).extend(shown)

    def to_html(self) -> str:
        """Render the HTML file; needs Jinja2."""
        import jinja2

        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("transcf", "experiments"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        return environment.get_template("page.html.j2").render(page=self)

    def to_markdown(self, folder: str = "figures") -> str:
        """Render Markdown, which refers to charts in `folder`."""
        parts = [f"# {escape_markdown(self.title)}", escape_markdown(self.lead, paragraph=True)]
        number = 0
        for section, blocks in self.sections.items():
            parts.append(f"## {escape_markdown(section)}")
            for block in blocks:
                if isinstance(block, Table):
                    parts.append(block.to_markdown())
                elif isinstance(block, Mapping):
                    pairs = [map(escape_markdown, pair) for pair in block.items()]
                    parts.append("\n".join(f"- {label}: **{value}**" for label, value in pairs))
                else:
                    for drawing in block:
                        number += 1
                        title = escape_markdown(drawing.title)
                        parts.append(f"![{title}]({quote(folder)}/{number}.svg)")
        return "\n\n".join(filter(None, parts)) + "\n"

    def write(self, path: Path | str) -> list[Path]:
        """Write a file in the format of its suffix, .html or .md, and return all files written.

        The charts of `NAME.md` are written to the folder `NAME_figures` next to it.
        """
        path = path_of(path)
        check_file(path)
        if path.suffix == ".html":
            return [atomic_write_text(path, self.to_html())]
        folder = path.with_name(f"{path.stem}_figures")
        blocks = [block for blocks in self.sections.values() for block in blocks]
        drawings = [one for block in blocks if isinstance(block, Sequence) for one in block]
        texts = {folder / f"{n}.svg": one.to_file() for n, one in enumerate(drawings, start=1)}
        texts[path] = self.to_markdown(folder.name)
        return [atomic_write_text(target, text) for target, text in texts.items()]


def has_plots() -> bool:
    """Return whether charts can be drawn and HTML can be written."""
    return all(find_spec(name) is not None for name in ("matplotlib", "jinja2"))


def check_file(path: Path | str) -> None:
    """Check that a report can be written in the format of a file name: .html or .md."""
    suffix = Path(path).suffix
    if suffix not in PAGE_SUFFIXES:
        raise ParameterError(f"The format of {path} is unknown: call the report .html or .md.")
    if suffix == ".html" and not has_plots():
        raise MissingExtraError("Writing HTML", "plots")


# -- charts ------------------------------------------------------------------------------------


@contextmanager
def canvas(height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure with axes, so many inches high; draw in the block and call `finish` there."""
    with needs_extra("Drawing figures", "plots"):
        import matplotlib
        from matplotlib.figure import Figure
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        yield figure, figure.subplots()


def finish(figure: Figure, title: str) -> Drawing:
    """Write the figure as SVG, with a legend below the axes if anything is labelled."""
    axes = figure.axes[0]
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        ncols = min(len(handles), max(1, 60 // max(map(len, labels))), 3)
        figure.legend(handles=handles, loc="outside lower center", ncols=ncols)
    figure.draw_without_rendering()  # a second layout makes room for the tick labels of the first
    text = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", transparent=True, metadata=metadata)
    svg = text.getvalue()
    svg = re.sub(r"\s*<!--.*?-->", "", svg[svg.index("<svg ") :].strip(), flags=re.DOTALL)
    return Drawing(title, svg.replace(INK, "currentColor"))


def bars(
    names: Sequence[str],
    series: Mapping[str, Values],
    *,
    title: str,
    axis: str,
    errors: Mapping[str, Values] | None = None,
    published: Values | None = None,
    groups: Sequence[str] | None = None,
    colors: Mapping[str, str] | None = None,
    digits: int = 4,
) -> Drawing:
    """Draw horizontal bars: for each name one of every series, the first name on top.

    `errors` are half lengths of error bars by series. With a single series, `published` has values
    that are drawn as diamonds, `groups` the group of each bar, and `colors` the colour of each
    group, in the order of the legend. Charts of one or two series have values with `digits`
    decimals at the right.
    """
    count, rows, colors = len(series), np.arange(len(names)), colors or {}
    with canvas(0.95 + len(names) * max(0.26, 0.17 * count)) as (figure, axes):
        for group in [group for group in colors if group in (groups or ())]:
            axes.plot([], [], "s", color=colors[group], label=group)
        for place, (label, values) in enumerate(series.items()):
            y = rows + (place - (count - 1) / 2) * 0.8 / count
            axes.barh(
                y,
                np.array(values, np.float64),
                0.74 / count,
                xerr=np.array(errors[label], np.float64) if errors else None,
                error_kw={"ecolor": INK, "elinewidth": 0.8, "capsize": 1.5},
                color=[colors[group] for group in groups] if groups else None,
                label=label if count > 1 else None,
            )
            at_right = axes.get_yaxis_transform()
            for height, value in zip(y, values, strict=True) if count <= 2 else ():
                text = "" if value is None else f"{value:.{digits}f}"
                axes.text(1.01, height, text, transform=at_right, va="center", size=7.5)
        if published is not None:
            points = np.array(published, np.float64)
            axes.plot(points, rows, "D", ms=4.5, mfc="none", mec=INK, label="published")
        axes.set_yticks(rows, names)
        axes.set_ylim(len(names) - 0.5, -0.5)  # also rows without a bar
        axes.tick_params(axis="y", length=0)
        axes.axvline(0, color=f"{INK}80", linewidth=0.8)
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(axis)
        return finish(figure, title)


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Values],
    *,
    title: str,
    row_axis: str,
    column_axis: str,
    digits: int = 4,
) -> Drawing:
    """Draw a grid of numbers, one per row and column, with a colour scale; None leaves a gap."""
    grid = np.array(values, dtype=np.float64)
    with canvas(0.8 + 0.36 * len(rows)) as (figure, axes):
        colors = axes.pcolormesh(grid).to_rgba(grid)
        for y, x in np.argwhere(~np.isnan(grid)):
            value = grid[y, x]
            axes.text(
                x + 0.5, y + 0.5, f"{value:.{digits}f}", ha="center", va="center", size=8,
                color="#101418" if colors[y, x, :3].sum() > 1.5 else "#ffffff",
                weight="bold" if value == np.nanmax(grid) else "normal",
            )  # fmt: skip
        axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
        axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set(xlabel=column_axis, ylabel=row_axis)
        return finish(figure, title)


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]], *, title: str, x_axis: str, y_axis: str
) -> Drawing:
    """Draw a line through the points of each series, and a ring around the first highest one.

    x are integers, such as epochs.
    """
    with canvas(2.5 + 0.13 * len(series)) as (figure, axes):
        from matplotlib.ticker import MaxNLocator

        for name, points in series.items():
            (line,) = axes.plot(*zip(*points, strict=True), ms=3, linewidth=1.3, label=name)
            highest = max(points, key=lambda point: (point[1], -point[0]))
            axes.plot(*highest, "o", color=line.get_color(), ms=9, mfc="none")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
        axes.set(xlabel=x_axis, ylabel=y_axis)
        return finish(figure, title)
