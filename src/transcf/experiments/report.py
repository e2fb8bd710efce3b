"""What a comparison looks like: rows for a table, and a page in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transcf.data.report import counted, listed
from transcf.evaluation.metrics import is_beyond
from transcf.evaluation.significance import LEVEL
from transcf.evaluation.validation import validation_metric
from transcf.experiments.reports import write_page
from transcf.experiments.results import Results
from transcf.experiments.runs import TIMED_BASELINE, Run
from transcf.legend import ERROR, legend
from transcf.pages import Table

if TYPE_CHECKING:
    from transcf.experiments.comparison import Comparison


def table_of(comparison: Comparison) -> Table:
    """One row for each model: metrics with standard errors, the best marked, test, time, size."""
    if not comparison.runs:
        return Table(
            f"{comparison.dataset}: no model was run", ["model"], [], warnings_of(comparison)
        )
    judging, metric, first = comparison.judging, comparison.metric, comparison.runs[0]
    shown = _shown(comparison)
    searched = any(done.tried > 1 for done in comparison.runs)
    columns = ["model", *shown]
    columns += [f"{metric} in full ranking"] if first.full_ranking is not None else []
    columns += [f"p ({metric})", "fit seconds", "size"] + (["chosen"] if searched else [])
    title = (
        f"{comparison.dataset}: {judging.protocol} protocol, {judging.part}, "
        f"{counted(first.evaluations[0].users, 'user')}, {judging.ties} ties"
    )
    rows = [_row(comparison, done, shown, searched) for done in comparison.runs]
    return Table(title, columns, rows, _notes(comparison, shown))


def results_of(comparison: Comparison, command: str = "") -> Results:
    """Return a comparison as it is kept and reported, with the command that runs it again."""
    shown = _shown(comparison) if comparison.runs else [comparison.metric]
    return Results.of_comparison(comparison, shown, command)


def write_report(comparison: Comparison, folder: Path, command: str = "") -> tuple[list[Path], str]:
    """Write `comparison.html`, `comparison.md` with its figures, and `comparison.json`.

    Files of these names are replaced, each when the new one is whole; others stay.

    Args:
        comparison: What to write about.
        folder: Where.
        command: What runs it again.

    Returns:
        What was written, and what is missing from it in words, if anything is.
    """
    results = results_of(comparison, command)
    json_file = folder / "comparison.json"
    results.write(json_file)
    page, missing = write_page(results, folder / "comparison.html")
    markdown, _ = write_page(results, folder / "comparison.md")
    return [*page, *markdown, json_file], missing


def _shown(comparison: Comparison) -> list[str]:
    """Return what the columns of a table show: hits, NDCG, the tested metric, on request more.

    Beyond accuracy the first length is enough: these figures tell models apart at any.
    """
    first = comparison.runs[0]
    names = [name for name in first.summary() if name.startswith(("H@", "N@"))]
    names += [] if comparison.metric in names else [comparison.metric]
    if comparison.judging.beyond:
        n = comparison.judging.at[0]
        there = {*first.summary(), *first.catalogue()}
        more = ("AUC", f"novelty@{n}", f"ILD@{n}", f"coverage@{n}", f"gini@{n}")
        names += [name for name in more if name in there and name not in names]
    return names


def _row(comparison: Comparison, done: Run, shown: Sequence[str], searched: bool) -> list[str]:
    cells = [done.name]
    for name in shown:
        entry = comparison.summaries[done.name].get(name)
        if entry is None:
            cells.append(f"{done.catalogue()[name]:.4f}")
            continue
        # Lists can be too novel and too diverse: there is no best one.
        has_best = name in ("AUC", comparison.metric) or not is_beyond(name)
        mark = "*" if has_best and comparison.best(name) == done.name else " "
        cells.append(_figure(entry["mean"], entry["se"], mark))
    if done.full_ranking is not None:
        full = done.full_ranking.metrics[comparison.metric]
        cells.append(_figure(full.mean, full.se))
    p = comparison.p_values.get(done.name)
    cells.append("-" if p is None else f"{p:.2g}{' =' if p >= LEVEL else ''}")
    cells += [f"{done.seconds:.2f}", _size(done.first.n_bytes)]
    if searched:
        cells.append(", ".join(f"{key}={value}" for key, value in done.chosen.items()) or "default")
    return cells


def _figure(mean: float, error: float, mark: str = " ") -> str:
    return f"{mean:.4f}{mark} ± {error:.4f}"


def _size(n_bytes: int) -> str:
    for unit, scale in (("GB", 2**30), ("MB", 2**20)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes / 2**10:.1f} kB"


def _notes(comparison: Comparison, shown: Sequence[str]) -> list[str]:
    metric = comparison.metric
    tests = (
        f"Best: *; p: {metric} against {comparison.best(metric)}, Wilcoxon signed-rank with Holm's "
        f"correction for all pairs; = not told apart from the best at {LEVEL}."
    )
    tried = max((run.tried for run in comparison.runs if run.name != TIMED_BASELINE), default=1)
    if tried > 1:
        tests += f" Settings: the best of at most {tried} on validation data"
        judging = comparison.judging
        tests += f" ({validation_metric(judging.protocol, judging.at)})."
    held_out = f"Held out: {comparison.split}."
    future = future_note(comparison)
    said = [held_out, legend(shown, ERROR), future, tests, times_note(comparison)]
    return list(filter(None, [*said, stored_note(comparison), *warnings_of(comparison)]))


def times_note(comparison: Comparison) -> str:
    """Say who uses times where others, which could, were not asked to try; nothing elsewhere."""
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
        f"with --budget small, or say so with --set {others[0]}.recency=4."
    )


def future_note(comparison: Comparison) -> str:
    """Say how much of what is recommended did not exist yet; nothing where there are no times."""
    shares = {done.name: done.catalogue() for done in comparison.runs}
    names = {name for found in shares.values() for name in found if name.startswith("future@")}
    if not names:
        return ""
    name = min(names, key=lambda one: int(one.partition("@")[2]))
    said = ", ".join(f"{model} {100 * found[name]:.1f} %" for model, found in shares.items())
    if not any(found[name] for found in shares.values()):
        said = "nothing"
    return f"Did not exist yet when the held-out event happened ({name}): {said}."


def stored_note(comparison: Comparison) -> str:
    """Say how much of it was run before; nothing where all was run now."""
    cells, stored = (sum(getattr(run, n) for run in comparison.runs) for n in ("cells", "stored"))
    return f"From the store of runs: {stored:,} of {cells:,} fits." if stored else ""


def warnings_of(comparison: Comparison) -> list[str]:
    """What is missing from a comparison, and what belongs to its figures."""
    missing = [f"{name} is missing: {reason}" for name, reason in comparison.failures.items()]
    return [*missing, *dict.fromkeys(note for done in comparison.runs for note in done.notes())]
