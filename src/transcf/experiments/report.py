"""Tables and reports of studies and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

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
from transcf.tables import ERROR, Cell, Table, legend

#: Settings and a metric.
_Value: TypeAlias = tuple[Mapping[str, Any], float | None]
#: Groups of models in bar charts and their colours.
_GROUPS = {
    "best": pages.BEST,
    "not significantly different": pages.TIED,
    "other": pages.OTHER,
    "trivial baseline": pages.BASELINE,
}


def table_of(comparison: Comparison) -> Table:
    """Return the table of a comparison."""
    return metrics_table(comparison, shown_metrics(comparison))


def results_of(comparison: Comparison, command: str = "") -> Results:
    """Return the results of a comparison with the command that runs it again."""
    title = f"Models on {comparison.dataset}"
    return Results("comparison", title, shown_metrics(comparison), [comparison], command)


def write_results(results: Results, path: Path, name: str) -> tuple[list[Path], str]:
    """Write results to a file (.html, .md or .json), or to a folder as NAME.html, .md and .json.

    Returns the same as `write_page`.
    """
    if path.suffix in pages.PAGE_SUFFIXES:
        return write_page(results, path)
    if path.suffix == ".json":
        return [results.write(path)], ""
    written, missing = write_page(results, path / f"{name}.html", path / f"{name}.md")
    return [*written, results.write(path / f"{name}.json")], missing


def write_page(results: Results, *paths: Path) -> tuple[list[Path], str]:
    """Write the report to files; return those that were written, and what extra is missing.

    Without matplotlib there are no charts; without Jinja2 HTML files are left out.
    """
    written: list[Path] = []
    message = ""
    try:
        page = page_of(results)
    except MissingExtraError as missing:
        page, message = page_of(results, figures=False), str(missing)
    for path in paths:
        try:
            written += page.write(path)
        except MissingExtraError as missing:
            message = str(missing)
    return written, message


def page_of(results: Results, *, figures: bool = True) -> pages.Page:
    """Make the report, with or without charts, which need matplotlib."""
    tables = results.tables
    models = {entry.name for comparison in tables for entry in comparison.runs}
    names = listed(list(dict.fromkeys(comparison.dataset for comparison in tables)))
    page = pages.Page(results.title, f"{counted(len(models), 'model')} on {names}.")
    published = published_table(results)
    summary = page.section("Summary").add("facts", _key_figures(results, published))
    if not figures:
        summary.add("note", "This report has no charts: they need 'transcf[plots]'.")
    if len(tables) > 1:
        section = page.section("All datasets").add("table", _overview(tables))
        section.add("figures", _overview_chart(tables) if figures else [])
    for comparison in tables:
        section = page.section(comparison.title)
        for table in _metrics_and_training(metrics_table(comparison, results.metrics)):
            section.add("table", table)
        section.add("figures", charts_of(comparison) if figures and comparison.runs else [])
        if len(comparison.tests):
            section.add("table", _tests_table(comparison))
    if published is not None:
        page.section(published.title).add("table", published)
    used = dict.fromkeys(comparison.protocol for comparison in tables)
    rules = [PROTOCOLS[name] for name in used if name in PROTOCOLS]
    section = page.section("Protocol and command")
    section.add("list", [f"{one.name}: {one.meaning}." for one in rules])
    section.add("code", results.command)
    section.add("text", f"Written by transcf {__version__}.")
    return page


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
    """Return one row per model, followed by its published values; has the tested metric, too."""
    if not comparison.runs:
        return Table(f"{comparison.dataset}: no model was run", ["model"], [], comparison.warnings)
    entries, metric = comparison.runs, comparison.metric
    there = {name for entry in entries for name in (*entry.metrics, *entry.catalogue)}
    metrics = [name for name in dict.fromkeys([*metrics, metric]) if name in there]
    columns = ["model", *metrics]
    columns += [f"{metric} in full ranking"] if entries[0].full_ranking else []
    columns += [f"p ({metric})"]
    columns += ["seeds", "sd of seeds"] if any(entry.runs > 1 for entry in entries) else []
    columns += ["fit seconds", *(["size"] if entries[0].size is not None else [])]
    if any(entry.tried > 1 for entry in entries):
        columns += ["validation", "tried", "minutes", "chosen"]
    rows: list[list[str | Cell]] = []
    for entry in entries:
        cells = _cells(comparison, entry, metrics)
        rows.append([cells[column] for column in columns])
        if published := comparison.published(entry.name):
            printed = {name: _number(published.get(name)) for name in metrics}
            printed["model"] = "  as published"
            rows.append([Cell(printed.get(column, ""), "muted") for column in columns])
    title = f"{comparison.dataset}: {comparison.protocol} protocol, {entries[0].subset}, "
    title += counted(max(entry.users for entry in entries), "user")
    title += f", {entries[0].ties} ties" if entries[0].ties else ""
    return Table(title, columns, rows, _notes(comparison, metrics))


def _metrics_and_training(table: Table) -> list[Table]:
    """Split the table of a comparison, which is too wide for a page, after the column of p."""
    if not table.rows:
        return [table]
    n = 1 + next(n for n, name in enumerate(table.columns) if name.startswith("p ("))
    metrics = replace(table, columns=table.columns[:n], rows=[row[:n] for row in table.rows])
    training = [[row[0], *row[n:]] for row in table.rows if isinstance(row[0], str)]
    columns = [table.columns[0], *table.columns[n:]]
    return [metrics, Table("Training and selection", columns, training)]


def _cells(
    comparison: Comparison, entry: CandidateResult, metrics: Sequence[str]
) -> dict[str, str | Cell]:
    metric, tests = comparison.metric, comparison.tests_of_best
    p = tests[entry.name]["p"] if entry.name in tests else None
    return {
        "model": entry.name,
        **{name: _metric_cell(comparison, entry, name) for name in metrics},
        f"{metric} in full ranking": _mean_and_error(entry.full_ranking.get(metric)),
        f"p ({metric})": Cell("-" if p is None else f"{p:.2g}", "tied" if p and p >= LEVEL else ""),
        "seeds": str(entry.runs),
        "sd of seeds": _number(entry.metrics.get(metric, {}).get("sd") if entry.runs > 1 else None),
        "fit seconds": f"{entry.seconds:.2f}",
        "size": "-" if entry.size is None else _size(entry.size),
        "validation": _number(entry.validation),
        "tried": str(entry.tried),
        "minutes": "-" if entry.spent is None else f"{entry.spent / 60:.1f}",
        "chosen": ", ".join(f"{name}={value}" for name, value in entry.chosen.items()) or "default",
    }


def _metric_cell(comparison: Comparison, entry: CandidateResult | None, metric: str) -> Cell:
    """Return mean and standard error; the best and ties with it are marked."""
    if entry is None or metric not in entry.metrics:
        return Cell(_number(entry.catalogue.get(metric) if entry else None))
    group = groups_of(comparison, metric)[entry.name]
    # Larger is not better for novelty and diversity.
    if is_beyond(metric) and metric not in ("AUC", comparison.metric):
        group = ""
    is_tied = group == "not significantly different"
    text = _mean_and_error(entry.metrics[metric])
    return Cell(text, "best" if group == "best" else "tied" if is_tied else "")


def groups_of(comparison: Comparison, metric: str) -> dict[str, str]:
    """Return the group of each model in charts of a metric."""
    best = comparison.best(metric)
    tests = comparison.tests_of_best if comparison.metric == metric else {}
    groups = {}
    for entry in comparison.runs:
        group = "trivial baseline" if entry.kind in TRIVIAL else "other"
        if entry.name in tests and tests[entry.name]["p"] >= LEVEL:
            group = "not significantly different"
        groups[entry.name] = "best" if entry.name == best else group
    return groups


def _notes(comparison: Comparison, metrics: Sequence[str]) -> list[str]:
    entries, chosen_by = comparison.runs, ""
    tried = max((entry.tried for entry in entries if entry.name != TIMED_BASELINE), default=1)
    if tried > 1:
        metric = validation_metric(comparison.protocol or None, comparison.config.k)
        chosen_by = (
            f" Settings: the best of at most {tried} on validation data ({metric}). Minutes: all "
            "trials, fits and evaluations."
        )
    notes = [
        f"Held out: {comparison.split}.",
        legend(metrics, ERROR),
        _future_note(comparison),
        f"Best: * (bold); p: {comparison.metric} against the best model, Wilcoxon signed-rank with "
        "Holm's correction for all pairs; = (underlined or in italics): not significantly "
        f"different from the best at {LEVEL}.{chosen_by}",
    ]
    if stored := sum(entry.stored for entry in entries):
        cells = sum(entry.cells for entry in entries)
        notes.append(f"From the store of runs: {stored:,} of {cells:,} fits.")
    return [note for note in (*notes, *comparison.warnings) if note]


def _future_note(comparison: Comparison) -> str:
    """Report the share of recommended items newer than the held-out event; empty without times."""
    names = [name for name in comparison.runs[0].catalogue if name.startswith("future@")]
    if not names:
        return ""
    shares = {entry.name: 100 * entry.catalogue[names[0]] for entry in comparison.runs}
    shown = ", ".join(f"{name} {share:.1f} %" for name, share in shares.items())
    shown = shown if any(shares.values()) else "nothing"
    return f"Did not exist yet when the held-out event happened ({names[0]}): {shown}."


def _key_figures(results: Results, published: Table | None) -> dict[str, str]:
    facts = {}
    for comparison in results.tables:
        if comparison.runs:
            metric, best = comparison.metric, comparison.best(comparison.metric)
            mean = comparison.summaries[best][metric]["mean"]
            facts[f"best {metric} on {comparison.title}"] = f"{best} {mean:.4f}"
    if published is not None:
        reached = sum(row[-1] == "reached" for row in published.rows)
        facts["published values reached"] = f"{reached} of {len(published.rows)}"
    return facts


def _overview(tables: Sequence[Comparison]) -> Table:
    metric = tables[0].metric
    names = dict.fromkeys(entry.name for comparison in tables for entry in comparison.runs)
    rows: list[list[str | Cell]] = [
        [name, *(_metric_cell(each, each.named(name), metric) for each in tables)] for name in names
    ]
    columns = ["model", *(comparison.title for comparison in tables)]
    return Table(f"{metric} on all datasets", columns, rows)


def _tests_table(comparison: Comparison) -> Table:
    rows: list[list[str | Cell]] = [
        [
            name,
            f"{test['difference']:.4f}",
            f"{test['low']:.4f} to {test['high']:.4f}",
            f"{test['p']:.2g}",
            "significant" if test["p"] < LEVEL else Cell("not significant", "tied"),
        ]
        for name, test in comparison.tests_of_best.items()
    ]
    title = f"{comparison.best(comparison.metric)} against the other models, {comparison.metric}"
    columns = ["model", "difference", "95 % interval", "p, corrected", "verdict"]
    note = "Paired differences over users; the interval is that of a bootstrap."
    return Table(title, columns, rows, [note], align="lrrrl")


def published_table(results: Results) -> Table | None:
    """Return one row per published value that we have, with a verdict; None if there is none."""
    rows: list[list[str]] = []
    for comparison in results.tables:
        for entry in comparison.runs:
            printed = comparison.published(entry.name)
            for metric in [name for name in results.metrics if name in printed]:
                if metric not in entry.metrics:
                    continue
                published, ours = printed[metric], entry.metrics[metric]
                difference = ours["mean"] - published
                is_near = -difference < 2 * ours["se"]
                verdict = "within two standard errors" if is_near else "below"
                rows.append(
                    [
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
                )
    title = "Published values and ours"
    columns = ["model", "table", "metric", "published", "ours", "difference", "in %",
               "standard error", "verdict"]  # fmt: skip
    return Table(title, columns, rows, align="lllrrrrrl") if rows else None


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
        points={metric: published} if any(published) else None,
        groups=[groups[entry.name] for entry in ranked],
        colors=_GROUPS,
        title=f"{metric} on {comparison.title}, mean and standard error over users",
        axis=metric,
    )
    return [chart, *_heat_maps(comparison), *_curves(comparison)]


def _overview_chart(tables: Sequence[Comparison]) -> list[pages.Drawing]:
    """Draw the metric of two to four tables side by side."""
    if not 2 <= len(tables) <= 4:
        return []
    metric = tables[0].metric
    names = list(dict.fromkeys(entry.name for comparison in tables for entry in comparison.runs))

    def values(key: str) -> dict[str, list[float | None]]:
        return {
            table.title: [table.summaries.get(name, {}).get(metric, {}).get(key) for name in names]
            for table in tables
        }

    title = f"{metric} on all datasets, mean and standard error over users"
    return [pages.bars(names, values("mean"), errors=values("se"), title=title, axis=metric)]


def _curves(comparison: Comparison) -> list[pages.Drawing]:
    """Draw the validation metric by epoch, a few models per chart."""
    curves = {}
    for entry in comparison.runs:
        validated = [step for step in entry.curve if step["metric"] is not None]
        if len(validated) > 1:
            epochs, metrics = ([s[axis] for s in validated] for axis in ("epoch", "metric"))
            curves[entry.name] = epochs, metrics
    names, drawn = list(curves), []
    for start in range(0, len(names), len(pages.SERIES)):
        series = {name: curves[name] for name in names[start : start + len(pages.SERIES)]}
        best = {
            name: max(zip(*points, strict=True), key=lambda point: (point[1], -point[0]))
            for name, points in series.items()
        }
        title = f"Validation by epoch on {comparison.title}, first seed; selected epochs are ringed"
        y_axis = "validation metric"
        drawn.append(pages.lines(series, title=title, chosen=best, x_axis="epoch", y_axis=y_axis))
    return drawn


def _heat_maps(comparison: Comparison) -> list[pages.Drawing]:
    """Draw grids of two parameters: of models that differ in nothing else, and of trials."""
    metric = comparison.metric
    grids: dict[str, list[_Value]] = {}
    entries = [entry for entry in comparison.runs if metric in entry.metrics]
    for kind in dict.fromkeys(entry.kind for entry in entries):
        same = [entry for entry in entries if entry.kind == kind]
        grids[f"{metric} of {kind} on {comparison.title}"] = [
            (entry.parameters, entry.metrics[metric]["mean"]) for entry in same
        ]
    for entry in comparison.runs:
        tried = [(trial.parameters, trial.validation) for trial in entry.trials]
        grids[f"Validation of {entry.name} on {comparison.title}, by setting"] = tried
    return [drawing for title, cells in grids.items() for drawing in _grid(title, cells)]


def _grid(title: str, cells: Sequence[_Value]) -> list[pages.Drawing]:
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


def _ordered(values: Sequence[Any]) -> list[str]:
    is_number = all(isinstance(value, int | float) for value in values)
    return list(dict.fromkeys(map(str, sorted(values) if is_number else values)))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _mean_and_error(metric: Mapping[str, float] | None) -> str:
    return f"{metric['mean']:.4f} ± {metric['se']:.4f}" if metric else "-"


def _size(n_bytes: int) -> str:
    for unit, scale in (("GB", 2**30), ("MB", 2**20)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes / 2**10:.1f} kB"
