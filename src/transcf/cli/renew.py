"""`transcf refit` and `transcf partial-fit`: a saved model learns from new events."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from transcf.cli._options import (
    INTERRUPTED,
    Categories,
    Columns,
    Data,
    Encoding,
    MinRating,
    NoHeader,
    Ratings,
    Separator,
    Threads,
    absolute_name,
    parse_reading,
)
from transcf.cli._output import JsonFlag, show_saved
from transcf.errors import ParameterError, UnsupportedError

Model: TypeAlias = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A saved model.", show_default=False)
]
Out: TypeAlias = Annotated[
    Path | None, typer.Option(help="Folder for the new model; MODEL stays as it is.")
]
Overwrite: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace MODEL (or what is in --out), in one step when the new one is whole.",
    ),
]


def refit(
    folder: Model,
    data: Data,
    out: Out = None,
    overwrite: Overwrite = False,
    columns: Columns = None,
    ratings: Ratings = None,
    min_rating: MinRating = None,
    no_header: NoHeader = False,
    separator: Separator = None,
    encoding: Encoding = None,
    categories: Categories = None,
    threads: Threads = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after an interruption.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Fit the settings of MODEL anew on all events of DATA, up to the epoch that was chosen.

    Until the new model is whole, the old one stays. Ctrl-C changes nothing, keeps a checkpoint
    beside the new folder for --resume, and ends with 130.
    """
    from transcf.data.sources import open_data
    from transcf.models.registry import load
    from transcf.training.options import FitOptions

    target = _target(folder, out, overwrite)
    model = load(folder)
    reading = parse_reading(
        columns, ratings, min_rating, no_header, separator, encoding, categories
    )
    log, before = open_data(data, **reading), model.report_
    checkpoints = target.with_name(f"{target.name}.refit-checkpoint")
    if resume and not checkpoints.exists():
        typer.echo(f"transcf: {checkpoints} holds no checkpoint: starting anew.", err=True)
    # A checkpoint is that of this command alone: without --resume it is of no use any more.
    options = FitOptions(checkpoint=checkpoints, resume=resume, fresh=not resume)
    epoch = model.best_epoch_
    model.refit(log, options)
    if model.report_.get("ending") == "interrupted":
        typer.echo(
            f"transcf: interrupted; {folder} is as it was, and the same command with --resume "
            "goes on.",
            err=True,
        )
        raise typer.Exit(INTERRUPTED)
    chosen = "" if epoch is None else f", up to epoch {epoch}, which was chosen before"
    model.report_ |= {key: before[key] for key in ("protocol", "split_seed") if key in before}
    model.report_ |= {"fitted_on": f"all {len(log):,} events{chosen}", "held_out": False}
    model.report_["dataset"] = absolute_name(data)
    if reading:
        model.report_["reading"] = reading
    model.save(target, overwrite=overwrite)
    show_saved(model, target, as_json)
    shutil.rmtree(checkpoints, ignore_errors=True)


def partial_fit(
    folder: Model,
    data: Data,
    out: Out = None,
    overwrite: Overwrite = False,
    columns: Columns = None,
    ratings: Ratings = None,
    min_rating: MinRating = None,
    no_header: NoHeader = False,
    separator: Separator = None,
    encoding: Encoding = None,
    threads: Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Add the events of DATA to MODEL without training it anew; for models that can.

    Until the larger model is whole, the old one stays.
    """
    from transcf.data.sources import open_data
    from transcf.models.registry import load

    target = _target(folder, out, overwrite)
    model = load(folder)
    add = getattr(model, "partial_fit", None)
    if add is None:
        raise UnsupportedError(
            f"{type(model).__name__} cannot take in events without learning anew: use `transcf "
            f"refit {folder}` with all events."
        )
    reading = parse_reading(columns, ratings, min_rating, no_header, separator, encoding)
    log, before = open_data(data, **reading), dict(model.report_)
    add(log)
    fitted_on = before.get("fitted_on", f"{before['interactions']:,} events")
    model.report_["fitted_on"] = f"{fitted_on}; then {absolute_name(data)} was added"
    model.report_["held_out"] = False
    added = {
        f"new_{what}": model.report_[what] - before[what]
        for what in ("users", "items", "interactions")
    }
    model.save(target, overwrite=overwrite)
    show_saved(model, target, as_json, {"events": len(log), **added})


def _target(folder: Path, out: Path | None, overwrite: bool) -> Path:
    """Return where the new model goes, and check that it may, before anything is learned."""
    from transcf.storage.folders import check_replaceable

    if out is None and not overwrite:
        raise ParameterError(
            f"Say where the new model goes: --out DIR, or --overwrite to replace {folder}."
        )
    target = folder if out is None else out
    check_replaceable(target.absolute(), overwrite=overwrite)
    return target
