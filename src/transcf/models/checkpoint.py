"""States of a training run, and checkpoints from which it resumes with the same bits.

A checkpoint is one file, replaced atomically. Tensors of other processes are
written by these processes, in part files next to the checkpoint. The checkpoint is written last and
names a complete set of parts; other parts are ignored.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transcf.data.atomic import atomic_write
from transcf.errors import ModelFileError
from transcf.io import tensors
from transcf.io.tensors import Arrays
from transcf.models.training import State, Trainable, state_of

FILE_NAME = "checkpoint.safetensors"
#: How the names of parts begin.
PART = "part-"
_VERSION = 1
_CURRENT, _BEST = "current/", "best/"


@dataclass(frozen=True)
class PartFile:
    """A file with some tensors, or with some rows of them: its name and its SHA-256."""

    name: str
    digest: str


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two epochs: after the last epoch and after the best one.

    `history` has a record of each finished epoch; `best` is empty without validation. States that
    were read from a file are tensors.
    """

    history: list[dict[str, Any]]
    current: State
    best: State


@dataclass
class CheckpointFile:
    """Reads and writes the checkpoint of one run; that of another run is refused."""

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

    def write_if_due(
        self, history: list[dict[str, Any]], trainable: Trainable, best: State, is_last: bool
    ) -> None:
        """Write the present state if it is the last one, or if it is time to."""
        if is_last or self.is_due():
            self.write(Checkpoint(history, state_of(trainable), best))

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the file; a run killed at any moment leaves the old or the new one whole."""
        arrays: Arrays = {}
        parts: dict[str, Sequence[PartFile]] = {}
        for prefix, found in ((_CURRENT, checkpoint.current), (_BEST, checkpoint.best)):
            if isinstance(found, dict):
                arrays |= {prefix + name: array for name, array in found.items()}
            else:
                parts[prefix] = found.write(self.folder)
        about = {
            "version": _VERSION,
            "fingerprint": self.fingerprint,
            "epoch": len(checkpoint.history),
            "history": checkpoint.history,
            "parts": {prefix: [asdict(part) for part in files] for prefix, files in parts.items()},
        }
        with atomic_write(self.path) as unfinished:
            tensors.write(unfinished, arrays, json.dumps(about))
        named = {part.name for files in parts.values() for part in files}
        for path in self.folder.glob(f"{PART}*"):
            if path.name not in named:
                path.unlink(missing_ok=True)
        self._last_write = time.monotonic()

    def read(self) -> Checkpoint | None:
        """Return the stored state, None if there is none."""
        try:
            about, arrays = tensors.read_with_about(self.path)
            state = json.loads(about)
            run, history = (state["version"], state["fingerprint"]), state["history"]
            parts = {
                prefix: [PartFile(**part) for part in files]
                for prefix, files in state.get("parts", {}).items()
            }
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
            | self._joined(parts.get(prefix, []))
            for prefix in (_CURRENT, _BEST)
        )
        return Checkpoint(history, current, best)

    def _joined(self, parts: Sequence[PartFile]) -> Arrays:
        found: dict[str, list[npt.NDArray[Any]]] = {}
        for part in parts:
            try:
                content = np.fromfile(self.folder / Path(part.name).name, np.uint8)
                if hashlib.sha256(content.data).hexdigest() != part.digest:
                    raise self._damage()
                _, arrays = tensors.parse(self.path, content)
            except OSError as error:
                raise self._damage() from error
            for name, array in arrays.items():
                found.setdefault(name, []).append(array)
        return {name: np.concatenate(rows) for name, rows in found.items()}

    def _damage(self) -> ModelFileError:
        return ModelFileError(
            f"{self.path} is damaged and cannot be resumed from: replace it with "
            "FitOptions(fresh=True) or --fresh, or choose another folder."
        )


def write_part(path: Path, arrays: Arrays) -> PartFile:
    """Write some tensors, whole or not at all."""
    with atomic_write(path) as unfinished:
        tensors.write(unfinished, arrays)
        digest = hashlib.sha256(np.fromfile(unfinished, np.uint8).data).hexdigest()
    return PartFile(path.name, digest)
