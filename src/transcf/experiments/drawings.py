"""The figures of a report: bars of a table, heat maps of settings, validation by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transcf.evaluation.significance import LEVEL
from transcf.experiments.results import Entry, Outcome, Results
from transcf.pages import Drawing
from transcf.pages.drawing import SERIES
from transcf.pages.figures import bars, heat_map, lines

#: What the colours of bars mean.
ROLES = {"best": "best", "alike": "not told apart", "behind": "behind", "trivial": "trivial"}
#: Tables whose figures can stand in one figure.
_SIDE_BY_SIDE = 4


def bars_of(outcome: Outcome, metric: str) -> Drawing:
    """One bar for each model, the best on top, with standard errors and published figures."""
    able = [entry for entry in outcome.entries if metric in entry.metrics]
    ranked = sorted(able, key=lambda entry: -entry.metrics[metric]["mean"])
    roles = roles_of(outcome, metric)
    published = [entry.published.get(metric) for entry in ranked]
    return bars(
        [entry.name for entry in ranked],
        {metric: [entry.metrics[metric]["mean"] for entry in ranked]},
        errors={metric: [entry.metrics[metric]["se"] for entry in ranked]},
        points={metric: published} if any(published) else None,
        roles=[roles[entry.name] for entry in ranked],
        legend={role: ROLES[role] for role in ROLES if role in roles.values()},
        title=f"{metric} on {outcome.title}, mean and standard error over users",
        axis=metric,
    )


def roles_of(outcome: Outcome, metric: str) -> dict[str, str]:
    """What each model is in the table: the best, not told apart from it, trivial, or behind."""
    best, tested = outcome.best(metric), outcome.metric == metric
    p_values = outcome.against_best() if tested else {}
    roles = {}
    for entry in outcome.entries:
        if best is not None and entry.name == best.name:
            roles[entry.name] = "best"
        elif p_values.get(entry.name, 0.0) >= LEVEL:
            roles[entry.name] = "alike"
        else:
            roles[entry.name] = "trivial" if entry.is_trivial else "behind"
    return roles


def bars_of_all(results: Results, metric: str) -> Drawing | None:
    """Bars of every table side by side; None unless there are two to four tables."""
    outcomes = [outcome for outcome in results.outcomes if outcome.best(metric) is not None]
    if not 2 <= len(outcomes) <= _SIDE_BY_SIDE:
        return None
    names = list(dict.fromkeys(entry.name for outcome in outcomes for entry in outcome.entries))
    found = {
        outcome.title: [_of(outcome.entry(name), metric) for name in names] for outcome in outcomes
    }
    return bars(
        names,
        {title: [pair[0] for pair in pairs] for title, pairs in found.items()},
        errors={title: [pair[1] for pair in pairs] for title, pairs in found.items()},
        title=f"{metric} in every table, mean and standard error over users",
        axis=metric,
    )


def _of(entry: Entry | None, metric: str) -> tuple[float | None, float | None]:
    if entry is None or metric not in entry.metrics:
        return None, None
    return entry.metrics[metric]["mean"], entry.metrics[metric]["se"]


def curves_of(outcome: Outcome) -> list[Drawing]:
    """Validation by epoch of every model that has several; a few models in each figure."""
    able = [entry for entry in outcome.entries if len(entry.curve) > 1]
    drawn = []
    parts = -(-len(able) // SERIES)
    for start in range(0, len(able), SERIES):
        part = f", {start // SERIES + 1} of {parts}" if parts > 1 else ""
        series = {
            entry.name: (
                [step["epoch"] for step in entry.curve],
                [step["metric"] for step in entry.curve],
            )
            for entry in able[start : start + SERIES]
        }
        best = {
            name: max(zip(*points, strict=True), key=lambda point: (point[1], -point[0]))
            for name, points in series.items()
        }
        drawn.append(
            lines(
                series,
                title=f"Validation by epoch on {outcome.title}, first seed{part}; kept ones ringed",
                x_axis="epoch",
                y_axis="validation metric",
                chosen=best,
            )
        )
    return drawn


def heat_maps_of(outcome: Outcome, metric: str) -> list[Drawing]:
    """Grids of two settings: of models that differ in nothing else, and of what each tried."""
    drawn = []
    entries = [entry for entry in outcome.entries if metric in entry.metrics]
    for kind in dict.fromkeys(entry.kind for entry in entries):
        alike = [entry for entry in entries if entry.kind == kind]
        cells = [(entry.parameters, entry.metrics[metric]["mean"]) for entry in alike]
        title = f"{metric} of {kind} on {outcome.title}"
        drawn += _grid(cells, title)
    for entry in outcome.entries:
        tried = [(trial["parameters"], trial["validation"]) for trial in entry.trials]
        drawn += _grid(tried, f"Validation of {entry.name} on {outcome.title}, by setting")
    return drawn


def _grid(cells: Sequence[tuple[Mapping[str, Any], float | None]], title: str) -> list[Drawing]:
    """Draw figures whose settings differ in two respects, at least twice in each; else nothing."""
    free = _differing([settings for settings, _ in cells])
    if len(free) != 2:
        return []
    names = sorted(free)
    rows, columns = (_values(cells, name) for name in names)
    found = {tuple(settings[name] for name in names): figure for settings, figure in cells}
    if min(len(rows), len(columns)) < 2 or len(found) * 2 < len(rows) * len(columns):
        return []
    return [
        heat_map(
            list(map(str, rows)),
            list(map(str, columns)),
            [[found.get((row, column)) for column in columns] for row in rows],
            title=title,
            row_axis=names[0],
            column_axis=names[1],
        )
    ]


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of what is not the same in all settings; the seed is no setting here."""
    names = dict.fromkeys(name for one in settings for name in one if name != "random_state")
    return [name for name in names if len({str(one.get(name)) for one in settings}) > 1]


def _values(cells: Sequence[tuple[Mapping[str, Any], float | None]], name: str) -> list[Any]:
    """The values of a setting, in order where they are numbers."""
    values = list(dict.fromkeys(settings.get(name) for settings, _ in cells))
    is_number = all(isinstance(value, int | float) for value in values)
    return sorted(values) if is_number else values
