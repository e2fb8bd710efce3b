"""How a fit is run, apart from what is learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from transcf.data.paths import path_of
from transcf.errors import ParameterError
from transcf.models.trainable import DistributedTrainable, Epoch


class DistributedBackend(Protocol):
    """Where the work of a fit is spread over processes: a `transcf.distributed.Cluster`."""

    def spread(self, solver: Any, problem: Any, settings: Any) -> DistributedTrainable:
        """Share a problem out.

        Args:
            solver: Class of a solver that can be spread, `learning.communicator.DistributedSolver`.
            problem: All that it learns from.
            settings: The model's.
        """


@dataclass(frozen=True)
class FitOptions:
    """How to run a fit; none of it changes what is learned.

    Attributes:
        checkpoint: Folder for checkpoints, or None for none.
        resume: Whether to go on from a checkpoint found there (from the start if there is none).
        fresh: Whether to start anew where the checkpoint of another run is found, and to replace
            it; else that is an error. A run replaces its own checkpoints in any case.
        checkpoint_seconds: Shortest time between two checkpoints.
        progress: Whether to show a progress bar; None shows it at a terminal and in notebooks.
        on_epoch: Called with every finished epoch.
        threads: Threads of kernels, BLAS and torch; None leaves them as they are.
        cluster: Where to spread the training, for models that can be; None trains here.

    Example:
        >>> FitOptions(checkpoint=Path("runs/first"), resume=True).progress is None
        True
    """

    checkpoint: Path | None = None
    resume: bool = False
    fresh: bool = False
    checkpoint_seconds: float = 10.0
    progress: bool | None = None
    on_epoch: Callable[[Epoch[Any]], None] | None = None
    threads: int | None = None
    cluster: DistributedBackend | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself; write `~` out."""
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", path_of(self.checkpoint))
        if self.resume and self.fresh:
            raise ParameterError(
                "resume and fresh contradict each other: use one of them, to go on from a "
                "checkpoint or to start anew."
            )
