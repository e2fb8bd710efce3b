"""`transcf reproduce`: what TransCF's paper prints, run again, with its figures beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transcf.cli._analysis import reproduce_analysis
from transcf.cli._options import Threads
from transcf.cli._output import JsonFlag
from transcf.errors import ParameterError


def reproduce(
    table: Annotated[
        str, typer.Argument(help="analysis: what translations encode.", show_default=False)
    ],
    datasets: Annotated[
        str | None, typer.Option(help="Only these of its datasets, with commas between them.")
    ] = None,
    pairs: Annotated[
        int, typer.Option(min=10, help="Most pairs that random forests look at (analysis).")
    ] = 2000,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write JSON and figures here (analysis)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of models and draws (analysis).")] = 0,
    threads: Threads = None,
    as_json: JsonFlag = False,
) -> None:
    """Run what TransCF's paper prints again, with the printed figures beside ours."""
    if table != "analysis":
        raise ParameterError(f"There is no {table!r} to reproduce: use analysis.")
    listed = None if datasets is None else [name.strip() for name in datasets.split(",")]
    reproduce_analysis(listed, pairs=pairs, out=out, seed=seed, as_json=as_json)
