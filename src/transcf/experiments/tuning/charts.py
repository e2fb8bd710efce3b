"""Charts of a tuning: its course, and which settings mattered; needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from transcf.data.atomic import whole_file
from transcf.experiments.tuning.result import Tuning

_BEST, _TRIAL, _PRUNED, _FAILED = "#0b6e4f", "#6bbf9c", "#9db4c0", "#b5651d"
_FORMATS = ("png", "svg")


def write_charts(found: Tuning, folder: Path) -> list[Path]:
    """Write `history` and, where enough was tried to tell, `importance` into a folder.

    Returns:
        What was written: each as PNG and SVG.
    """
    drawn = {"history": history_chart(found)}
    if (shares := importance(found)) is not None:
        drawn["importance"] = importance_chart(found, shares)
    written = []
    for name, figure in drawn.items():
        for kind in _FORMATS:
            with whole_file(folder / f"{name}.{kind}") as path:
                figure.savefig(path, format=kind, dpi=150)
            written.append(folder / f"{name}.{kind}")
    return written


def history_chart(found: Tuning) -> Figure:
    """Draw every trial in order, and the best so far as a line."""
    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axes = figure.subplots()
    numbered = list(enumerate(found.trials, start=1))
    for state, color, mark, label in (
        ("complete", _TRIAL, "o", "trial"),
        ("pruned", _PRUNED, "v", "pruned, best epoch so far"),
    ):
        points = [(number, t.figure) for number, t in numbered if t.state == state]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, mark, color=color, markersize=4, label=label)
    steps = [(number, best) for number, best in enumerate(found.curve(), 1) if best is not None]
    if steps:
        x, y = zip(*steps, strict=True)
        axes.step(x, y, where="post", color=_BEST, label="best so far")
    failed = [number for number, t in numbered if t.state == "failed"]
    if failed:
        low = axes.get_ylim()[0]
        axes.plot(failed, [low] * len(failed), "x", color=_FAILED, label="failed", clip_on=False)
        axes.set_ylim(bottom=low)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("trial")
    axes.set_ylabel(f"{found.metric} on validation data")
    axes.set_title(
        f"{found.model}: {len(numbered)} trials ({found.sampler})", loc="left", fontsize=11
    )
    figure.legend(fontsize=8, frameon=False, loc="outside lower right", ncols=4)
    return figure


def importance_chart(found: Tuning, shares: dict[str, float]) -> Figure:
    """Draw one bar per parameter, the one that mattered most on top."""
    names = sorted(shares, key=lambda name: shares[name])
    figure = Figure(figsize=(7.5, 1.4 + 0.3 * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.barh(names, [shares[name] for name in names], color=_TRIAL)
    for place, name in enumerate(names):
        axes.annotate(
            f"{shares[name]:.2f}",
            (shares[name], place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.margins(x=0.12, y=0.02)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(f"share of the variance of {found.metric} (fANOVA)")
    axes.set_title(f"{found.model}: what mattered", loc="left", fontsize=11)
    return figure


def importance(found: Tuning) -> dict[str, float] | None:
    """Return how much of the figures' variance each parameter explains; they add up to 1.

    None where nothing can be said: fewer than two trials with all parameters, or equal figures.
    """
    import optuna

    from transcf.tuning.tpe import distributions, frozen, quietly

    whole = distributions(found.space)
    with quietly():
        study = optuna.create_study(direction="maximize")
    trials = [frozen(tried, found.usual, whole) for tried in found.trials]
    study.add_trials([one for one in trials if len(one.params) == len(whole)])
    done = [one for one in study.trials if one.state == optuna.trial.TrialState.COMPLETE]
    if not whole or len(done) < 2 or len({one.value for one in done}) < 2:
        return None
    judge = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return dict(optuna.importance.get_param_importances(study, evaluator=judge))
