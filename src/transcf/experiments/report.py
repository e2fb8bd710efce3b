"""Tables and reports of studies and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transcf.data.report import counted, listed
from transcf.errors import MissingExtraError
from transcf.evaluation.metrics import is_beyond
from transcf.evaluation.significance import LEVEL
from transcf.evaluation.validation import validation_metric
from transcf.experiments.figures import (
    BASELINE,
    BEST,
    OTHER,
    SERIES,
    TIED,
    Drawing,
    bars,
    heat_map,
    lines,
)
from transcf.experiments.page import Page
from transcf.experiments.results import Entry, Outcome, Results, facts_of
from transcf.experiments.run_result import TIMED_BASELINE
from transcf.legend import ERROR, legend
from transcf.protocols import PROTOCOLS
from transcf.tables import Cell, Table

if TYPE_CHECKING:
    from transcf.experiments.comparison import Comparison

#: Groups of models in bar charts and their colours.
_GROUPS = {
    "best": BEST,
    "not significantly different": TIED,
    "other": OTHER,
    "trivial baseline": BASELINE,
}


def table_of(comparison: Comparison) -> Table:
    """Return the table of a comparison."""
    outcome = Outcome.of(facts_of(comparison))
    return metrics_table(outcome, shown_metrics(outcome), [_times_note(comparison)])


def results_of(comparison: Comparison, command: str = "") -> Results:
    """Return the results of a comparison with the command that runs it again."""
    facts = facts_of(comparison)
    metrics = shown_metrics(Outcome.of(facts))
    title = f"Models on {comparison.dataset}"
    return Results.of("comparison", title, metrics, [facts], command)


def write_report(comparison: Comparison, folder: Path, command: str = "") -> tuple[list[Path], str]:
    """Write `comparison.html`, `comparison.md` with its charts, and `comparison.json`.

    Returns the same as `write_page`.
    """
    results = results_of(comparison, command)
    results.write(folder / "comparison.json")
    written, missing = write_page(results, folder / "comparison.html", folder / "comparison.md")
    return [*written, folder / "comparison.json"], missing


def write_page(results: Results, *paths: Path) -> tuple[list[Path], str]:
    """Write the report to files in the formats of their suffixes.

    Without matplotlib there are no charts; without Jinja2 HTML files are left out.

    Returns:
        The files written, and the message about a missing extra, if one is.
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


def page_of(results: Results, *, figures: bool = True) -> Page:
    """Make the report, with or without charts.

    Raises:
        MissingExtraError: `figures` is true and matplotlib is not installed.
    """
    outcomes = results.outcomes
    models = {entry.name for outcome in outcomes for entry in outcome.entries}
    names = listed(list(dict.fromkeys(outcome.dataset for outcome in outcomes)))
    page = Page(results.title, f"{counted(len(models), 'model')} on {names}.")
    published = _published_rows(results)
    summary = page.section("Summary").add("facts", _key_figures(results, published))
    if not figures:
        summary.add("note", "This report has no charts: they need 'transcf[plots]'.")
    if len(outcomes) > 1:
        metric = outcomes[0].metric
        section = page.section("All datasets").add("table", _overview(outcomes, metric))
        section.add("figures", _overview_chart(outcomes, metric) if figures else [])
    for outcome in outcomes:
        section = page.section(outcome.title)
        for table in _metrics_and_training(metrics_table(outcome, results.metrics)):
            section.add("table", table)
        section.add("figures", charts_of(outcome) if figures and outcome.entries else [])
        if outcome.tests:
            section.add("table", _tests_table(outcome))
    if published:
        columns = ["model", "table", "metric", "published", "ours", "difference", "in %",
                   "standard error", "verdict"]  # fmt: skip
        title = "Published values and ours"
        page.section(title).add("table", Table(title, columns, published, align="lllrrrrrl"))
    used = dict.fromkeys(outcome.protocol for outcome in outcomes)
    rules = [PROTOCOLS[name] for name in used if name in PROTOCOLS]
    section = page.section("Protocol and command")
    section.add("list", [f"{one.name}: {one.meaning}." for one in rules])
    section.add("code", results.command).add("text", f"Written by transcf {results.version}.")
    return page


def shown_metrics(outcome: Outcome) -> list[str]:
    """Return the metrics of a comparison's table: hit rate, NDCG, the tested one, and others.

    Beyond accuracy the first list length is enough.
    """
    if not outcome.entries:
        return [outcome.metric]
    first = outcome.entries[0]
    names = [name for name in first.metrics if name.startswith(("HitRate@", "NDCG@"))]
    names += [] if outcome.metric in names else [outcome.metric]
    if any(map(is_beyond, first.metrics)):
        n = _lengths(first)[0]
        more = ("AUC", f"novelty@{n}", f"ILD@{n}", f"coverage@{n}", f"gini@{n}")
        there = {*first.metrics, *first.catalogue} - set(names)
        names += [name for name in more if name in there]
    return names


def metrics_table(outcome: Outcome, metrics: Sequence[str], notes: Sequence[str] = ()) -> Table:
    """Return one row per model, followed by its published values.

    The tested metric is added to `metrics`; `notes` are further notes.
    """
    if not outcome.entries:
        return Table(f"{outcome.dataset}: no model was run", ["model"], [], outcome.warnings)
    entries, metric = outcome.entries, outcome.metric
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
        cells = _cells(outcome, entry, metrics)
        rows.append([cells[column] for column in columns])
        if entry.published:
            printed = {name: _number(entry.published.get(name)) for name in metrics}
            printed["model"] = "  as published"
            rows.append([Cell(printed.get(column, ""), "muted") for column in columns])
    title = f"{outcome.dataset}: {outcome.protocol} protocol, {outcome.subset}, "
    title += counted(max(entry.users for entry in entries), "user")
    title += f", {outcome.ties} ties" if outcome.ties else ""
    return Table(title, columns, rows, _notes(outcome, metrics, notes))


def _metrics_and_training(table: Table) -> list[Table]:
    """Split the table of an outcome, which is too wide for a page, after the column of p."""
    if not table.rows:
        return [table]
    n = 1 + next(n for n, name in enumerate(table.columns) if name.startswith("p ("))
    metrics = replace(table, columns=table.columns[:n], rows=[row[:n] for row in table.rows])
    training = [[row[0], *row[n:]] for row in table.rows if isinstance(row[0], str)]
    columns = [table.columns[0], *table.columns[n:]]
    return [metrics, Table("Training and selection", columns, training)]


def _cells(outcome: Outcome, entry: Entry, metrics: Sequence[str]) -> dict[str, str | Cell]:
    """Return the cells of a model by column."""
    metric, tests = outcome.metric, outcome.tests_of_best()
    p = tests[entry.name]["p"] if entry.name in tests else None
    return {
        "model": entry.name,
        **{name: _metric_cell(outcome, entry, name) for name in metrics},
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


def _metric_cell(outcome: Outcome, entry: Entry | None, metric: str) -> Cell:
    """Return mean and standard error; the best and ties with it are marked."""
    if entry is None or metric not in entry.metrics:
        return Cell(_number(entry.catalogue.get(metric) if entry else None))
    group = groups_of(outcome, metric)[entry.name]
    # Larger is not better for novelty and diversity.
    if is_beyond(metric) and metric not in ("AUC", outcome.metric):
        group = ""
    is_tied = group == "not significantly different"
    text = _mean_and_error(entry.metrics[metric])
    return Cell(text, "best" if group == "best" else "tied" if is_tied else "")


def groups_of(outcome: Outcome, metric: str) -> dict[str, str]:
    """Return the group of each model in charts of a metric."""
    best = outcome.best(metric)
    tests = outcome.tests_of_best() if outcome.metric == metric else {}
    groups = {}
    for entry in outcome.entries:
        group = "trivial baseline" if entry.is_trivial else "other"
        if entry.name in tests and tests[entry.name]["p"] >= LEVEL:
            group = "not significantly different"
        groups[entry.name] = "best" if entry is best else group
    return groups


def _notes(outcome: Outcome, metrics: Sequence[str], more: Sequence[str]) -> list[str]:
    entries = outcome.entries
    tests = (
        f"Best: * (bold); p: {outcome.metric} against the best model, Wilcoxon signed-rank with "
        "Holm's correction for all pairs; = (underlined or in italics): not significantly "
        f"different from the best at {LEVEL}."
    )
    tried = max((entry.tried for entry in entries if entry.name != TIMED_BASELINE), default=1)
    if tried > 1:
        chosen_by = validation_metric(outcome.protocol or None, _lengths(entries[0]))
        tests += f" Settings: the best of at most {tried} on validation data ({chosen_by})."
        tests += " Minutes: all trials, fits and evaluations."
    notes = [f"Held out: {outcome.split}.", legend(metrics, ERROR), _future_note(outcome), tests]
    return list(filter(None, [*notes, *more, stored_note(outcome), *outcome.warnings]))


def _times_note(comparison: Comparison) -> str:
    """Warn if some models use event times and others that could do not."""
    able = {
        done.name: done.first.times
        for done in comparison.runs
        if done.first.times is not None and (done.tried == 1 or done.first.times)
    }
    using = [name for name, uses in able.items() if uses]
    others = [name for name, uses in able.items() if not uses]
    if not using or not others:
        return ""
    return (
        f"Times of events are used by {listed(using)} and not by {listed(others)}: let all try it "
        f"with --budget small, or set it with --set {others[0]}.recency=4."
    )


def _future_note(outcome: Outcome) -> str:
    """Report the share of recommended items newer than the held-out event; empty without times."""
    names = [name for name in outcome.entries[0].catalogue if name.startswith("future@")]
    if not names:
        return ""
    shares = {entry.name: 100 * entry.catalogue[names[0]] for entry in outcome.entries}
    shown = ", ".join(f"{name} {share:.1f} %" for name, share in shares.items())
    shown = shown if any(shares.values()) else "nothing"
    return f"Did not exist yet when the held-out event happened ({names[0]}): {shown}."


def stored_note(outcome: Outcome) -> str:
    """Report how many fits come from the store of runs; empty if none does."""
    stored = sum(entry.stored for entry in outcome.entries)
    cells = sum(entry.cells for entry in outcome.entries)
    return f"From the store of runs: {stored:,} of {cells:,} fits." if stored else ""


def _key_figures(results: Results, published: Sequence[Sequence[str]]) -> dict[str, str]:
    facts = {}
    for outcome in results.outcomes:
        if (best := outcome.best(outcome.metric)) is not None:
            mean = best.metrics[outcome.metric]["mean"]
            facts[f"best {outcome.metric} on {outcome.title}"] = f"{best.name} {mean:.4f}"
    if published:
        reached = sum(row[-1] == "reached" for row in published)
        facts["published values reached"] = f"{reached} of {len(published)}"
    return facts


def _overview(outcomes: Sequence[Outcome], metric: str) -> Table:
    names = dict.fromkeys(entry.name for outcome in outcomes for entry in outcome.entries)
    rows: list[list[str | Cell]] = [
        [name, *(_metric_cell(outcome, outcome.entry(name), metric) for outcome in outcomes)]
        for name in names
    ]
    columns = ["model", *(outcome.title for outcome in outcomes)]
    return Table(f"{metric} on all datasets", columns, rows)


def _tests_table(outcome: Outcome) -> Table:
    rows: list[list[str | Cell]] = [
        [
            name,
            f"{test['difference']:.4f}",
            f"{test['low']:.4f} to {test['high']:.4f}",
            f"{test['p']:.2g}",
            "significant" if test["p"] < LEVEL else Cell("not significant", "tied"),
        ]
        for name, test in outcome.tests_of_best().items()
    ]
    best = outcome.best(outcome.metric)
    title = f"{best.name if best else 'The best'} against the other models, {outcome.metric}"
    columns = ["model", "difference", "95 % interval", "p, corrected", "verdict"]
    note = "Paired differences over users; the interval is that of a bootstrap."
    return Table(title, columns, rows, [note], align="lrrrl")


def _published_rows(results: Results) -> list[list[str]]:
    """Return one row per published value that we have, with a verdict at the end."""
    rows = []
    for outcome in results.outcomes:
        for entry in outcome.entries:
            for metric in results.metrics:
                if metric not in entry.published or metric not in entry.metrics:
                    continue
                published, ours = entry.published[metric], entry.metrics[metric]
                difference = ours["mean"] - published
                is_near = -difference < 2 * ours["se"]
                shortfall = "within two standard errors" if is_near else "below"
                percent = f"{100 * difference / published:+.1f} %" if published else "-"
                rows.append(
                    [entry.name, outcome.title, metric, _number(published), _number(ours["mean"]),
                     f"{difference:+.4f}", percent, _number(ours["se"]),
                     "reached" if difference >= 0 else shortfall]
                )  # fmt: skip
    return rows


def charts_of(outcome: Outcome) -> list[Drawing]:
    """Draw the tested metric of all models, grids of settings, and learning curves."""
    return [_bars(outcome), *_heat_maps(outcome), *_curves(outcome)]


def _bars(outcome: Outcome) -> Drawing:
    metric = outcome.metric
    able = [entry for entry in outcome.entries if metric in entry.metrics]
    ranked = sorted(able, key=lambda entry: -entry.metrics[metric]["mean"])
    groups = groups_of(outcome, metric)
    published = [entry.published.get(metric) for entry in ranked]
    return bars(
        [entry.name for entry in ranked],
        {metric: [entry.metrics[metric]["mean"] for entry in ranked]},
        errors={metric: [entry.metrics[metric]["se"] for entry in ranked]},
        points={metric: published} if any(published) else None,
        groups=[groups[entry.name] for entry in ranked],
        colors=_GROUPS,
        title=f"{metric} on {outcome.title}, mean and standard error over users",
        axis=metric,
    )


def _overview_chart(outcomes: Sequence[Outcome], metric: str) -> list[Drawing]:
    """Draw a metric of two to four tables side by side."""
    if not 2 <= len(outcomes) <= 4:
        return []
    names = list(dict.fromkeys(entry.name for outcome in outcomes for entry in outcome.entries))

    def values(key: str) -> dict[str, list[float | None]]:
        found = {outcome.title: [outcome.entry(name) for name in names] for outcome in outcomes}
        return {
            title: [entry.metrics.get(metric, {}).get(key) if entry else None for entry in entries]
            for title, entries in found.items()
        }

    title = f"{metric} on all datasets, mean and standard error over users"
    return [bars(names, values("mean"), errors=values("se"), title=title, axis=metric)]


def _curves(outcome: Outcome) -> list[Drawing]:
    """Draw the validation metric by epoch, a few models per chart."""
    curves = {
        entry.name: ([s["epoch"] for s in entry.curve], [s["metric"] for s in entry.curve])
        for entry in outcome.entries
        if len(entry.curve) > 1
    }
    names, drawn = list(curves), []
    for start in range(0, len(names), len(SERIES)):
        series = {name: curves[name] for name in names[start : start + len(SERIES)]}
        best = {
            name: max(zip(*points, strict=True), key=lambda point: (point[1], -point[0]))
            for name, points in series.items()
        }
        title = f"Validation by epoch on {outcome.title}, first seed; selected epochs are ringed"
        y_axis = "validation metric"
        drawn.append(lines(series, title=title, chosen=best, x_axis="epoch", y_axis=y_axis))
    return drawn


def _heat_maps(outcome: Outcome) -> list[Drawing]:
    """Draw grids of two parameters: of models that differ in nothing else, and of trials."""
    metric, grids = outcome.metric, {}
    entries = [entry for entry in outcome.entries if metric in entry.metrics]
    for kind in dict.fromkeys(entry.kind for entry in entries):
        alike = [(one.parameters, one.mean(metric)) for one in entries if one.kind == kind]
        grids[f"{metric} of {kind} on {outcome.title}"] = alike
    for entry in outcome.entries:
        tried = [(trial["parameters"], trial["validation"]) for trial in entry.trials]
        grids[f"Validation of {entry.name} on {outcome.title}, by setting"] = tried
    return [drawing for title, cells in grids.items() for drawing in _grid(title, cells)]


def _grid(title: str, cells: Sequence[tuple[Mapping[str, Any], float | None]]) -> list[Drawing]:
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
    return [heat_map(rows, columns, values, title=title, row_axis=free[0], column_axis=free[1])]


def _ordered(values: Sequence[Any]) -> list[str]:
    """Return the different values as text, in order if all are numbers."""
    is_number = all(isinstance(value, int | float) for value in values)
    return list(dict.fromkeys(map(str, sorted(values) if is_number else values)))


def _lengths(entry: Entry) -> tuple[int, ...]:
    """Return the list lengths of the metrics, in their order."""
    return tuple(
        dict.fromkeys(int(name.partition("@")[2]) for name in entry.metrics if "@" in name)
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _mean_and_error(metric: Mapping[str, float] | None) -> str:
    return f"{metric['mean']:.4f} ± {metric['se']:.4f}" if metric else "-"


def _size(n_bytes: int) -> str:
    for unit, scale in (("GB", 2**30), ("MB", 2**20)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes / 2**10:.1f} kB"
