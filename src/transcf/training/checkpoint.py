"""Checkpoints: one file, replaced atomically, enough to go on with the same bits."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from transcf.data.atomic import whole_file
from transcf.errors import ModelFileError
from transcf.training.trainable import Tensors

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
    current: Tensors
    best: Tensors


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
        tensors = {
            _CURRENT + name: np.ascontiguousarray(t) for name, t in checkpoint.current.items()
        }
        tensors |= {_BEST + name: np.ascontiguousarray(t) for name, t in checkpoint.best.items()}
        about = {
            "version": _VERSION,
            "fingerprint": self.fingerprint,
            "epoch": checkpoint.epoch,
            "history": checkpoint.history,
        }
        with whole_file(self.path) as unfinished:
            save_file(tensors, unfinished, metadata={"checkpoint": json.dumps(about)})
        self._last_write = time.monotonic()

    def read(self) -> Checkpoint | None:
        """Return the stored state, None if there is none; damage or a foreign run is an error."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="numpy") as stored:
                about = json.loads(stored.metadata()["checkpoint"])
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise ModelFileError(
                f"{self.path} is damaged and cannot be resumed from: remove it to start anew."
            ) from error
        if about.get("version") != _VERSION or about.get("fingerprint") != self.fingerprint:
            raise ModelFileError(
                f"{self.path} belongs to a run with other settings or data (validation and "
                "library version included): use the same ones to resume it, or remove it to start "
                "anew."
            )
        return Checkpoint(
            epoch=about["epoch"],
            history=about["history"],
            current=_under(_CURRENT, tensors),
            best=_under(_BEST, tensors),
        )


def _under(prefix: str, tensors: Tensors) -> Tensors:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
