"""Checkpoints of a training run, from which it resumes with the same bits.

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
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.atomic import atomic_write
from transcf.errors import ModelFileError
from transcf.io import tensors
from transcf.io.tensors import Arrays

#: What the next epoch depends on: tensors, or a reference to those of other processes. The latter
#: have `write(folder)`, which writes part files once and returns them; tensors that are in several
#: parts are joined in order.
State: TypeAlias = Any

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

    def write(self, history: list[dict[str, Any]], current: State, best: State) -> None:
        """Replace the file; a run killed at any moment leaves the old or the new one whole."""
        arrays: Arrays = {}
        parts: dict[str, list[dict[str, str]]] = {}
        for prefix, state in ((_CURRENT, current), (_BEST, best)):
            if isinstance(state, dict):
                arrays |= {prefix + name: array for name, array in state.items()}
            else:
                parts[prefix] = [asdict(part) for part in state.write(self.folder)]
        about = {
            "version": _VERSION,
            "fingerprint": self.fingerprint,
            "epoch": len(history),
            "history": history,
            "parts": parts,
        }
        with atomic_write(self.path) as unfinished:
            tensors.write(unfinished, arrays, json.dumps(about))
        named = {part["name"] for files in parts.values() for part in files}
        for path in self.folder.glob(f"{PART}*"):
            if path.name not in named:
                path.unlink(missing_ok=True)
        self._last_write = time.monotonic()

    def read(self) -> tuple[list[dict[str, Any]], Arrays, Arrays] | None:
        """Return the history and the tensors of both states, None if there is no checkpoint."""
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
        return history, current, best

    def _joined(self, parts: Sequence[PartFile]) -> Arrays:
        """Return the tensors of part files, rows that are in several parts in their order."""
        found: dict[str, list[npt.NDArray[Any]]] = {}
        for part in parts:
            try:
                content = np.fromfile(self.folder / Path(part.name).name, np.uint8)
            except OSError as error:
                raise self._damage() from error
            if hashlib.sha256(content.data).hexdigest() != part.digest:
                raise self._damage()
            for name, array in tensors.parse(self.path, content)[1].items():
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
