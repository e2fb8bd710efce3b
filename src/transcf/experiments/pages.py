"""Reports: sections of text, tables and charts, written as one HTML file or as Markdown.

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
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from transcf.data.atomic import atomic_write_text
from transcf.data.files import path_of
from transcf.errors import ParameterError, needs_extra
from transcf.tables import escape_markdown

if TYPE_CHECKING:
    import jinja2
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Endings of the files of reports.
PAGE_SUFFIXES = (".html", ".htm", ".md", ".markdown")
#: Blocks of a section: "facts" are short labels with values, "figures" a list of `Drawing`.
Kind: TypeAlias = Literal["text", "note", "list", "code", "facts", "table", "figures"]
#: Numbers; None where there is none.
Values: TypeAlias = Sequence[float | None]
#: x and y coordinates.
Points: TypeAlias = tuple[Sequence[float], Sequence[float]]

#: Placeholders that become the text colour and the background of the page.
INK, SURFACE = "#010203", "#010204"
#: Colours of series: distinguishable by colour-blind readers, visible on white and on black.
SERIES = ("#2f8fd0", "#dd6b20", "#14a37f", "#c267a0", "#bf9210", "#7d8fa9")
#: Colours of bars by their meaning.
BEST, TIED, OTHER, BASELINE = "#14936f", "#6cc5a6", "#7496b3", "#a3abb3"

_MARKERS = "osD^vP"
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
}
_FILE_STYLE = """<style>
svg { color: #1d2730; --surface: #fff }
text { font-family: sans-serif !important }
@media (prefers-color-scheme: dark) { svg { color: #e4e9ed; --surface: #12171c } }
</style>"""


@dataclass(frozen=True)
class Drawing:
    """A chart."""

    title: str  # caption
    alt: str  # text for readers who cannot see it
    svg: str  # the picture, an `<svg>` element

    def to_html(self, key: str) -> str:
        """Return the SVG element for a page; `key` makes its ids unique there."""
        svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{key}-", self.svg)
        return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(self.alt)}" ', 1)

    def to_file(self) -> str:
        """Return the text of an SVG file, which is light or dark as the system is."""
        return re.sub(r"(<svg [^>]*>)", lambda tag: tag[0] + _FILE_STYLE, self.svg, count=1) + "\n"


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
        return [atomic_write_text(target, text) for target, text in texts.items()]


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
    with needs_extra("Writing HTML", "plots"):
        import jinja2
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


# -- charts ------------------------------------------------------------------------------------


def series_color(place: int) -> str:
    """Return the colour of a series by its place; colours repeat after the last."""
    return SERIES[place % len(SERIES)]


@contextmanager
def canvas(height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure with axes, so many inches high; draw in the block and call `finish` there."""
    with needs_extra("Drawing figures", "plots"):
        import matplotlib
        from matplotlib.figure import Figure
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        yield figure, figure.subplots()


def finish(figure: Figure, title: str, alt: str) -> Drawing:
    """Write the figure as SVG, with the colours of the page for the placeholders."""
    text = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.draw_without_rendering()  # a second layout makes room for the tick labels of the first
    figure.savefig(text, format="svg", transparent=True, metadata=metadata)
    svg = text.getvalue()
    svg = re.sub(r"\s*<!--.*?-->", "", svg[svg.index("<svg ") :].strip(), flags=re.DOTALL)
    svg = svg.replace(INK, "currentColor").replace(SURFACE, "var(--surface, #fff)")
    return Drawing(title, alt, svg)


def bars(
    names: Sequence[str],
    series: Mapping[str, Values],
    *,
    title: str,
    axis: str,
    errors: Mapping[str, Values] | None = None,
    points: Mapping[str, Values] | None = None,
    groups: Sequence[str] | None = None,
    colors: Mapping[str, str] | None = None,
    digits: int = 4,
) -> Drawing:
    """Draw horizontal bars: for each name one of every series, the first name on top.

    `errors` are half lengths of error bars and `points` published values, drawn as diamonds, both
    by series. With a single series, `groups` has the group of each bar and `colors` the colour of
    each group, in the order of the legend. Charts of one or two series have labels with `digits`
    decimals at the ends of bars.
    """
    errors, points, colors = errors or {}, points or {}, colors or {}
    count = len(series)
    with canvas(0.95 + len(names) * max(0.26, 0.17 * count)) as (figure, axes):
        for group in [group for group in colors if group in (groups or ())]:
            axes.plot([], [], "s", color=colors[group], label=group)
        for place, (label, values) in enumerate(series.items()):
            y = np.arange(len(names)) + (place - (count - 1) / 2) * 0.8 / count
            lengths, published = _floats(values), _floats(points.get(label, []))
            half = np.nan_to_num(_floats(errors.get(label, [0.0] * len(names))))
            color = [colors[group] for group in groups] if groups else series_color(place)
            axes.barh(y, lengths, 0.74 / count, color=color, label=label if count > 1 else None)
            if label in errors:
                axes.errorbar(lengths, y, xerr=half, fmt="none", ecolor=INK, lw=0.8, capsize=1.5)
            ends = np.fmax(lengths + half, 0.0)
            if label in points:
                name = None if place else "published"
                axes.plot(published, y, "D", ms=4.5, mfc=SURFACE, mec=INK, label=name)
                ends = np.fmax(ends, published)
            for row in np.flatnonzero(~np.isnan(lengths)) if count <= 2 else ():
                text, end = f"{lengths[row]:.{digits}f}", (ends[row], y[row])
                axes.annotate(text, end, (5, 0), textcoords="offset points", va="center", size=7.5)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.14, y=0.01)
        axes.axvline(0, color=f"{INK}80", linewidth=0.8)
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(axis)
        _legend(figure, axes)
        return finish(figure, title, _describe(f"{title}: bars of {axis}", names, series, digits))


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
    grid = np.ma.masked_invalid(np.array(values, dtype=np.float64))
    with canvas(0.8 + 0.36 * len(rows)) as (figure, axes):
        colors = axes.pcolormesh(grid, cmap="viridis").to_rgba(grid)
        for (y, x), value in np.ndenumerate(grid.filled(np.nan)):
            is_light = colors[y, x, :3].sum() > 1.5
            axes.text(
                x + 0.5, y + 0.5, "-" if np.isnan(value) else f"{value:.{digits}f}",
                ha="center", va="center", fontsize=8,
                weight="bold" if value == grid.max() else "normal",
                color=INK if np.isnan(value) else "#101418" if is_light else "#ffffff",
            )  # fmt: skip
        axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
        axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set(xlabel=column_axis, ylabel=row_axis)
        by_column = {
            f"{column_axis} {name}": [row[place] for row in values]
            for place, name in enumerate(columns)
        }
        named = [f"{row_axis} {name}" for name in rows]
        return finish(figure, title, _describe(f"{title}: a grid", named, by_column, digits))


def lines(
    series: Mapping[str, Points],
    *,
    title: str,
    x_axis: str,
    y_axis: str,
    chosen: Mapping[str, tuple[float, float]] | None = None,
) -> Drawing:
    """Draw one line per series of x and y, such as a validation metric by epoch.

    `chosen` has points to mark with a ring, such as the selected epoch, by series.
    """
    with canvas(2.5 + 0.13 * len(series)) as (figure, axes):
        from matplotlib.ticker import MaxNLocator

        for place, (name, (x, y)) in enumerate(series.items()):
            color, marker = series_color(place), _MARKERS[place % len(_MARKERS)]
            axes.plot(x, y, color=color, marker=marker, ms=3, linewidth=1.3, label=name)
            if chosen and name in chosen:
                axes.plot(*chosen[name], "o", color=color, ms=9, mfc="none")
        if all(float(x).is_integer() for xs, _ in series.values() for x in xs):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
        axes.set(xlabel=x_axis, ylabel=y_axis)
        _legend(figure, axes)
        ends = [
            f"{name} from {y[0]:.4g} to {y[-1]:.4g}" for name, (_, y) in series.items() if len(y)
        ]
        return finish(figure, title, f"{title}: lines of {y_axis} by {x_axis}. {'; '.join(ends)}.")


def _legend(figure: Figure, axes: Axes) -> None:
    """Put a legend below the axes if anything is labelled."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        ncols = min(len(handles), max(1, 60 // max(map(len, labels))), 3)
        figure.legend(handles=handles, loc="outside lower center", ncols=ncols)


def _floats(values: Values) -> npt.NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def _describe(head: str, names: Sequence[str], series: Mapping[str, Values], digits: int) -> str:
    """List the numbers of a chart."""
    entries = []
    for place, name in enumerate(names):
        shown = [
            (f"{label}: " if len(series) > 1 else "") + f"{values[place]:.{digits}f}"
            for label, values in series.items()
            if values[place] is not None
        ]
        entries.append(f"{name} {', '.join(shown) or 'missing'}")
    return f"{head}. {'; '.join(entries)}."
