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
    from collections.abc import Callable

    from transcf.analysis.quality import Quality
    from transcf.analysis.report import Findings
    from transcf.data.interactions import Interactions
    from transcf.models.base import Recommender


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
    """Write a page about the model in DIR: data, accuracy, lists, people, what vectors encode.

    A model that has learned from everything is judged by a twin: its settings, fitted without the
    newest events. Without --data the page is about the data that the model notes.
    """
    from transcf.pages.page import check_file

    check_file(out)
    if out.is_dir():
        raise ParameterError(f"--out {out} is a folder: name a file.")

    model = open_model(folder)
    with show_steps(3, "parts") as steps:
        found = _found(model, data, pairs, seed, steps)
        written = found.page().write(out)
    facts = {"report": str(out), "files": len(written), "missing": found.missing}
    if as_json:
        print_json(facts)
    else:
        print_facts(f"Wrote {out}", {k: v for k, v in facts.items() if v != {}})


def _found(
    model: Recommender[Any], data: str | None, pairs: int, seed: int, steps: Steps
) -> Findings:
    """Do all that can be done, and note what cannot."""
    from transcf.analysis.report import Findings, analyzed

    parts = steps.counted(["opening the data", "judging", "analysing"])
    steps.report(next(parts))
    missing: dict[str, str] = {}
    opened = _open(model, data, missing)
    if opened is None:
        return Findings(model, missing=missing)
    log, judge = opened
    steps.report(next(parts))
    quality = None
    try:
        quality = judge()
    except (DataError, EvaluationError) as error:
        missing["accuracy"] = str(error)
    steps.report(next(parts))
    analyses, others = analyzed(
        model, log, number=pairs, random_state=seed, on_progress=steps.report
    )
    return Findings(model, log, quality, analyses, missing | others)


def _open(
    model: Recommender[Any], data: str | None, missing: dict[str, str]
) -> tuple[Interactions, Callable[[], Quality]] | None:
    """Open the events and say how to judge; None where the data are not here."""
    from transcf.analysis.quality import judged
    from transcf.data.splitters import open_log_and_split

    origin = model.report_
    if data is None and "dataset" not in origin:
        missing["data"] = "the model does not say what it was fitted on: name it with --data DATA"
        return None
    is_own = data is None or absolute_name(data) == origin.get("dataset")
    name = origin["dataset"] if data is None else data
    reading = origin.get("reading", {}) if is_own else {}
    protocol = origin.get("protocol") if is_own else None
    log, split = open_log_and_split(name, protocol, seed=origin.get("split_seed", 0), **reading)

    def judge() -> Quality:
        _check_ids(model, log, name)
        return judged(model, split, held_out=is_own and bool(origin.get("held_out")))

    return log, judge


def _check_ids(model: Recommender[Any], log: Interactions, name: str) -> None:
    if model.users_ != log.users or model.items_ != log.items:
        raise DataError(
            f"{name} has other users or items than the model was fitted on, so that neither it nor "
            "a twin can be judged by it."
        )
