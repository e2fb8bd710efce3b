"""Tables and reports of studies and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transcf import __version__
from transcf.data.report import counted, listed
from transcf.errors import MissingExtraError
from transcf.evaluation.metrics import is_beyond
from transcf.evaluation.results import LEVEL
from transcf.evaluation.validation import validation_metric
from transcf.experiments import pages
from transcf.experiments.results import (
    TIMED_BASELINE,
    TRIVIAL,
    CandidateResult,
    Comparison,
    Results,
)
from transcf.protocols import PROTOCOLS
from transcf.tables import ERROR, Cell, Mark, Table, legend

#: Groups of models in bar charts and their colours.
_GROUPS = {
    "best": pages.BEST,
    "not significantly different": pages.TIED,
    "other": pages.OTHER,
    "trivial baseline": pages.BASELINE,
}
#: Marks of cells by group.
_MARKS: dict[str, Mark] = {"best": "best", "not significantly different": "tied"}


def table_of(comparison: Comparison) -> Table:
    """Return the table of a comparison."""
    return metrics_table(comparison, shown_metrics(comparison))


def results_of(comparison: Comparison, command: str = "") -> Results:
    """Return the results of a comparison with the command that runs it again."""
    title = f"Models on {comparison.dataset}"
    return Results("comparison", title, shown_metrics(comparison), [comparison], command)


def write_results(results: Results, path: Path, name: str) -> tuple[list[Path], str]:
    """Write results to a file (.html, .md or .json), or to a folder as NAME.html, .md and .json.

    Returns the written files, and which extra is missing. Without it Markdown has no charts, and
    HTML files are left out.
    """
    kinds = (*pages.PAGE_SUFFIXES, ".json")
    paths = [path] if path.suffix in kinds else [path / f"{name}{kind}" for kind in kinds]
    has_plots = pages.has_plots()
    page, written = page_of(results, figures=has_plots), []
    for target in paths:
        if target.suffix == ".json":
            written.append(results.write(target))
        elif has_plots or target.suffix != ".html":
            written += page.write(target)
    return written, "" if has_plots else str(MissingExtraError("Drawing figures", "plots"))


def page_of(results: Results, *, figures: bool = True) -> pages.Page:
    """Make the report, with or without charts, which need matplotlib."""
    tables = results.tables
    models = {entry.name for comparison in tables for entry in comparison.runs}
    names = listed(list(dict.fromkeys(comparison.dataset for comparison in tables)))
    page = pages.Page(results.title, f"{counted(len(models), 'model')} on {names}.")
    best = {
        f"best {each.metric} on {each.title}": each.best(each.metric)
        for each in tables
        if each.runs
    }
    page.add("Summary", best)
    if len(tables) > 1:
        page.add("All datasets", _overview(tables), _overview_chart(tables) if figures else [])
    for comparison in tables:
        page.add(
            comparison.title,
            *_metrics_and_training(metrics_table(comparison, results.metrics)),
            charts_of(comparison) if figures and comparison.runs else [],
            _tests_table(comparison) if len(comparison.tests) else None,
        )
    if (published := published_table(results)) is not None:
        page.add(published.title, published)
    used = dict.fromkeys(comparison.protocol for comparison in tables)
    rows = [[f"protocol {name}", PROTOCOLS[name].meaning] for name in used if name in PROTOCOLS]
    rows += [["command", results.command], ["version of transcf", __version__]]
    title = "Protocol and command"
    page.add(title, Table(title, ["name", "value"], rows, align="ll"))
    return page


# -- tables ------------------------------------------------------------------------------------


def shown_metrics(comparison: Comparison) -> list[str]:
    """Return the metrics of a comparison's table: hit rate, NDCG, the tested one, and others.

    Beyond accuracy the first list length is enough.
    """
    if not comparison.runs:
        return [comparison.metric]
    first = comparison.runs[0]
    names = [name for name in first.metrics if name.startswith(("HitRate@", "NDCG@"))]
    names += [] if comparison.metric in names else [comparison.metric]
    if any(map(is_beyond, first.metrics)):
        n = comparison.config.k[0]
        more = ("AUC", f"novelty@{n}", f"ILD@{n}", f"coverage@{n}", f"gini@{n}")
        there = {*first.metrics, *first.catalogue} - set(names)
        names += [name for name in more if name in there]
    return names


def metrics_table(comparison: Comparison, metrics: Sequence[str]) -> Table:
    """Return one row per model; the tested metric is always shown.

    The share of recommended items that did not exist yet is shown if there are any.
    """
    if not comparison.runs:
        return Table(f"{comparison.dataset}: no model was run", ["model"], [], comparison.warnings)
    entries, metric, tests = comparison.runs, comparison.metric, comparison.tests_of_best
    future = f"future@{comparison.config.k[0]}"
    metrics = list(dict.fromkeys([*metrics, metric]))
    metrics += [future] if any(entry.catalogue.get(future) for entry in entries) else []
    there = {name for entry in entries for name in (*entry.metrics, *entry.catalogue)}
    metrics = [name for name in metrics if name in there]
    has_seeds = any(entry.runs > 1 for entry in entries)
    has_trials = any(entry.tried > 1 for entry in entries)
    rows: list[dict[str, str | Cell]] = []
    for entry in entries:
        row: dict[str, str | Cell] = {"model": entry.name}
        row |= {name: _metric_cell(comparison, entry, name) for name in metrics}
        if entries[0].full_ranking:
            row[f"{metric} in full ranking"] = _mean_and_error(entry.full_ranking.get(metric))
        p = tests[entry.name]["p"] if entry.name in tests else None
        row[f"p ({metric})"] = _p_value(p)
        if has_seeds:
            spread = entry.metrics.get(metric, {}).get("sd") if entry.runs > 1 else None
            row |= {"seeds": str(entry.runs), "sd of seeds": _number(spread)}
        row["fit seconds"] = f"{entry.seconds:.2f}"
        if entries[0].size is not None:
            row["size"] = "-" if entry.size is None else _size(entry.size)
        if has_trials:
            chosen = ", ".join(f"{name}={value}" for name, value in entry.chosen.items())
            row["validation"], row["tried"] = _number(entry.validation), str(entry.tried)
            row["minutes"] = "-" if entry.spent is None else f"{entry.spent / 60:.1f}"
            row["chosen"] = chosen or "default"
        rows.append(row)
    title = f"{comparison.dataset}: {comparison.protocol} protocol, {entries[0].subset}, "
    title += counted(max(entry.users for entry in entries), "user")
    title += f", {entries[0].ties} ties" if entries[0].ties else ""
    cells = [list(row.values()) for row in rows]
    return Table(title, list(rows[0]), cells, _notes(comparison, metrics))


def _metrics_and_training(table: Table) -> list[Table]:
    """Split the table of a comparison, which is too wide for a page, after the column of p."""
    if not table.rows:
        return [table]
    n = 1 + next(n for n, name in enumerate(table.columns) if name.startswith("p ("))
    metrics = replace(table, columns=table.columns[:n], rows=[row[:n] for row in table.rows])
    training = [[row[0], *row[n:]] for row in table.rows]
    return [metrics, Table("Training and selection", ["model", *table.columns[n:]], training)]


def _metric_cell(comparison: Comparison, entry: CandidateResult | None, metric: str) -> Cell:
    """Return mean and standard error; the best and ties with it are marked."""
    if entry is None or metric not in entry.metrics:
        return Cell(_number(entry.catalogue.get(metric) if entry else None))
    text = _mean_and_error(entry.metrics[metric])
    # Larger is not better for novelty and diversity.
    if is_beyond(metric) and metric not in ("AUC", comparison.metric):
        return Cell(text)
    return Cell(text, _MARKS.get(groups_of(comparison, metric)[entry.name], ""))


def groups_of(comparison: Comparison, metric: str) -> dict[str, str]:
    """Return the group of each model in charts of a metric."""
    groups = {
        entry.name: "trivial baseline" if entry.kind in TRIVIAL else "other"
        for entry in comparison.runs
    }
    if metric == comparison.metric:
        groups |= dict.fromkeys(comparison.indistinguishable, "not significantly different")
    return groups | {comparison.best(metric): "best"}


def _notes(comparison: Comparison, metrics: Sequence[str]) -> list[str]:
    entries, notes = comparison.runs, [f"Held out: {comparison.split}.", legend(metrics, ERROR)]
    notes.append(
        f"Best: * (bold); p: {comparison.metric} against the best model, Wilcoxon signed-rank with "
        "Holm's correction for all pairs; = (underlined or in italics): not significantly "
        f"different from the best at {LEVEL}."
    )
    tried = max((entry.tried for entry in entries if entry.name != TIMED_BASELINE), default=1)
    if tried > 1:
        metric = validation_metric(comparison.protocol or None, comparison.config.k)
        notes.append(
            f"Settings: the best of at most {tried} on validation data ({metric}). Minutes: all "
            "trials, fits and evaluations."
        )
    if stored := sum(entry.stored for entry in entries):
        cells = sum(entry.cells for entry in entries)
        notes.append(f"From the store of runs: {stored:,} of {cells:,} fits.")
    return [*notes, *comparison.warnings]


def _overview(tables: Sequence[Comparison]) -> Table:
    metric = tables[0].metric
    rows: list[list[str | Cell]] = [
        [name, *(_metric_cell(each, each.named(name), metric) for each in tables)]
        for name in _names(tables)
    ]
    columns = ["model", *(comparison.title for comparison in tables)]
    return Table(f"{metric} on all datasets", columns, rows)


def _tests_table(comparison: Comparison) -> Table:
    rows: list[list[str | Cell]] = []
    for name, test in comparison.tests_of_best.items():
        interval = f"{test['low']:.4f} to {test['high']:.4f}"
        rows.append([name, f"{test['difference']:.4f}", interval, _p_value(test["p"])])
    title = f"{comparison.best(comparison.metric)} against the other models, {comparison.metric}"
    columns = ["model", "difference", "95 % interval", "p, corrected"]
    return Table(title, columns, rows, ["95 % interval: bootstrap over users."])


def published_table(results: Results) -> Table | None:
    """Return one row per published value that we have, with a verdict; None if there is none."""
    rows = [
        _published_row(comparison, entry, metric)
        for comparison in results.tables
        for entry in comparison.runs
        for metric in results.metrics
        if metric in comparison.published(entry.name) and metric in entry.metrics
    ]
    columns = ["model", "table", "metric", "published", "ours", "difference", "in %",
               "standard error", "verdict"]  # fmt: skip
    title = "Published values and ours"
    return Table(title, columns, rows, align="lllrrrrrl") if rows else None


def _published_row(comparison: Comparison, entry: CandidateResult, metric: str) -> list[str]:
    published, ours = comparison.published(entry.name)[metric], entry.metrics[metric]
    difference = ours["mean"] - published
    verdict = "within two standard errors" if -difference < 2 * ours["se"] else "below"
    return [
        entry.name,
        comparison.title,
        metric,
        _number(published),
        _number(ours["mean"]),
        f"{difference:+.4f}",
        f"{100 * difference / published:+.1f} %" if published else "-",
        _number(ours["se"]),
        "reached" if difference >= 0 else verdict,
    ]


# -- charts ------------------------------------------------------------------------------------


def charts_of(comparison: Comparison) -> list[pages.Drawing]:
    """Draw the tested metric of all models, grids of settings, and learning curves."""
    metric = comparison.metric
    able = [entry for entry in comparison.runs if metric in entry.metrics]
    ranked = sorted(able, key=lambda entry: -entry.metrics[metric]["mean"])
    groups = groups_of(comparison, metric)
    published = [comparison.published(entry.name).get(metric) for entry in ranked]
    chart = pages.bars(
        [entry.name for entry in ranked],
        {metric: [entry.metrics[metric]["mean"] for entry in ranked]},
        errors={metric: [entry.metrics[metric]["se"] for entry in ranked]},
        published=published if any(published) else None,
        groups=[groups[entry.name] for entry in ranked],
        colors=_GROUPS,
        title=f"{metric} on {comparison.title}, mean and standard error over users",
        axis=metric,
    )
    grids = []
    for kind in dict.fromkeys(entry.kind for entry in able):
        same = [entry for entry in able if entry.kind == kind]
        cells = [(entry.parameters, entry.metrics[metric]["mean"]) for entry in same]
        grids += _grid(f"{metric} of {kind} on {comparison.title}", cells)
    for entry in comparison.runs:
        tried = [(trial.parameters, trial.validation) for trial in entry.trials]
        grids += _grid(f"Validation of {entry.name} on {comparison.title}, by setting", tried)
    return [chart, *grids, *_curves(comparison)]


def _overview_chart(tables: Sequence[Comparison]) -> list[pages.Drawing]:
    """Draw the metric of two to four tables side by side."""
    if not 2 <= len(tables) <= 4:
        return []
    metric, names = tables[0].metric, _names(tables)
    means, errors = (
        {
            table.title: [table.summaries.get(name, {}).get(metric, {}).get(key) for name in names]
            for table in tables
        }
        for key in ("mean", "se")
    )
    title = f"{metric} on all datasets, mean and standard error over users"
    return [pages.bars(names, means, errors=errors, title=title, axis=metric)]


def _curves(comparison: Comparison) -> list[pages.Drawing]:
    """Draw the validation metric by epoch, a few models per chart."""
    curves = {}
    for entry in comparison.runs:
        points = [(step["epoch"], step["metric"]) for step in entry.curve]
        points = [point for point in points if point[1] is not None]
        if len(points) > 1:
            curves[entry.name] = points
    names, several = list(curves), len(pages.SERIES)
    parts = [names[start : start + several] for start in range(0, len(names), several)]
    title = f"Validation by epoch on {comparison.title}, first seed; selected epochs are ringed"
    axes = {"x_axis": "epoch", "y_axis": "validation metric"}
    return [
        pages.lines({name: curves[name] for name in part}, title=title, **axes) for part in parts
    ]


def _grid(
    title: str, cells: Sequence[tuple[Mapping[str, Any], float | None]]
) -> list[pages.Drawing]:
    """Draw values whose settings differ in two parameters and fill at least half of the grid."""
    names = {name for settings, _ in cells for name in settings} - {"random_state"}
    free = [name for name in sorted(names) if len({str(one.get(name)) for one, _ in cells}) > 1]
    if len(free) != 2:
        return []
    # By their text, since values may be lists.
    keyed = {tuple(str(one.get(name)) for name in free): value for one, value in cells}
    rows, columns = (_ordered([one.get(name) for one, _ in cells]) for name in free)
    if len(keyed) * 2 < len(rows) * len(columns):
        return []
    values = [[keyed.get((row, column)) for column in columns] for row in rows]
    return [
        pages.heat_map(rows, columns, values, row_axis=free[0], column_axis=free[1], title=title)
    ]


# -- text --------------------------------------------------------------------------------------


def _names(tables: Sequence[Comparison]) -> list[str]:
    return list(dict.fromkeys(entry.name for comparison in tables for entry in comparison.runs))


def _ordered(values: Sequence[Any]) -> list[str]:
    is_number = all(isinstance(value, int | float) for value in values)
    return list(dict.fromkeys(map(str, sorted(values) if is_number else values)))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _p_value(p: float | None) -> Cell:
    return Cell("-" if p is None else f"{p:.2g}", "tied" if p and p >= LEVEL else "")


def _mean_and_error(metric: Mapping[str, float] | None) -> str:
    return f"{metric['mean']:.4f} ± {metric['se']:.4f}" if metric else "-"


def _size(n_bytes: int) -> str:
    for unit, scale in (("GB", 2**30), ("MB", 2**20)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes / 2**10:.1f} kB"
