"""`transcf analyze` and `transcf report`: what a saved model has learned."""

from __future__ import annotations

from pathlib import Path

from transcf.cli import options, output
from transcf.errors import DataError, ParameterError


def analyze(
    folders: options.Argument[list[Path]],
    data: str | None = None,
    what: str = "all",
    user: str | None = None,
    out: Path | None = None,
    *,
    answer: output.Answer,
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
    with output.Steps(len(names), "analyses") as steps:
        if "all" in asked:
            found, missing = subject.all(steps.counted(names), steps.report)
        else:
            found, missing = [subject.analyze(name) for name in steps.counted(names)], {}
    if not found:
        raise DataError(next(iter(missing.values())))
    written = [] if out is None else [path for each in found for path in each.write(out)]
    facts = {
        "model": str(folders[0]),
        "analyses": [each.to_dict() for each in found],
        "missing": missing,
        "files": [str(path) for path in written],
    }
    done = [] if out is None else [f"Wrote {len(written)} files to {out}."]
    answer.show(facts, *(each.table for each in found), *_said_of(missing), *done)


def report(
    folder: options.ModelDir, out: Path, data: str | None = None, *, answer: output.Answer
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
    model = options.open_model(folder)
    with output.Steps(PARTS, "parts") as steps:
        page, missing = report_of(model, data, steps.begin)
        written = page.write(out)
    facts = {"report": str(out), "files": len(written)}
    table = output.facts_table(f"Wrote {out}", facts)
    answer.show({**facts, "missing": missing}, table, *_said_of(missing))


def _said_of(missing: dict[str, str]) -> list[str]:
    return [f"{name} is missing: {reason}" for name, reason in missing.items()]
