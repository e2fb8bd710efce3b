"""`transcf refit` and `transcf partial-fit`: a saved model learns from new events."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from transcf.cli._options import (
    Data,
    ReadingOptions,
    Threads,
    absolute_name,
    open_model,
    reading_options,
)
from transcf.cli._output import JsonFlag, show_saved
from transcf.errors import DataError, ParameterError, UnsupportedError
from transcf.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.models.base import Recommender

Model: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A saved model; if `transcf refresh` has added versions, the current one is used.",
        show_default=False,
    ),
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


@reading_options
def refit(
    folder: Model,
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA...",
            help="All events: as DATA of `transcf fit`, or several files that are one log.",
            show_default=False,
        ),
    ],
    out: Out = None,
    overwrite: Overwrite = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Replace MODEL even if DATA lacks some of its users or items."),
    ] = False,
    *,
    reading: ReadingOptions,
    threads: Threads = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after an interruption.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Fit the settings of MODEL again on all events of DATA, up to the epoch that was chosen.

    The new model knows the events of DATA and no others. Until it is whole, the old one stays.
    Ctrl-C changes nothing, keeps a checkpoint beside the new folder for --resume, and ends with
    130.
    """
    from transcf.data.readers import open_data
    from transcf.models.training import FitOptions

    target = _target(folder, out, overwrite)
    model = open_model(folder)
    source = data[0] if len(data) == 1 else data
    log, before = open_data(source, **reading), model.report_
    is_replaced = target.resolve() == folder.resolve()
    _check_loss(model, log, folder if is_replaced and not yes else None)
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
    names = [absolute_name(name) for name in data]
    model.report_["dataset"] = names[0] if len(names) == 1 else names
    if reading:
        model.report_["reading"] = reading
    model.save(target, overwrite=overwrite)
    show_saved(model, target, as_json)
    shutil.rmtree(checkpoints, ignore_errors=True)


@reading_options
def partial_fit(
    folder: Model,
    data: Data,
    out: Out = None,
    overwrite: Overwrite = False,
    *,
    reading: ReadingOptions,
    threads: Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Add the events of DATA to MODEL without training it anew; for models that can.

    Until the larger model is whole, the old one stays.
    """
    from transcf.data.readers import open_data

    target = _target(folder, out, overwrite)
    model = open_model(folder)
    add = getattr(model, "partial_fit", None)
    if add is None:
        raise UnsupportedError(
            f"{type(model).__name__} cannot take in events without learning anew: use `transcf "
            f"refit {folder}` with all events."
        )
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


def _check_loss(model: Recommender[Any], log: Interactions, replaced: Path | None) -> None:
    """Say which users and items of a model a log lacks.

    Raises:
        DataError: There are some, and `replaced`, the folder of the model, would be overwritten.
    """
    import numpy as np

    from transcf.data.ids import UNKNOWN

    known = model.learned_.known
    lost = {
        "users": np.count_nonzero(log.users.rows(known.users.series) == UNKNOWN),
        "items": np.count_nonzero(log.items.rows(known.items.series) == UNKNOWN),
    }
    if not any(lost.values()):
        return
    sentence = (
        f"DATA lacks {lost['users']:,} of the {len(known.users):,} users and {lost['items']:,} of "
        f"the {len(known.items):,} items of the model, and has {len(log):,} events where the "
        f"model was fitted on {known.facts()['interactions']:,}"
    )
    if replaced is not None:
        raise DataError(
            f"{sentence}: name all files with events, add events by `transcf partial-fit`, or "
            f"replace {replaced} all the same with --yes."
        )
    typer.echo(f"transcf: note: {sentence}.", err=True)


def _target(folder: Path, out: Path | None, overwrite: bool) -> Path:
    """Return where the new model goes, and check that it may, before anything is learned."""
    from transcf.io.model_dir import check_replaceable

    if out is None and not overwrite:
        raise ParameterError(
            f"Say where the new model goes: --out DIR, or --overwrite to replace {folder}."
        )
    target = folder if out is None else out
    check_replaceable(target.absolute(), overwrite=overwrite)
    return target
