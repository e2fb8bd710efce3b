"""`transcf auto`: find a good model for a log within a time limit, and save it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transcf.cli import options, output
from transcf.interrupts import INTERRUPTED


def auto(
    data: options.Data,
    out: Annotated[Path, typer.Option(help="Folder for the model; the report is put next to it.")],
    minutes: Annotated[
        float, typer.Option(help="Time limit for everything, including the final fit.")
    ] = 10.0,
    models: Annotated[
        str | None,
        typer.Option(
            help="Names of models to try, separated by commas; popularity is added. By default "
            "those that suit the data and need no torch.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="What is compared.")] = "NDCG@10",
    *,
    reading: options.ReadingOptions,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    as_json: options.JsonFlag = False,
) -> None:
    """Find the best model for DATA within a time limit, and save it.

    Tries models and settings on validation data, the cheapest first, and blends the best ones. The
    winner is tested on held-out events that no choice has seen, and fitted on all events. Writes
    OUT, OUT.report.json and OUT.report.md. The same command continues an interrupted search. Ctrl-C
    saves the best model so far and exits with 130; a second one ends at once.

    Example: transcf auto events.csv --minutes 10 --out models/shop
    """
    from transcf.experiments.auto import auto as find_model
    from transcf.experiments.auto_report import report_paths

    store = options.open_store()
    total = round(max(0.0, min(1e9, 60 * minutes)))  # also of no number, which is refused below
    with output.show_steps(total, "seconds") as steps:
        found = find_model(
            data,
            minutes,
            out,
            models=options.split_names(models),
            metric=metric,
            seed=seed,
            store=None if store is None else store.folder,
            overwrite=overwrite,
            on_progress=lambda seconds, text: steps.reach(int(seconds), text),
            on_read=output.note_reading,
            **reading.keywords(),
        )
    if as_json:
        output.print_json(found.report)
    else:
        output.print_result(found.table())
    output.note_written([out, *report_paths(out)])
    if found.report["interrupted"]:
        output.note("interrupted: this is the best model so far; the same command goes on.")
        raise typer.Exit(INTERRUPTED)
