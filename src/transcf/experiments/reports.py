"""The page of a study or a comparison: summary, tables, figures, budget, how to run it again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transcf.data.report import counted, listed
from transcf.errors import MissingExtraError
from transcf.evaluation.significance import LEVEL
from transcf.experiments import sentences
from transcf.experiments.drawings import bars_of, bars_of_all, curves_of, heat_maps_of, roles_of
from transcf.experiments.results import Entry, Outcome, Results
from transcf.legend import ERROR, legend
from transcf.pages import Cell, Page, Section, Table
from transcf.pages.tables import Mark
from transcf.protocols import PROTOCOLS


def page_of(results: Results, *, figures: bool = True) -> Page:
    """Put the report together.

    Args:
        results: What came of a study or a comparison.
        figures: Whether to draw.

    Raises:
        MissingExtraError: Figures are asked for, and matplotlib is not installed.
    """
    page = Page(results.title, _lead(results))
    summary = page.section("Summary")
    summary.key_figures(_key_figures(results)).bullets(sentences.summary(results))
    if not figures:
        summary.note("This report was written without figures: they need 'transcf[plots]'.")
    if len(results.outcomes) > 1:
        _overview(page.section("All tables"), results, figures)
    for outcome in results.outcomes:
        _outcome(page.section(_heading(outcome)), results, outcome, figures)
    if sentences.reproduced(results):
        _published(page.section("Published figures and ours"), results)
    _budget(page.section("Budget"), results)
    _reading(page.section("How to read it, and how to run it again"), results)
    return page


def write_page(results: Results, path: Path) -> tuple[list[Path], str]:
    """Write the report to a file by its ending, without figures where matplotlib is missing.

    Returns:
        What was written, and what is missing from it in words, if anything is.
    """
    try:
        return page_of(results).write(path), ""
    except MissingExtraError as missing:
        return page_of(results, figures=False).write(path), str(missing)


def _lead(results: Results) -> str:
    names = listed(list(dict.fromkeys(outcome.dataset for outcome in results.outcomes)))
    models = {entry.name for outcome in results.outcomes for entry in outcome.entries}
    parts = listed(sorted({outcome.part for outcome in results.outcomes}))
    return f"{counted(len(models), 'model')} on {names}; figures of the {parts} part."


def _key_figures(results: Results) -> dict[str, str]:
    """The best of each table, and how many published figures are reached."""
    found = {}
    for outcome in results.outcomes:
        best = outcome.best(outcome.metric)
        if best is not None:
            figure = best.metrics[outcome.metric]["mean"]
            found[f"best {outcome.metric} on {outcome.title}"] = f"{best.name} {figure:.4f}"
    beside = sentences.reproduced(results)
    if beside:
        reached = sum(one.verdict == "reached" for one in beside)
        found["published figures reached"] = f"{reached} of {len(beside)}"
    return found


def _heading(outcome: Outcome) -> str:
    return ", protocol ".join(filter(None, [outcome.dataset, outcome.protocol]))


def _overview(section: Section, results: Results, figures: bool) -> None:
    """One column for each table, by the tested metric of the first."""
    metric = results.outcomes[0].metric
    outcomes = [outcome for outcome in results.outcomes if outcome.best(metric) is not None]
    names = list(dict.fromkeys(entry.name for outcome in outcomes for entry in outcome.entries))
    rows: list[list[str | Cell]] = [
        [name, *(_marked(outcome, outcome.entry(name), metric) for outcome in outcomes)]
        for name in names
    ]
    columns = ["model", *(outcome.title for outcome in outcomes)]
    section.table(Table(f"{metric} in every table", columns, rows, [_MARKS]))
    drawing = bars_of_all(results, metric) if figures else None
    if drawing is not None:
        section.figure(drawing)


#: Below tables with marks.
_MARKS = "Bold: the best of a column; underlined: not told apart from the best by the paired test."


def _outcome(section: Section, results: Results, outcome: Outcome, figures: bool) -> None:
    """The table of one dataset and protocol, its figures and its tests."""
    if not outcome.entries:
        section.note("No model was run here.").bullets(_missing(outcome))
        return
    section.table(_table(results, outcome))
    if figures:
        section.figure(bars_of(outcome, outcome.metric))
        for drawing in (*heat_maps_of(outcome, outcome.metric), *curves_of(outcome)):
            section.figure(drawing)
    if outcome.tests:
        section.table(_tests(outcome))
    absent = [*_missing(outcome), *outcome.notes]
    if absent:
        section.heading("What belongs to these figures").bullets(absent)


def _missing(outcome: Outcome) -> list[str]:
    return [f"{name} is missing: {reason}" for name, reason in outcome.failures.items()]


def _table(results: Results, outcome: Outcome) -> Table:
    """One row for each model, and one below it where there are published figures."""
    metrics = [name for name in results.metrics if outcome.best(name) is not None]
    metrics += [] if outcome.metric in metrics else [outcome.metric]
    sampled = any(entry.full_ranking for entry in outcome.entries)
    columns = ["model", *metrics, *([f"{outcome.metric} in full ranking"] if sampled else [])]
    columns += ["spread of seeds", "validation", "chosen"]
    p_values = outcome.against_best()
    columns.insert(-3, f"p ({outcome.metric})")
    rows: list[list[str | Cell]] = []
    for entry in outcome.entries:
        figures = [_marked(outcome, entry, name) for name in metrics]
        full = entry.full_ranking.get(outcome.metric)
        p = p_values.get(entry.name)
        rows.append(
            [
                entry.name,
                *figures,
                *([f"{full['mean']:.4f}" if full else "-"] if sampled else []),
                "-" if p is None else f"{p:.2g}",
                f"{entry.metrics[outcome.metric]['sd']:.4f}" if entry.runs > 1 else "-",
                "-" if entry.validation is None else f"{entry.validation:.4f}",
                _settings(entry),
            ]
        )
        if entry.published:
            printed = [entry.published.get(name) for name in metrics]
            cells = [Cell("-" if one is None else f"{one:.4f}", "quiet") for one in printed]
            rest = [Cell("", "quiet")] * (len(columns) - len(metrics) - 1)
            rows.append([Cell("as published", "quiet"), *cells, *rest])
    users = max(entry.users for entry in outcome.entries)
    title = f"{outcome.title}: {outcome.part}, {counted(users, 'user')}"
    test = (
        f"p: against the best by {outcome.metric}, Wilcoxon signed-rank, Holm's correction for all "
        "pairs. Spread of seeds: standard deviation of their means."
    )
    return Table(title, columns, rows, [_MARKS, test, sentences.about_seeds(outcome.entries)])


def _marked(outcome: Outcome, entry: Entry | None, metric: str) -> Cell:
    """A figure with its standard error, the best marked."""
    if entry is None or metric not in entry.metrics:
        return Cell("-")
    role = roles_of(outcome, metric)[entry.name]
    mark: Mark = "best" if role == "best" else "alike" if role == "alike" else ""
    figure = entry.metrics[metric]
    return Cell(f"{figure['mean']:.4f} ± {figure['se']:.4f}", mark)


def _settings(entry: Entry) -> str:
    chosen = ", ".join(f"{name}={value}" for name, value in entry.chosen.items())
    return chosen or ("as set" if entry.tried == 1 else "default")


def _tests(outcome: Outcome) -> Table:
    """The best against every other model: difference, interval, and whether it is one."""
    best = outcome.best(outcome.metric)
    rows: list[list[str | Cell]] = []
    for test in outcome.tests:
        pair = (test["model_a"], test["model_b"])
        if best is None or best.name not in pair:
            continue
        sign = 1 if pair[0] == best.name else -1
        low, high = sorted((sign * test["ci_low"], sign * test["ci_high"]))
        p = test["p_holm"]
        rows.append(
            [
                pair[sign == 1],
                f"{sign * test['difference']:.4f}",
                f"{low:.4f} to {high:.4f}",
                f"{p:.2g}",
                "told apart" if p < LEVEL else Cell("not told apart", "alike"),
            ]
        )
    name = "the best" if best is None else best.name
    title = f"{name} against the others, {outcome.metric}"
    columns = ["model", "difference", "95 % interval", "p, corrected", "verdict"]
    note = (
        "Differences over the same users, intervals by bootstrap; p by Wilcoxon's signed-rank test "
        f"with Holm's correction for all {counted(len(outcome.tests), 'pair')}, which goes by "
        "users rather than by amounts, so that it may tell apart what the interval does not."
    )
    return Table(title, columns, rows, [note], align="lrrrl")


def _published(section: Section, results: Results) -> None:
    rows: list[list[str | Cell]] = [
        [
            one.model,
            one.outcome,
            one.metric,
            f"{one.published:.4f}",
            f"{one.ours:.4f}",
            f"{one.difference:+.4f}",
            f"{100 * one.difference / one.published:+.1f} %" if one.published else "-",
            f"{one.error:.4f}",
            one.verdict,
        ]
        for one in sentences.reproduced(results)
    ]
    columns = ["model", "table", "metric", "published", "ours", "difference", "in %",
               "standard error", "verdict"]  # fmt: skip
    note = (
        "Reached: ours is at least as high. A shortfall of less than two standard errors over "
        "users cannot be told from luck."
    )
    section.table(Table("Ours beside what was published", columns, rows, [note], "lllrrrrrl"))


def _budget(section: Section, results: Results) -> None:
    """Settings, seeds and time of every model."""
    rows: list[list[str | Cell]] = [
        [
            entry.name,
            outcome.title,
            f"{entry.tried:,}",
            f"{entry.runs:,}",
            f"{entry.seconds:.2f}",
            "not kept" if entry.spent is None else f"{entry.spent / 60:.2f}",
        ]
        for outcome in results.outcomes
        for entry in outcome.entries
    ]
    columns = ["model", "table", "settings tried", "seeds", "seconds of a fit", "minutes in all"]
    note = "Minutes in all: trials, fits with every seed, and judging, where it was run."
    section.text(sentences.about_budget(results))
    section.table(Table("What every model was given", columns, rows, [note], "llrrrr"))


def _reading(section: Section, results: Results) -> None:
    """What names mean, what was held out, and the command."""
    shown = [*results.metrics, *(outcome.metric for outcome in results.outcomes)]
    section.text(legend(dict.fromkeys(shown), ERROR))
    section.bullets(_rules(results.outcomes))
    if results.command:
        section.code(results.command)
    section.text(f"Written by transcf {results.version}.")


def _rules(outcomes: Sequence[Outcome]) -> list[str]:
    said = []
    for outcome in outcomes:
        rules = PROTOCOLS.get(outcome.protocol)
        meaning = f" {rules.name}: {rules.meaning}." if rules else ""
        said.append(f"{outcome.title}: held out: {outcome.split}.{meaning}")
    return said
