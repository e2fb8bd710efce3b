"""`transcf fit`: learn a model from the training part of the data and save it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from transcf.cli._options import (
    Columns,
    Data,
    Preset,
    Protocol,
    Ratings,
    Seed,
    Settings,
    Threads,
    absolute_name,
    parse_reading,
    read_params,
)
from transcf.cli._output import JsonFlag, print_facts, print_json


def fit(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    model: Annotated[str, typer.Option(help="Name of the model; see `transcf models`.")],
    settings: Settings = None,
    preset: Preset = None,
    protocol: Protocol = "strict",
    columns: Columns = None,
    ratings: Ratings = None,
    seed: Seed = 0,
    threads: Threads = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on after an interruption.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Fit a model on the training part of DATA, choose its epoch on validation, and save it.

    Models that train in epochs leave checkpoints beside the folder until they are done. Ctrl-C
    saves the best epoch so far and keeps the checkpoint for --resume.
    """
    from transcf.data.sources import open_split
    from transcf.evaluation import Validation
    from transcf.experiments.runs import Contender
    from transcf.storage.folders import check_replaceable
    from transcf.training.checkpoint import FILE_NAME
    from transcf.training.options import FitOptions

    params = read_params(model, settings, preset, data)
    made = Contender(model, model, params).make(seed)
    check_replaceable(out.absolute())
    reading = parse_reading(columns, ratings)
    split = open_split(data, protocol, seed=seed, **reading)
    known_protocol: Any = protocol  # `open_split` has checked it
    checkpoints = out.with_name(f"{out.name}.checkpoint")
    if resume and not (checkpoints / FILE_NAME).exists():
        typer.echo(f"transcf: {checkpoints} holds no checkpoint: starting anew.", err=True)
    options = FitOptions(checkpoint=checkpoints, resume=resume)
    made.fit(split.train, Validation.of(split, known_protocol), options)
    made.report_ |= {"dataset": absolute_name(data), "protocol": protocol, "split_seed": seed}
    if reading:
        made.report_["reading"] = reading
    made.save(out)
    if made.report_.get("ending") == "interrupted":
        typer.echo("transcf: interrupted; the same command with --resume goes on.", err=True)
    else:
        shutil.rmtree(checkpoints, ignore_errors=True)
    facts = {"model": made.name, "folder": str(out), **made.report_}
    if as_json:
        print_json({**facts, "parameters": made.get_params()})
    else:
        print_facts(f"Saved {out}", {**facts, **made.get_params()})
