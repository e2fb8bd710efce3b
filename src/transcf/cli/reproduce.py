"""`transcf reproduce`: what the paper prints, beside what comes out here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transcf.cli._options import Threads
from transcf.cli._output import JsonFlag, print_json, print_table
from transcf.cli._progress import show_steps
from transcf.cli.analyze import print_analyses

app = typer.Typer(help="Run what the paper prints, beside its figures.", no_args_is_help=True)


@app.command()
def analysis(
    datasets: Annotated[
        str | None, typer.Option(help="Only these datasets, with commas between them.")
    ] = None,
    pairs: Annotated[
        int, typer.Option(min=10, help="Most pairs that random forests look at.")
    ] = 3000,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write analysis-DATASET.json and figures here."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of models and draws.")] = 0,
    threads: Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Run the paper's analyses of translations on its data and on MovieTweetings."""
    from transcf.experiments.qualitative import PLANS, check_datasets, reproduce

    names = check_datasets(PLANS if datasets is None else datasets.split(","))
    with show_steps(len(names), "datasets") as steps:
        found = [
            reproduce(name, number=pairs, random_state=seed, on_progress=steps.report)
            for name in steps.counted(names)
        ]
    for each in found if out is not None else ():
        assert out is not None, "checked"
        each.write(out)
    if as_json:
        print_json([each.to_dict() for each in found])
        return
    for each in found:
        print_analyses(each.analyses, {})
        beside = each.beside()
        if len(beside):
            rows = [[_rounded(cell) for cell in row] for row in beside.iter_rows()]
            print_table(f"{each.dataset}: beside the paper, in per cent", beside.columns, rows)


def _rounded(cell: object) -> object:
    return f"{cell:.2f}" if isinstance(cell, float) else cell
