"""The figures that reports share; each returns a `Drawing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from transcf.errors import ParameterError
from transcf.pages.drawing import HEAT, Drawing, canvas, color, finish, series_color

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Numbers, or None where there is none.
Values: TypeAlias = Sequence[float | None]
#: Places along and up.
Points: TypeAlias = tuple[Sequence[float], Sequence[float]]

_MARKERS = "osD^vP"
_DASHES = ("-", "--", "-.", ":")


def bars(
    names: Sequence[str],
    series: Mapping[str, Values],
    *,
    title: str,
    axis: str,
    errors: Mapping[str, Values] | None = None,
    points: Mapping[str, Values] | None = None,
    roles: Sequence[str] | None = None,
    legend: Mapping[str, str] | None = None,
    digits: int = 4,
    alt: str = "",
) -> Drawing:
    """Draw horizontal bars, for each name one of every series, the first name on top.

    Args:
        names: What the bars are about.
        series: Lengths of bars, for every series as many as there are names.
        title: Caption.
        axis: What the lengths are.
        errors: Half lengths of error bars, by series.
        points: Figures to mark by a diamond on the bars of a series, such as published ones.
        roles: With a single series, the colour of each bar by its role, such as "best".
        legend: What roles mean, by role.
        digits: Behind the point, in the labels at the ends of bars; they are left out where
            there are more than two series.
        alt: What the figure shows; made of the figures unless given.

    Example:
        >>> drawing = bars(["ease", "bpr"], {"N@10": [0.12, 0.1]}, title="T", axis="N@10")
        >>> drawing.alt
        'T: bars of N@10. ease 0.1200; bpr 0.1000.'
    """
    _check(names, {**series, **(errors or {}), **(points or {})})
    count = len(series)
    thick = 0.8 / count
    with canvas(0.95 + len(names) * max(0.26, 0.17 * count)) as (figure, axes):
        for place, (label, lengths) in enumerate(series.items()):
            spread = (errors or {}).get(label)
            where = [row + (place - (count - 1) / 2) * thick for row in range(len(names))]
            colors = list(map(color, roles)) if roles and count == 1 else series_color(place)
            axes.barh(
                where,
                [_number(length) for length in lengths],
                height=thick * 0.92,
                color=colors,
                label=label,
                xerr=None if spread is None else [_number(one, 0.0) for one in spread],
                error_kw={"ecolor": color("ink"), "elinewidth": 0.8, "capsize": 1.5},
            )
            marked = (points or {}).get(label)
            if count <= 2:
                _label_ends(axes, where, lengths, [spread, marked], digits)
            _diamonds(axes, where, marked, first=place == 0)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.14, y=0.01)
        axes.axvline(0, color=color("faint"), linewidth=0.8)
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(axis)
        _legend_of_bars(figure, axes, legend if roles else None, count > 1 or bool(points))
        return finish(figure, title, alt or _said(title, f"bars of {axis}", names, series))


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Values],
    *,
    title: str,
    row_axis: str,
    column_axis: str,
    digits: int = 4,
    alt: str = "",
) -> Drawing:
    """Draw a grid of figures, the larger the stronger; each is written in its cell.

    Args:
        rows: Names of rows.
        columns: Names of columns.
        values: For every row as many figures as there are columns; None where there is none.
        title: Caption.
        row_axis: What the rows are.
        column_axis: What the columns are.
        digits: Behind the point.
        alt: What the figure shows; made of the figures unless given.
    """
    if len(values) != len(rows) or any(len(row) != len(columns) for row in values):
        raise ParameterError(
            f"A heat map of {len(rows)} rows and {len(columns)} columns needs as many figures."
        )
    there = [value for row in values for value in row if value is not None]
    low, high = (min(there), max(there)) if there else (0.0, 0.0)
    with canvas(0.8 + 0.36 * len(rows)) as (figure, axes):
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                _heat_cell(axes, x, y, value, low, high, digits)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel(column_axis)
        axes.set_ylabel(row_axis)
        by_column = {
            f"{column_axis} {name}": [row[place] for row in values]
            for place, name in enumerate(columns)
        }
        named = [f"{row_axis} {name}" for name in rows]
        return finish(figure, title, alt or _said(title, "a grid", named, by_column, digits))


def lines(
    series: Mapping[str, Points],
    *,
    title: str,
    x_axis: str,
    y_axis: str,
    chosen: Mapping[str, tuple[float, float]] | None = None,
    alt: str = "",
) -> Drawing:
    """Draw a line for each series, such as validation by epoch.

    Args:
        series: Places along and up, by name.
        title: Caption.
        x_axis: What goes along.
        y_axis: What goes up.
        chosen: A place to mark on a line, such as the epoch that was kept.
        alt: What the figure shows; made of the ends unless given.
    """
    with canvas(2.5 + 0.13 * len(series)) as (figure, axes):
        from matplotlib.ticker import MaxNLocator

        for place, (name, (along, up)) in enumerate(series.items()):
            axes.plot(
                along,
                up,
                color=series_color(place),
                linestyle=_DASHES[place // 6 % len(_DASHES)],
                marker=_MARKERS[place % len(_MARKERS)],
                markersize=3,
                linewidth=1.3,
                label=name,
            )
            if chosen and name in chosen:
                x, y = chosen[name]
                axes.plot(
                    [x], [y], "o", color=series_color(place), markersize=9, markerfacecolor="none"
                )
        if all(float(x).is_integer() for along, _ in series.values() for x in along):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _finish_axes(axes, x_axis, y_axis)
        figure.legend(loc="outside lower center", ncols=2)
        ends = [f"{n} from {up[0]:.4g} to {up[-1]:.4g}" for n, (_, up) in series.items() if len(up)]
        said = f"{title}: lines of {y_axis} by {x_axis}. {'; '.join(ends)}."
        return finish(figure, title, alt or said)


def histogram(
    groups: Mapping[str, Sequence[float]],
    *,
    title: str,
    axis: str,
    bins: int = 30,
    share: bool = False,
    alt: str = "",
) -> Drawing:
    """Draw how often values come up, one outline for each group, over common bins.

    Args:
        groups: Values by name.
        title: Caption.
        axis: What the values are.
        bins: How many.
        share: Whether to show shares of a group instead of counts.
        alt: What the figure shows; made of medians unless given.
    """
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in groups.items()}
    filled = [array for array in arrays.values() if len(array)]
    edges = np.histogram_bin_edges(np.concatenate(filled) if filled else np.zeros(1), bins)
    with canvas(2.3) as (figure, axes):
        for place, (name, array) in enumerate(arrays.items()):
            heights = np.histogram(array, edges)[0] / (max(1, len(array)) if share else 1)
            axes.stairs(heights, edges, fill=True, color=series_color(place), alpha=0.35)
            axes.stairs(heights, edges, color=series_color(place), linewidth=1.2, label=name)
        _finish_axes(axes, axis, "share" if share else "count")
        if len(groups) > 1:
            figure.legend(loc="outside lower center", ncols=3)
        middle = [
            f"{n}: median {np.median(array):.4g}" for n, array in arrays.items() if len(array)
        ]
        said = f"{title}: how often values of {axis} come up. {'; '.join(middle)}."
        return finish(figure, title, alt or said)


def scatter(
    groups: Mapping[str, Points],
    *,
    title: str,
    x_axis: str,
    y_axis: str,
    alt: str,
    labels: Sequence[tuple[float, float, str]] = (),
    steps: Mapping[str, Points] | None = None,
    square: bool = False,
    size: float = 9.0,
) -> Drawing:
    """Draw points, each group in its own colour and shape.

    Args:
        groups: Places along and up, by name.
        title: Caption.
        x_axis: What goes along.
        y_axis: What goes up.
        alt: What the figure shows.
        labels: Text beside places: along, up, text.
        steps: Lines that keep their height up to the next place, such as the best so far.
        square: Whether a unit is as long up as along, as maps need it.
        size: Of a point.
    """
    with canvas(3.6 if square else 2.9) as (figure, axes):
        for place, (name, (along, up)) in enumerate(groups.items()):
            axes.scatter(
                along,
                up,
                s=size,
                color=series_color(place),
                marker=_MARKERS[place % len(_MARKERS)],
                linewidths=0,
                alpha=0.75,
                label=name,
            )
        for name, (along, up) in (steps or {}).items():
            axes.step(along, up, where="post", color=color("ink"), linewidth=1.2, label=name)
        for x, y, text in labels:
            axes.annotate(text, (x, y), xytext=(3, 3), textcoords="offset points", fontsize=7)
        if square:
            axes.set_aspect("equal", adjustable="datalim")
        _finish_axes(axes, x_axis, y_axis)
        if len(groups) + len(steps or {}) > 1:
            figure.legend(loc="outside lower center", ncols=3, markerscale=1.6)
        return finish(figure, title, alt)


def _finish_axes(axes: Axes, x_axis: str, y_axis: str) -> None:
    axes.grid()
    axes.set_xlabel(x_axis)
    axes.set_ylabel(y_axis)


def _check(names: Sequence[str], series: Mapping[str, Values]) -> None:
    for label, values in series.items():
        if len(values) != len(names):
            raise ParameterError(
                f"A figure of {len(names)} names has {len(values)} values of {label}: give as many."
            )


def _number(value: float | None, missing: float = float("nan")) -> float:
    return missing if value is None else value


def _label_ends(
    axes: Axes,
    where: Sequence[float],
    lengths: Values,
    beside: Sequence[Values | None],
    digits: int,
) -> None:
    """Write figures behind the ends of bars, beyond their errors and the points on them."""
    errors, points = ([None] * len(where) if values is None else values for values in beside)
    for length, error, point, y in zip(lengths, errors, points, where, strict=True):
        if length is not None:
            end = max(0.0, length + _number(error, 0.0), _number(point, 0.0))
            axes.annotate(
                f"{length:.{digits}f}",
                (end, y),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
            )


def _diamonds(axes: Axes, where: Sequence[float], values: Values | None, *, first: bool) -> None:
    if values is None:
        return
    placed = [(value, y) for value, y in zip(values, where, strict=True) if value is not None]
    axes.plot(
        [value for value, _ in placed],
        [y for _, y in placed],
        linestyle="none",
        marker="D",
        markersize=4.5,
        markerfacecolor=color("surface"),
        markeredgecolor=color("ink"),
        label="published" if first else "_nolegend_",
    )


def _legend_of_bars(
    figure: Figure, axes: Axes, roles: Mapping[str, str] | None, has_more: bool
) -> None:
    """Say below the figure what colours mean, and points if there are any."""
    from matplotlib.patches import Patch

    handles: list[Artist] = list(axes.get_legend_handles_labels()[0]) if has_more else []
    if roles:
        named = [Patch(color=color(role), label=meaning) for role, meaning in roles.items()]
        handles = [*named, *(line for line in axes.lines if line.get_label() == "published")]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(5, len(handles)))


def _heat_cell(
    axes: Axes, x: int, y: int, value: float | None, low: float, high: float, digits: int
) -> None:
    from matplotlib.patches import Rectangle

    if value is None:
        axes.text(x, y, "-", ha="center", va="center", color=color("faint"))
        return
    level = 0 if high == low else min(HEAT - 1, int((value - low) / (high - low) * HEAT))
    axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=color(f"heat-{level}")))
    ink = color("heat-ink-high" if level > HEAT // 2 else "heat-ink-low")
    weight = "bold" if value == high else "normal"
    text = f"{value:.{digits}f}"
    axes.text(x, y, text, ha="center", va="center", color=ink, fontweight=weight, fontsize=8)


def _said(
    title: str, what: str, names: Sequence[str], series: Mapping[str, Values], digits: int = 4
) -> str:
    """Tell the figures of a picture in words."""
    told = []
    for place, name in enumerate(names):
        found = {label: values[place] for label, values in series.items()}
        shown = [
            (f"{label}: " if len(series) > 1 else "") + f"{value:.{digits}f}"
            for label, value in found.items()
            if value is not None
        ]
        told.append(f"{name} {', '.join(shown) or 'missing'}")
    return f"{title}: {what}. {'; '.join(told)}."
