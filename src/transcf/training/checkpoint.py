"""Checkpoints: one file, replaced atomically, enough to go on with the same bits."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from transcf.data.atomic import whole_file
from transcf.errors import ModelFileError
from transcf.storage import tensors
from transcf.storage.tensors import Arrays

FILE_NAME = "checkpoint.safetensors"
_VERSION = 1
_CURRENT, _BEST = "current/", "best/"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two epochs.

    Attributes:
        epoch: Epochs finished.
        history: One record per epoch.
        current: Tensors after the last epoch.
        best: Tensors of the best validated epoch; empty without validation.
    """

    epoch: int
    history: list[dict[str, float | int | None]]
    current: Arrays
    best: Arrays


@dataclass
class CheckpointFile:
    """Reads and writes the checkpoint of one run.

    Args:
        folder: Where the file lives; made when needed.
        fingerprint: Says which model, settings and data the run belongs to; a checkpoint of
            another run is refused.
        seconds_between: Shortest time between two writes.
    """

    folder: Path
    fingerprint: str
    seconds_between: float
    _last_write: float = field(default=-1e9, init=False)

    @property
    def path(self) -> Path:
        """The file itself."""
        return self.folder / FILE_NAME

    def is_due(self) -> bool:
        """Whether enough time has passed since the last write."""
        return time.monotonic() - self._last_write >= self.seconds_between

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the file; a run killed at any moment leaves the old or the new one whole."""
        arrays = {_CURRENT + name: array for name, array in checkpoint.current.items()}
        arrays |= {_BEST + name: array for name, array in checkpoint.best.items()}
        about = {
            "version": _VERSION,
            "fingerprint": self.fingerprint,
            "epoch": checkpoint.epoch,
            "history": checkpoint.history,
        }
        with whole_file(self.path) as unfinished:
            tensors.write(unfinished, arrays, json.dumps(about))
        self._last_write = time.monotonic()

    def read(self) -> Checkpoint | None:
        """Return the stored state, None if there is none; damage or a foreign run is an error."""
        try:
            about, arrays = tensors.read_with_about(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._damage() from error
        try:
            state = json.loads(about)
            version, fingerprint = state["version"], state["fingerprint"]
            epoch, history = state["epoch"], state["history"]
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise self._damage() from error
        if version != _VERSION or fingerprint != self.fingerprint:
            raise ModelFileError(
                f"{self.path} belongs to a run with other settings or data (validation and "
                "library version included): use the same ones to resume it, choose another folder, "
                "or replace it with FitOptions(fresh=True) or --fresh."
            )
        return Checkpoint(
            epoch=epoch,
            history=history,
            current=_under(_CURRENT, arrays),
            best=_under(_BEST, arrays),
        )

    def _damage(self) -> ModelFileError:
        return ModelFileError(
            f"{self.path} is damaged and cannot be resumed from: replace it with "
            "FitOptions(fresh=True) or --fresh, or choose another folder."
        )


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {
        # A copy, for training writes to it.
        name.removeprefix(prefix): array.copy()
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
