"""`transcf report`: one page about a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transcf.cli._options import Threads, absolute_name, open_model
from transcf.cli._output import JsonFlag, print_facts, print_json
from transcf.cli._progress import Steps, show_steps
from transcf.cli.analyze import OfModel
from transcf.cli.recommend import Folder
from transcf.errors import DataError, EvaluationError, ParameterError

if TYPE_CHECKING:
    from transcf.models.base import Recommender
    from transcf.paper.model_report import ModelReport


def report(
    folder: Folder,
    out: Annotated[
        Path,
        typer.Option(help="File of the page: .html, one file that needs nothing else, or .md."),
    ],
    data: OfModel = None,
    pairs: Annotated[
        int, typer.Option(min=10, help="Most pairs that random forests look at.")
    ] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.")] = 0,
    threads: Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a report of the model in DIR: data, accuracy, lists, example users, analyses.

    A model that was fitted on all events is evaluated by a twin: the same settings, fitted without
    the newest events. Without --data, the data that the model was fitted on is used.
    """
    from transcf.experiments.page import check_file

    check_file(out)
    if out.is_dir():
        raise ParameterError(f"--out {out} is a folder: name a file.")
    model = open_model(folder)
    with show_steps(3, "parts") as steps:
        found = _report_of(model, data, pairs, seed, steps)
        written = found.page().write(out)
    facts = {"report": str(out), "files": len(written), "missing": found.missing}
    if as_json:
        print_json(facts)
    else:
        print_facts(f"Wrote {out}", {k: v for k, v in facts.items() if v != {}})


def _report_of(
    model: Recommender[Any], data: str | None, pairs: int, seed: int, steps: Steps
) -> ModelReport:
    """Compute all parts that are available; the report says why others are missing."""
    from transcf.data.splitters import open_log_and_split
    from transcf.paper.analysis import ABOUT_MODELS, Subject
    from transcf.paper.model_report import ModelReport, evaluate_quality

    parts = steps.counted(["opening the data", "evaluating", "analysing"])
    steps.report(next(parts))
    origin, quality, missing = model.report_, None, {}
    if data is None and "dataset" not in origin:
        reason = "the model does not say what it was fitted on: name it with --data DATA"
        return ModelReport(model, missing={"data": reason})
    is_own = data is None or absolute_name(data) == origin.get("dataset")
    name = origin["dataset"] if data is None else data
    reading = origin.get("reading", {}) if is_own else {}
    protocol = origin.get("protocol") if is_own else None
    log, split = open_log_and_split(name, protocol, seed=origin.get("split_seed", 0), **reading)
    steps.report(next(parts))
    try:
        if model.users_ != log.users or model.items_ != log.items:
            raise DataError(f"{name} has other users or items than the model was fitted on.")
        held_out = is_own and bool(origin.get("held_out"))
        quality = evaluate_quality(model, split, held_out=held_out)
    except (DataError, EvaluationError) as error:
        missing["accuracy"] = str(error)
    steps.report(next(parts))
    subject = Subject({model.name: model}, log, number=pairs, random_state=seed)
    analyses, others = subject.all(ABOUT_MODELS, steps.report)
    return ModelReport(model, log, quality, analyses, missing | others)
