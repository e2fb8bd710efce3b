"""`transcf fit`, `transcf refit` and `transcf partial-fit`: train a model and save it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transcf
from transcf.cli import options, output
from transcf.errors import DataError, ParameterError, UnsupportedError
from transcf.protocols import protocol_named

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.models.base import Recommender


def fit(
    data: options.Data,
    out: Path,
    model: options.ModelOptions,
    hold_out: bool = False,
    protocol: options.Protocol = None,
    *,
    reading: options.ReadingOptions,
    seed: options.Seed = 0,
    workers: options.Workers = None,
    resume: options.Resume = None,
    overwrite: options.Overwrite = False,
    answer: output.Answer,
) -> None:
    """Fit a model on DATA and save it.

    Models that train in epochs choose their epoch on held-out events, and are then fitted on all
    events. They write checkpoints next to the folder: Ctrl-C saves no model, keeps the checkpoint
    for --resume, and exits with 130. With --workers, Ray workers train the model together.

    Options:
        out: Folder for the model.
        hold_out: Leave out the test events, for `transcf evaluate DIR`.

    Example: transcf fit events.csv --model transcf-mixture --out my-model
    """
    from transcf.data.datasets import absolute_name
    from transcf.experiments.experiment import Candidate
    from transcf.experiments.run import fit_for_use, open_for_use
    from transcf.io.model_dir import check_replaceable

    name, params, values = model.read(data)
    made = Candidate(name, name, params | values).make(seed)
    check_replaceable(out.absolute(), overwrite=overwrite)
    cluster, read = options.parse_workers(workers), reading.keywords()
    log, split, validation, protocol = open_for_use(
        data, protocol, seed, partitioned=cluster is not None, **read
    )
    output.note_reading(log)
    checkpoints = _checkpoints(out, "checkpoint", resume)
    fitting = transcf.FitOptions(
        checkpoint=checkpoints, resume=resume is True, fresh=resume is False, cluster=cluster
    )
    if not hold_out:
        done = fit_for_use(made, log, split, validation, fitting)
    elif protocol_named(protocol).refit:
        done = fit_for_use(made, split.before_test, split, validation, fitting)
        done = f"what comes before the test: {done}"
    else:
        made.fit(split.train, validation, fitting)
        done = f"the training part ({split.how})"
    if made.report_.get("ending") == "interrupted":
        output.end_interrupted(", no model is saved; the same command with --resume goes on.")
    made.report_ |= {"split": split.how} if hold_out else {}
    made.report_ |= {"fitted_on": done, "held_out": hold_out}
    made.report_ |= {"dataset": absolute_name(data), "protocol": protocol}
    made.report_ |= {"split_seed": seed, **({"reading": read} if read else {})}
    made.save(out, overwrite=overwrite)
    _show_saved(answer, made, out)
    shutil.rmtree(checkpoints, ignore_errors=True)


def refit(
    folder: options.ModelDir,
    data: options.Argument[list[str]],
    out: Path | None = None,
    overwrite: options.Overwrite = False,
    yes: bool = False,
    *,
    reading: options.ReadingOptions,
    resume: options.Resume = None,
    answer: output.Answer,
) -> None:
    """Fit a saved model again on all events of DATA.

    Parameters and the chosen epoch stay the same. The new model knows only the events of DATA.
    Ctrl-C changes nothing, keeps a checkpoint next to the new folder for --resume, and exits with
    130.

    Options:
        data (DATA...): All events: as DATA of `transcf fit`, or several files that are one log.
        out: Folder for the new model; DIR is not changed.
        yes: Replace DIR even if DATA lacks some of its users or items.

    Example: transcf refit my-model events.csv newer.csv --overwrite
    """
    from transcf.data.datasets import absolute_name

    target = _target(folder, out, overwrite)
    model, read = options.open_model(folder), reading.keywords()
    log, before = transcf.open_data(data[0] if len(data) == 1 else data, **read), model.report_
    is_replaced = target.resolve() == folder.resolve()
    _check_loss(model, log, folder if is_replaced and not yes else None)
    checkpoints = _checkpoints(target, "refit-checkpoint", resume)
    # Only this command reads the checkpoint, so without --resume it can be replaced.
    fitting = transcf.FitOptions(checkpoint=checkpoints, resume=bool(resume), fresh=not resume)
    epoch = model.best_epoch_
    model.refit(log, fitting)
    if model.report_.get("ending") == "interrupted":
        output.end_interrupted(
            f"; {folder} is as it was, and the same command with --resume goes on."
        )
    chosen = "" if epoch is None else f", up to epoch {epoch}, which was chosen before"
    model.report_ |= {key: before[key] for key in ("protocol", "split_seed") if key in before}
    model.report_ |= {"fitted_on": f"all {len(log):,} events{chosen}", "held_out": False}
    names = [absolute_name(name) for name in data]
    model.report_["dataset"] = names[0] if len(names) == 1 else names
    model.report_ |= {"reading": read} if read else {}
    model.save(target, overwrite=overwrite)
    _show_saved(answer, model, target)
    shutil.rmtree(checkpoints, ignore_errors=True)


def partial_fit(
    folder: options.ModelDir,
    data: options.Data,
    out: Path | None = None,
    overwrite: options.Overwrite = False,
    *,
    reading: options.ReadingOptions,
    answer: output.Answer,
) -> None:
    """Add events to a saved model without a new training.

    Options:
        out: Folder for the new model; DIR is not changed.

    Example: transcf partial-fit my-model new-events.csv --overwrite
    """
    from transcf.data.datasets import absolute_name

    target = _target(folder, out, overwrite)
    model = options.open_model(folder)
    add = getattr(model, "partial_fit", None)
    if add is None:
        raise UnsupportedError(
            f"{type(model).__name__} cannot add events without a new training: use `transcf "
            f"refit {folder}` with all events."
        )
    log, before = transcf.open_data(data, **reading.keywords()), dict(model.report_)
    add(log)
    fitted_on = before.get("fitted_on", f"{before['interactions']:,} events")
    model.report_["fitted_on"] = f"{fitted_on}; then {absolute_name(data)} was added"
    model.report_["held_out"] = False
    added = {
        f"new_{what}": model.report_[what] - before[what]
        for what in ("users", "items", "interactions")
    }
    model.save(target, overwrite=overwrite)
    _show_saved(answer, model, target, events=len(log), **added)


def _show_saved(
    answer: output.Answer, model: Recommender[Any], folder: Path, **more: object
) -> None:
    """Print what model was saved, and where."""
    from transcf.models.params import values_of

    facts = {"model": model.name, "folder": str(folder), **more, **model.report_}
    settings = values_of(model.settings_)
    # Where a parameter is "auto", the report has what was chosen.
    unreported = {name: value for name, value in settings.items() if name not in facts}
    table = output.facts_table(f"Saved {folder}", facts | unreported)
    answer.show(facts | {"parameters": settings}, table)


def _checkpoints(out: Path, ending: str, resume: bool | None) -> Path:
    """Return the folder of checkpoints next to that of the model."""
    folder = out.absolute()  # "." has no name
    checkpoints = folder.with_name(f"{folder.name}.{ending}")
    if resume and not checkpoints.exists():
        output.note(f"{checkpoints} holds no checkpoint: starting from the beginning.")
    return checkpoints


def _check_loss(model: Recommender[Any], log: Interactions, replaced: Path | None) -> None:
    """Note how many users and items of a model a log lacks; an error if it would be `replaced`."""
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
    output.note(f"note: {sentence}.")


def _target(folder: Path, out: Path | None, overwrite: bool) -> Path:
    """Return the folder of the new model, and check that it may be written."""
    from transcf.io.model_dir import check_replaceable

    if out is None and not overwrite:
        raise ParameterError(
            f"Say where the new model goes: --out DIR, or --overwrite to replace {folder}."
        )
    target = folder if out is None else out
    check_replaceable(target.absolute(), overwrite=overwrite)
    return target
