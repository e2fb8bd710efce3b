"""Who else works on a study: processes of this machine, or of a Ray cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from transcf.cli._options import parse_cluster
from transcf.errors import ParameterError

if TYPE_CHECKING:
    from transcf.experiments.store import Store
    from transcf.experiments.study import Study

Jobs: TypeAlias = Annotated[
    int, typer.Option(help="Processes that share the work, and the threads.", min=1)
]


def shared(
    study: Study, store: Store | None, jobs: int, workers: int | None, address: str | None
) -> AbstractContextManager[None]:
    """Let others work on a study inside the block; each cell is somebody's, whoever asks first."""
    spread = parse_cluster(workers, address)
    if spread is None and jobs == 1:
        return nullcontext()
    if spread is not None and jobs > 1:
        raise ParameterError("Give --jobs, or --workers and --cluster, not both.")
    if store is None:
        raise ParameterError("Several processes meet in the store of runs: leave --no-store out.")
    if spread is None:
        from transcf.experiments.helpers import helped

        return helped(study, store, jobs)
    from transcf.cluster.studies import spread_study

    return spread_study(study, store, spread)
