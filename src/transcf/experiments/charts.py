"""Charts of comparisons; needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from transcf.experiments.comparison import TRIVIAL_BASELINES, Comparison

_BEST, _INDISTINGUISHABLE, _BEHIND, _TRIVIAL = "#0b6e4f", "#6bbf9c", "#9db4c0", "#d9d9d9"


def bar_chart(comparison: Comparison, path: Path) -> None:
    """Draw one bar per model, the best on top, with standard errors over users; PNG."""
    metric = comparison.metric
    means = {name: found[metric] for name, found in comparison.summaries.items()}
    names = sorted(means, key=lambda name: means[name]["mean"])
    figure = Figure(figsize=(7.5, 1.4 + 0.3 * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.barh(
        names,
        [means[name]["mean"] for name in names],
        xerr=[means[name]["se"] for name in names],
        color=[_color(comparison, name) for name in names],
        error_kw={"ecolor": "#444444", "elinewidth": 1, "capsize": 2},
    )
    for place, name in enumerate(names):
        entry = means[name]
        axes.annotate(
            f"{entry['mean']:.4f}",
            (entry["mean"] + entry["se"], place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.margins(x=0.12, y=0.02)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(f"{metric}, mean and standard error over users")
    axes.set_title(
        f"{comparison.dataset}: {comparison.judging.protocol} protocol, {comparison.judging.part}",
        loc="left",
        fontsize=11,
    )
    shades = {
        _BEST: "best",
        _INDISTINGUISHABLE: "not told apart",
        _BEHIND: "behind",
        _TRIVIAL: "trivial",
    }
    handles = [axes.barh([0], [0], color=color, label=label) for color, label in shades.items()]
    axes.legend(handles=handles, loc="lower right", fontsize=8, frameon=False)
    figure.savefig(path, format="png", dpi=150)


def _color(comparison: Comparison, name: str) -> str:
    if name == comparison.best(comparison.metric):
        return _BEST
    if name in comparison.indistinguishable:
        return _INDISTINGUISHABLE
    return _TRIVIAL if name in TRIVIAL_BASELINES else _BEHIND
