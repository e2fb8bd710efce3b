"""`transcf analyze`: what the vectors of a saved model encode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._options import (
    ReadingOptions,
    Threads,
    open_model,
    reading_options,
)
from transcf.cli._output import JsonFlag, print_json, print_table
from transcf.cli._progress import show_steps
from transcf.cli.recommend import Folder
from transcf.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transcf.data.interactions import Interactions
    from transcf.models.base import Recommender
    from transcf.paper import Analysis

#: Below the options in `--help`; a test compares it with what there is.
EPILOG = (
    "Analyses: variety (ratings and categories of users), closer (do translations bring users "
    "closer to their items), rating and category (do vectors tell them), map (t-SNE by category), "
    "likeness (of categories), tastes (of a user), toy (the idea on made-up data)."
)
#: DATA of commands about a saved model, which mostly knows it.
OfModel = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DATA", help="As for fit; the data that the model notes unless given."
    ),
]


@reading_options
def analyze(
    folder: Folder,
    data: OfModel = None,
    what: Annotated[
        str, typer.Option(help="Analyses with commas between them, or all; see below.")
    ] = "all",
    beside: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Another saved model, fitted on the same; repeatable."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Whose tastes to show, by id.")] = None,
    pairs: Annotated[
        int, typer.Option(min=10, help="Most pairs that random forests look at.")
    ] = 2000,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write tables (JSON, CSV) and figures (SVG) here."),
    ] = None,
    *,
    reading: ReadingOptions,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.")] = 0,
    threads: Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what the vectors of the model in DIR encode: tables, figures, JSON."""
    from transcf.paper.analysis import WHAT, Subject, check_what

    asked = [name.strip() for name in what.split(",")]
    names = check_what(asked)
    if out is not None and out.exists() and not out.is_dir():
        raise ParameterError(f"--out {out} is a file: name a folder.")
    from transcf.evaluation.results import number_repeats

    models = [open_model(place) for place in (folder, *(beside or ()))]
    log = data_of(models[0], folder, data, reading)
    named = number_repeats(model.name for model in models)
    who = None if user is None else models[0].users_.parse(user)
    subject = Subject(
        dict(zip(named, models, strict=True)), log, user=who, number=pairs, random_state=seed
    )
    with show_steps(len(names), "analyses") as steps:
        if "all" in asked:
            found, missing = subject.all(steps.counted(names), steps.report)
        else:
            found, missing = [], {}
            for name in steps.counted(names):
                steps.report(WHAT[name])
                found.append(subject.analyze(name))
    if not found:
        raise DataError(next(iter(missing.values())))
    written = [] if out is None else [path for each in found for path in each.write(out)]
    if as_json:
        print_json(_as_json(folder, found, missing, written))
    else:
        print_analyses(found, missing)
        if out is not None:
            typer.echo(f"Wrote {len(written)} files to {out}.")


def data_of(
    model: Recommender[Any], folder: Path, data: str | None, reading: ReadingOptions
) -> Interactions:
    """Open the data that a saved model notes, or other data that is named."""
    from transcf.data.readers import open_data

    if data is not None:
        return open_data(data, **reading)
    if reading:
        raise ParameterError("Options of reading data need --data.")
    origin = model.report_
    if "dataset" not in origin:
        raise ParameterError(
            f"{folder} does not say what it was fitted on: name it with --data DATA."
        )
    return open_data(origin["dataset"], **origin.get("reading", {}))


def print_analyses(found: Iterable[Analysis], missing: dict[str, str]) -> None:
    """Print tables, and why others are missing."""
    for each in found:
        table = each.table
        print_table(table.title, table.columns, table.rows, notes=table.notes)
    for name, reason in missing.items():
        typer.echo(f"{name} is missing: {reason}")


def _as_json(
    folder: Path, found: Iterable[Analysis], missing: dict[str, str], written: list[Path]
) -> dict[str, Any]:
    return {
        "model": str(folder),
        "analyses": [each.to_dict() for each in found],
        "missing": missing,
        "files": [str(path) for path in written],
    }
