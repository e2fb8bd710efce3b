"""`transcf analyze` and `transcf report`: what a saved model has learned."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from transcf.cli import options, output
from transcf.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transcf.paper import Analysis


def analyze(
    folders: options.Argument[list[Path]],
    data: str | None = None,
    what: str = "all",
    user: str | None = None,
    out: Path | None = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Analyse the vectors of a saved model: tables, figures, JSON.

    Analyses: variety (ratings and categories of users), closer (do translations bring users closer
    to their items), rating and category (can they be predicted from vectors), map (t-SNE by
    category), likeness (of categories), tastes (of a user).

    Options:
        folders (DIR...): A saved model, and others fitted on the same data to compare it with.
        data (DATA): As for fit; by default the data the model was fitted on.
        what: Analyses separated by commas, or all.
        user: User id for the analysis tastes.
        out (FOLDER): Write tables (JSON, CSV) and figures (SVG) here.

    Example: transcf analyze my-model --what closer,map --out figures
    """
    from transcf.evaluation.results import number_repeats
    from transcf.paper.analysis import Subject, check_what

    asked = options.split_names(what) or []
    names = check_what(asked)
    output.check_folder(out)
    models = [options.open_model(place) for place in folders]
    log = options.open_data_of(models[0], folders[0], data)
    named = number_repeats(model.name for model in models)
    who = None if user is None else models[0].users_.parse(user)
    subject = Subject(dict(zip(named, models, strict=True)), log, user=who)
    with output.show_steps(len(names), "analyses") as steps:
        if "all" in asked:
            found, missing = subject.all(steps.counted(names), steps.report)
        else:
            found, missing = [subject.analyze(name) for name in steps.counted(names)], {}
    if not found:
        raise DataError(next(iter(missing.values())))
    written = [] if out is None else [path for each in found for path in each.write(out)]
    if as_json:
        facts = {"model": str(folders[0]), "analyses": [each.to_dict() for each in found]}
        output.print_json({**facts, "missing": missing, "files": [str(path) for path in written]})
        return
    print_analyses(found, missing)
    if out is not None:
        typer.echo(f"Wrote {len(written)} files to {out}.")


def report(
    folder: options.ModelDir, out: Path, data: str | None = None, as_json: options.JsonFlag = False
) -> None:
    """Write a report of a saved model.

    It has accuracy, example users, analyses and parameters. A model that was fitted on all events
    is evaluated by a copy with the same settings, fitted without the newest events.

    Options:
        data (DATA): As for fit; by default the data the model was fitted on.
        out: File: .html (self-contained), or .md with figures next to it.

    Example: transcf report my-model --out report.html
    """
    from transcf.experiments.pages import check_file
    from transcf.paper.model_report import PARTS, report_of

    check_file(out)
    if out.is_dir():
        raise ParameterError(f"--out {out} is a folder: name a file.")
    model, done = options.open_model(folder), itertools.count()
    with output.show_steps(PARTS, "parts") as steps:
        page, missing = report_of(model, data, lambda text: steps.reach(next(done), text))
        written = page.write(out)
    facts = {"report": str(out), "files": len(written)}
    if as_json:
        output.print_json({**facts, "missing": missing})
        return
    output.print_facts(f"Wrote {out}", facts)
    print_analyses((), missing)


def print_analyses(found: Iterable[Analysis], missing: dict[str, str]) -> None:
    """Print tables, and why others are missing."""
    for each in found:
        output.print_result(each.table)
    for name, reason in missing.items():
        typer.echo(f"{name} is missing: {reason}")
