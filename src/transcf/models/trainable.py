"""What the loop needs of an algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from transcf.io.tensors import Arrays
from transcf.models.checkpoint import RemoteState
from transcf.retrieval.scorer import Scorer

S = TypeVar("S", bound=Scorer)


@dataclass(frozen=True)
class EpochStats:
    """What one epoch did.

    Attributes:
        loss: Mean loss of a sample; NaN or infinity means that training diverged.
        samples: Samples drawn.
        remark: What else to show of it.
    """

    loss: float
    samples: int
    remark: str = ""


class Trainable(Protocol):
    """An algorithm that is trained epoch by epoch.

    What an epoch does may depend on the tensors and on its number alone (randomness is keyed by
    seed and epoch), so that a resumed run ends with the same bits as one never interrupted.
    """

    def run_epoch(self, number: int) -> EpochStats:
        """Change the tensors by one epoch, counted from 1."""

    def tensors(self) -> Arrays:
        """Return all that the next epoch depends on; the loop copies what it keeps."""

    def load_tensors(self, tensors: Arrays) -> None:
        """Put back what `tensors` returned."""


@runtime_checkable
class DistributedTrainable(Trainable, Protocol):
    """One that other processes train; `tensors` collects what they have, and takes its time.

    They look themselves whether numbers are finite: the loss of an epoch is NaN if any is not.
    """

    def state(self) -> RemoteState:
        """Return what is learned so far, where it is; later epochs do not change it."""

    def load_state(self, state: Any) -> None:
        """Go back to what `state` returned."""

    def watch(self, show: Callable[[str], None]) -> None:
        """Tell somebody how far an epoch is, from now on, while it goes on."""

    def facts(self) -> dict[str, Any]:
        """Say what it took, JSON values only."""

    def close(self) -> None:
        """End the processes; nothing can be collected any more."""


class Epoch(Generic[S]):
    """A finished epoch, for validation and for listeners.

    Attributes:
        number: Counted from 1.
        metric: What validation data says of it; None for an epoch that was not validated.
    """

    def __init__(self, number: int, make_snapshot: Callable[[], S]) -> None:
        """Keep both."""
        self.number = number
        self.metric: float | None = None
        self._make_snapshot: Callable[[], S] | None = make_snapshot

    @cached_property
    def snapshot(self) -> S:
        """What is learned so far, to score with; made for the first who asks, and kept.

        Raises:
            RuntimeError: Nobody asked before the next epoch began.
        """
        if self._make_snapshot is None:
            raise RuntimeError(
                f"Epoch {self.number} is over: ask for its snapshot while on_epoch is called."
            )
        return self._make_snapshot()

    def close(self) -> None:
        """Let go of the trainable, which goes on; a snapshot that was made stays."""
        self._make_snapshot = None
