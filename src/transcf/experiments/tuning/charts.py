"""Charts of a tuning: its course, and which settings mattered; needs matplotlib."""

from __future__ import annotations

from pathlib import Path

from transcf.data.atomic import whole_file
from transcf.experiments.tuning.result import Tuning
from transcf.pages import Drawing
from transcf.pages.figures import bars, scatter


def write_charts(found: Tuning, folder: Path) -> list[Path]:
    """Write `history` and, where enough was tried to tell, `importance` into a folder.

    Returns:
        What was written: SVG files in the colours of pages, light and dark.
    """
    drawn = {"history": history_chart(found)}
    if (shares := importance(found)) is not None:
        drawn["importance"] = importance_chart(found, shares)
    written = []
    for name, drawing in drawn.items():
        with whole_file(folder / f"{name}.svg") as path:
            path.write_text(drawing.to_file(), encoding="utf-8")
        written.append(folder / f"{name}.svg")
    return written


def history_chart(found: Tuning) -> Drawing:
    """Draw every trial in order, and the best so far as a line; failed ones lie at the bottom."""
    numbered = list(enumerate(found.trials, start=1))
    low = min((one.figure for one in found.trials if one.figure is not None), default=0.0)
    groups = {}
    for state, name in (
        ("complete", "trial"),
        ("pruned", "pruned, best epoch so far"),
        ("failed", "failed"),
    ):
        there = [(number, one.figure) for number, one in numbered if one.state == state]
        if there:
            heights = [low if figure is None else figure for _, figure in there]
            groups[name] = [number for number, _ in there], heights
    best = [(n, figure) for n, figure in enumerate(found.curve(), 1) if figure is not None]
    ended = f"{found.count('pruned')} pruned, {found.count('failed')} failed"
    return scatter(
        groups,
        title=f"{found.model}: {len(numbered)} trials ({found.sampler})",
        x_axis="trial",
        y_axis=f"{found.metric} on validation data",
        alt=f"{found.metric} of {len(numbered)} trials, {ended}"
        + (f"; the best has {best[-1][1]:.4f}." if best else "."),
        steps={"best so far": ([n for n, _ in best], [figure for _, figure in best])},
    )


def importance_chart(found: Tuning, shares: dict[str, float]) -> Drawing:
    """Draw one bar per parameter, the one that mattered most on top."""
    names = sorted(shares, key=lambda name: -shares[name])
    return bars(
        names,
        {"share": [shares[name] for name in names]},
        title=f"{found.model}: what mattered",
        axis=f"share of the variance of {found.metric} (fANOVA)",
        digits=2,
    )


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
