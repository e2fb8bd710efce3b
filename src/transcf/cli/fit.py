"""`transcf fit`: learn a model for use, or for a test, and save it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from transcf.cli._options import (
    ClusterAddress,
    Config,
    Data,
    Preset,
    Protocol,
    ReadingOptions,
    Seed,
    Settings,
    Threads,
    Workers,
    absolute_name,
    parse_cluster,
    read_model,
    reading_options,
)
from transcf.cli._output import JsonFlag, say_reading, show_saved
from transcf.interrupts import INTERRUPTED
from transcf.protocols import protocol_named


@reading_options
def fit(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    model: Annotated[
        str | None, typer.Option(help="Name of the model; see `transcf models`.")
    ] = None,
    settings: Settings = None,
    preset: Preset = None,
    config: Config = None,
    hold_out: Annotated[
        bool,
        typer.Option(
            "--hold-out",
            help="Keep the test part out, for `transcf evaluate DIR` later on.",
        ),
    ] = False,
    protocol: Protocol = None,
    *,
    reading: ReadingOptions,
    seed: Seed = 0,
    threads: Threads = None,
    workers: Workers = None,
    cluster: ClusterAddress = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after an interruption.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Replace the checkpoint of another run.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the model that is in the folder.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Choose a model's epoch on held-out events of DATA, fit it on all events, and save it.

    Models that train in epochs leave checkpoints beside the folder until they are done. Ctrl-C
    saves no model, keeps the checkpoint for --resume, and ends with 130. With --workers the users
    are spread over processes of a Ray cluster, and the model is the same to the last bit.
    """
    from transcf.cli._parts import open_for_fit
    from transcf.experiments.deploy import fit_for_use
    from transcf.experiments.experiment import Candidate
    from transcf.io.model_dir import check_replaceable
    from transcf.models.training import FitOptions

    model, params = read_model(model, config, settings, preset, data)
    made = Candidate(model, model, params).make(seed)
    check_replaceable(out.absolute(), overwrite=overwrite)
    spread = parse_cluster(workers, cluster)
    is_spread = spread is not None
    log, split, validation, protocol = open_for_fit(data, protocol, seed, reading, is_spread)
    say_reading(log)
    checkpoints = out.with_name(f"{out.name}.checkpoint")
    if resume and not checkpoints.exists():
        typer.echo(f"transcf: {checkpoints} holds no checkpoint: starting anew.", err=True)
    options = FitOptions(checkpoint=checkpoints, resume=resume, fresh=fresh, cluster=spread)
    if not hold_out:
        done = fit_for_use(made, log, split, validation, options)
    elif protocol_named(protocol).refit:
        done = fit_for_use(made, split.before_test, split, validation, options)
        done = f"what comes before the test: {done}"
    else:
        made.fit(split.train, validation, options)
        done = f"the training part ({split.how})"
    if made.report_.get("ending") == "interrupted":
        # What it has learned so far is of a part of the events, or not long enough: no model.
        typer.echo(
            "transcf: interrupted, no model is saved; the same command with --resume goes on.",
            err=True,
        )
        raise typer.Exit(INTERRUPTED)
    if hold_out:
        made.report_["split"] = split.how
    made.report_ |= {"fitted_on": done, "held_out": hold_out}
    made.report_ |= {"dataset": absolute_name(data), "protocol": protocol, "split_seed": seed}
    if reading:
        made.report_["reading"] = reading
    made.save(out, overwrite=overwrite)
    show_saved(made, out, as_json)
    shutil.rmtree(checkpoints, ignore_errors=True)
