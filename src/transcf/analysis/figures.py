"""Figures that only analyses have: maps of many groups, and arrows on a plane."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from transcf.data.ids import Rows
from transcf.kernels import Array
from transcf.pages.figures import INK, SERIES, SURFACE, Drawing, canvas, finish, series_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How groups beyond the number of colours differ from the first ones.
_FILLED, _RINGS = "o", "^"


def map_of_groups(groups: Sequence[Array], names: Sequence[str], *, title: str) -> Drawing:
    """Draw the places of groups on a plane without axes.

    Groups beyond the number of colours have open triangles. Each is named where most of its own
    are together, too.

    Args:
        groups: Places of each, (n, 2).
        names: What they are called.
        title: Caption.
    """
    with canvas(5.0) as (figure, axes):
        for number, places in enumerate(groups):
            _points(axes, places, number, names[number])
        for number, place in enumerate(strongholds(groups)):
            _name(axes, place, names[number], number)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(False)
        figure.legend(loc="outside lower center", ncols=3, markerscale=1.8)
        sizes = sum(map(len, groups))
        alt = f"{title}: {sizes} points on a plane, of {len(names)} groups: {', '.join(names)}."
        drawing = finish(figure, title, alt)
        return replace(drawing, svg=_compact(drawing.svg))


def _compact(svg: str) -> str:
    """Say once how many points look, and where each is to a tenth of a point of type."""

    def shorter(run: re.Match[str]) -> str:
        places = re.findall(r'x="([-\d.]+)" y="([-\d.]+)"', run[0])
        marks = [
            f'<use xlink:href="#{run[1]}" x="{float(x):.1f}" y="{float(y):.1f}"/>'
            for x, y in places
        ]
        return f'<g style="{run[2]}">{"".join(marks)}</g>\n'

    first = r'<use xlink:href="#(\w+)" x="[-\d.]+" y="[-\d.]+" style="([^"]*)"/>\s*'
    return re.sub(first + r'(?:<use xlink:href="#\1" [^>]*style="\2"/>\s*)+', shorter, svg)


def strongholds(groups: Sequence[Array], near: int = 15) -> list[Array]:
    """Return a place of each group: that whose nearest places are most often of the same group.

    Example:
        >>> one, other = np.array([[0.0, 0], [9, 9], [9, 8]]), np.array([[0.0, 1], [1, 0], [8, 8]])
        >>> [place.tolist() for place in strongholds([one, other], near=1)]
        [[9.0, 9.0], [0.0, 1.0]]
    """
    places = np.concatenate(groups)
    owners = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    found = []
    for number, group in enumerate(groups):
        away = np.square(group[:, None] - places).sum(axis=2)
        nearest = np.argsort(away, axis=1, kind="stable")[:, 1 : near + 1]
        same = (owners[nearest] == number).sum(axis=1)
        found.append(group[int(same.argmax())])
    return found


def _points(axes: Axes, places: Array, number: int, name: str) -> None:
    is_repeat = number >= len(SERIES)
    axes.plot(
        places[:, 0],
        places[:, 1],
        linestyle="none",
        marker=_RINGS if is_repeat else _FILLED,
        markersize=2.6 if is_repeat else 2.2,
        markerfacecolor="none" if is_repeat else series_color(number),
        markeredgecolor=series_color(number),
        markeredgewidth=0.5 if is_repeat else 0.0,
        label=name,
    )


def _name(axes: Axes, place: Array, name: str, number: int) -> None:
    axes.text(
        place[0],
        place[1],
        name,
        ha="center",
        va="center",
        fontsize=7,
        fontweight="bold",
        color=series_color(number),
        bbox={"facecolor": SURFACE, "alpha": 0.75, "linewidth": 0, "pad": 0.8},
    )


@dataclass(frozen=True, eq=False)
class Plane:
    """A model in two dimensions, with one of its users.

    Attributes:
        items: (n_items, 2).
        kinds: The category of each item.
        user: Where the user is, (2,).
        moved: Where they are moved to, (n, 2); None where they stay.
        own: Item rows that they are moved for, (n,).
    """

    items: Array
    kinds: Sequence[str]
    user: Array
    moved: Array | None = None
    own: Rows | None = None


def plane(model: Plane, kinds: Sequence[str], *, title: str) -> Drawing:
    """Draw items by category, a user, and arrows to where they are moved.

    Args:
        model: What to draw.
        kinds: Categories in the order of their colours.
        title: Caption.
    """
    with canvas(3.9) as (figure, axes):
        for number, kind in enumerate(kinds):
            places = model.items[[own == kind for own in model.kinds]]
            _kind(axes, places, number, kind)
        for place in () if model.moved is None else model.moved:
            arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.8, "alpha": 0.7}
            axes.annotate("", tuple(place), tuple(model.user), arrowprops=arrow)
        if model.moved is not None:
            axes.plot(*model.moved.T, "o", color=INK, markersize=3, label="moved")
        axes.plot(*model.user, "*", color=INK, markersize=13, label="user")
        axes.set_aspect("equal", adjustable="datalim")
        axes.margins(0.12)
        axes.grid()
        figure.legend(loc="outside lower center", ncols=5)
        count = 0 if model.moved is None else len(model.moved)
        alt = f"{title}: items of {', '.join(kinds)} on a plane, a user, and {count} arrows."
        return finish(figure, title, alt)


def _kind(axes: Axes, places: Array, number: int, kind: str) -> None:
    axes.plot(
        places[:, 0],
        places[:, 1],
        linestyle="none",
        marker="osD"[number % 3],
        markersize=5,
        color=series_color(number),
        alpha=0.85,
        label=kind,
    )
