"""Who else works on the runs of a command: processes of this machine, or of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from transcf.cli._options import parse_cluster
from transcf.errors import ParameterError

if TYPE_CHECKING:
    from transcf.distributed import Cluster

Jobs: TypeAlias = Annotated[
    int, typer.Option(help="Processes that share the work, and the threads.", min=1)
]
RunWorkers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Share the runs out to so many processes of a Ray cluster; results are the same.",
    ),
]


def parse_sharing(jobs: int, workers: int | None, address: str | None) -> Cluster | None:
    """Say which cluster helps; None where it is none, but perhaps processes of this machine."""
    spread = parse_cluster(workers, address)
    if spread is not None and jobs > 1:
        raise ParameterError("Give --jobs, or --workers and --cluster, not both.")
    return spread
