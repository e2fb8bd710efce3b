"""Figures as inline SVG whose colours follow the page, in light and in dark.

Matplotlib draws with stand-in colours, one for each role, and roles become CSS variables in what
it wrote. Text stays text. The same figure gives the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transcf.errors import MissingExtraError
from transcf.pages.words import in_html, in_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Width of a figure in inches: narrow, so that its text can be read on a phone.
WIDTH = 5.4
#: Colours of series, told apart by colour-blind people (after Okabe and Ito), and as many markers.
SERIES = 6
#: Steps of a heat map.
HEAT = 9

#: Roles of colours; the page's style says what they are, by the same names.
_ROLES = [
    "ink", "faint", "grid", "surface", "best", "alike", "behind", "trivial",
    *(f"series-{number}" for number in range(1, SERIES + 1)),
    *(f"heat-{number}" for number in range(HEAT)), "heat-ink-low", "heat-ink-high",
]  # fmt: skip
_STAND_INS = {role: f"#00fe{number:02x}" for number, role in enumerate(_ROLES)}
_ROLE_OF = {color: role for role, color in _STAND_INS.items()}


@dataclass(frozen=True)
class Drawing:
    """A figure of a page.

    Attributes:
        title: One line, its caption.
        alt: What it shows, for those who cannot see it.
        svg: The picture, with CSS variables for colours (`var(--ink)` and so on).
    """

    title: str
    alt: str
    svg: str

    def to_html(self, key: str) -> str:
        """Write it for the page.

        Args:
            key: A name for it that no other part of the page has.
        """
        svg = re.sub(r'id="|(?<=url\()#|(?<=href=")#', lambda part: f"{part[0]}{key}-", self.svg)
        label = f'role="img" aria-label="{in_html(self.alt)}"'
        return (
            f"<figure><figcaption>{in_html(self.title)}</figcaption>\n"
            f"{svg.replace('<svg ', f'<svg {label} ', 1)}</figure>"
        )

    def to_markdown(self, source: str) -> str:
        """Write its title and a reference to the picture."""
        return f"**{in_markdown(self.title)}**\n\n![{in_markdown(self.alt)}]({source})"

    def to_file(self, style: str) -> str:
        """Write it as an SVG file of its own, with the style that says what the colours are."""
        opening, rest = self.svg.split(">", 1)
        return f"{opening}>\n<style>{style}</style>{rest}\n"


def color(role: str) -> str:
    """Return what to draw with, so that it becomes the colour of a role in the page.

    Args:
        role: "ink", "faint", "grid", "surface", "best", "alike", "behind", "trivial", "series-1"
            to "series-6", "heat-0" to "heat-8", "heat-ink-low" or "heat-ink-high".
    """
    return _STAND_INS[role]


def series_color(place: int) -> str:
    """Return the colour of a series by its place from 0 on; after the last comes the first."""
    return color(f"series-{place % SERIES + 1}")


@contextmanager
def canvas(height: float, width: float = WIDTH) -> Iterator[tuple[Figure, Axes]]:
    """Give a figure and its axes in the style of pages; draw inside, then call `finish` there.

    Args:
        height: In inches.
        width: In inches.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("Drawing figures", "plots") from error
    with matplotlib.rc_context(_style()):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        yield figure, axes


def finish(figure: Figure, title: str, alt: str) -> Drawing:
    """Turn what was drawn into a `Drawing`."""
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    return Drawing(title, alt, _themed(text.getvalue()))


def _style() -> Any:
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": "transcf",
        "font.size": 9,
        "font.family": "sans-serif",
        "text.color": color("ink"),
        "text.parse_math": False,  # a name with two dollars in it is no formula
        "axes.edgecolor": color("faint"),
        "axes.labelcolor": color("ink"),
        "axes.titlesize": 9,
        "axes.axisbelow": True,
        "axes.unicode_minus": True,
        "xtick.color": color("faint"),
        "ytick.color": color("faint"),
        "xtick.labelcolor": color("ink"),
        "ytick.labelcolor": color("ink"),
        "grid.color": color("grid"),
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.fontsize": 8,
    }


def _themed(svg: str) -> str:
    """Keep the picture alone: no prologue, no comments, no idle ids; roles for stand-ins."""
    svg = svg[svg.index("<svg ") :].strip()
    svg = re.sub(r"\s*<!--.*?-->|\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda part: part[0] if part[1] in used else "", svg)
    svg = re.sub(r" font-family: [^;\"]+;?", "", svg)  # that of the page
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    return re.sub(r"#00fe[0-9a-f]{2}", lambda part: f"var(--{_ROLE_OF[part[0]]})", svg)
