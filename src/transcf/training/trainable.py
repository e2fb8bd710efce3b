"""What the loop needs of an algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

Tensors: TypeAlias = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class EpochStats:
    """What one epoch did.

    Attributes:
        loss: Mean loss of a sample; NaN or infinity means that training diverged.
        samples: Samples drawn.
    """

    loss: float
    samples: int


class Trainable(Protocol):
    """An algorithm that is trained epoch by epoch.

    What an epoch does may depend on the tensors and on its number alone (randomness is keyed by
    seed and epoch), so that a resumed run ends with the same bits as one never interrupted.
    """

    def run_epoch(self, number: int) -> EpochStats:
        """Change the tensors by one epoch, counted from 1."""

    def tensors(self) -> Tensors:
        """Return the learned arrays; the loop copies what it keeps."""

    def load_tensors(self, tensors: Tensors) -> None:
        """Put learned arrays back."""
