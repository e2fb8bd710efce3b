"""`transcf auto`: find a good model for a log within a time limit, and save it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from transcf.cli._options import (
    Data,
    JsonFlag,
    Overwrite,
    ReadingOptions,
    Seed,
    absolute_name,
    open_store,
    shared_options,
    split_names,
)
from transcf.cli._output import note, note_reading, note_written, print_json, print_result
from transcf.interrupts import INTERRUPTED


@shared_options
def auto(
    data: Data,
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
    reading: ReadingOptions,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: JsonFlag = False,
) -> None:
    """Find the best model for DATA within a time limit, and save it.

    Tries models and settings on validation data, the cheapest first, and blends the best ones. The
    winner is tested on held-out events that no choice has seen, and fitted on all events. Writes
    OUT, OUT.report.json and OUT.report.md. The same command continues an interrupted search. Ctrl-C
    saves the best model so far and exits with 130; a second one ends at once.

    Example: transcf auto events.csv --minutes 10 --out models/shop
    """
    from transcf.data.splitters import open_log_and_split
    from transcf.experiments.auto import check_options, find_model
    from transcf.experiments.auto_report import report_paths

    started, names, read = perf_counter(), split_names(models), reading.keywords()
    check_options(minutes, names, metric, None)
    log, split = open_log_and_split(data, seed=seed, **read)
    note_reading(log)
    about = {"dataset": absolute_name(data), "split_seed": seed, "reading": read}
    with _progress(minutes) as on_progress:
        found = find_model(
            log,
            split,
            minutes,
            out,
            models=names,
            metric=metric,
            seed=seed,
            store=open_store(),
            overwrite=overwrite,
            on_progress=on_progress,
            started=started,
            about={name: value for name, value in about.items() if value != {}},
        )
    if as_json:
        print_json(found.report)
    else:
        print_result(found.table())
    note_written([out, *report_paths(out)])
    if found.report["interrupted"]:
        note("interrupted: this is the best model so far; the same command goes on.")
        raise typer.Exit(INTERRUPTED)


@contextmanager
def _progress(minutes: float) -> Iterator[Callable[[float, str], None]]:
    """Show elapsed time and the current step on stderr: a bar on a terminal, else lines."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda seconds, text: note(f"{seconds:.0f} s: {text}")
        return
    text_column = TextColumn("{task.description}", markup=False)
    layout = (BarColumn(), TimeElapsedColumn(), text_column)
    with Progress(*layout, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=60 * minutes)
        yield lambda seconds, text: bar.update(task, completed=seconds, description=text)
