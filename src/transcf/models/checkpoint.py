"""Checkpoints of a training run, from which it resumes with the same bits.

A checkpoint is one file, replaced atomically.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transcf.data.atomic import atomic_write
from transcf.errors import ModelFileError
from transcf.io import tensors
from transcf.io.tensors import Arrays

FILE_NAME = "checkpoint.safetensors"
_VERSION = 1
_CURRENT, _BEST = "current/", "best/"


@dataclass
class CheckpointFile:
    """Reads and writes the checkpoint of one run; that of another run is refused.

    It holds the history (a record of each finished epoch), the state after the last epoch and the
    state after the best one, which is empty without validation.
    """

    folder: Path  # made when needed
    fingerprint: str  # of model, settings and data
    seconds_between: float  # shortest time between two writes
    _last_write: float = field(default=-1e9, init=False)

    @property
    def path(self) -> Path:
        """The file itself."""
        return self.folder / FILE_NAME

    def is_due(self) -> bool:
        """Whether enough time has passed since the last write."""
        return time.monotonic() - self._last_write >= self.seconds_between

    def write(self, history: list[dict[str, Any]], current: Arrays, best: Arrays) -> None:
        """Replace the file; a run killed at any moment leaves the old or the new one whole."""
        arrays = {_CURRENT + name: array for name, array in current.items()}
        arrays |= {_BEST + name: array for name, array in best.items()}
        about = {
            "version": _VERSION,
            "fingerprint": self.fingerprint,
            "epoch": len(history),
            "history": history,
        }
        with atomic_write(self.path) as unfinished:
            tensors.write(unfinished, arrays, json.dumps(about))
        self._last_write = time.monotonic()

    def read(self) -> tuple[list[dict[str, Any]], Arrays, Arrays] | None:
        """Return the history and the tensors of both states, None if there is no checkpoint."""
        try:
            about, arrays = tensors.read_with_about(self.path)
            state = json.loads(about)
            run, history = (state["version"], state["fingerprint"]), state["history"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
            raise self._damage() from e
        if run != (_VERSION, self.fingerprint):
            raise ModelFileError(
                f"{self.path} belongs to a run with other settings or data (validation and "
                "library version included): use the same ones to resume it, choose another folder, "
                "or replace it with FitOptions(fresh=True) or --fresh."
            )
        current, best = (
            # A copy, for training writes to it.
            {n.removeprefix(prefix): a.copy() for n, a in arrays.items() if n.startswith(prefix)}
            for prefix in (_CURRENT, _BEST)
        )
        if not current:  # such as one that workers of an earlier version wrote in parts
            raise self._damage()
        return history, current, best

    def _damage(self) -> ModelFileError:
        return ModelFileError(
            f"{self.path} is damaged and cannot be resumed from: replace it with "
            "FitOptions(fresh=True) or --fresh, or choose another folder."
        )
