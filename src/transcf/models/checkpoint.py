"""Checkpoints: one file, replaced atomically, from which training resumes with the same bits.

Tensors of other processes (`RemoteState`) are written by these processes, in part files next to the
checkpoint. The checkpoint is written last and names a complete set of parts; other parts are
ignored.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from transcf.data.atomic import atomic_write
from transcf.errors import ModelFileError
from transcf.io import tensors
from transcf.io.tensors import Arrays

FILE_NAME = "checkpoint.safetensors"
#: How the names of parts begin.
PART = "part-"
_VERSION = 1
_CURRENT, _BEST = "current/", "best/"


@dataclass(frozen=True)
class PartFile:
    """A file with some tensors, or with some rows of them.

    Attributes:
        name: In the folder of the checkpoint.
        digest: SHA-256 of its content.
    """

    name: str
    digest: str


class RemoteState(Protocol):
    """Tensors that other processes have."""

    def write(self, folder: Path) -> Sequence[PartFile]:
        """Let them be written; tensors that are in several parts are put together in order.

        What was written to the folder before is not written again.
        """


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two epochs.

    Attributes:
        epoch: Epochs finished.
        history: One record per epoch.
        current: Tensors after the last epoch; at hand wherever it was read from a file.
        best: Tensors of the best validated epoch; empty without validation.
    """

    epoch: int
    history: list[dict[str, float | int | None]]
    current: Arrays | RemoteState
    best: Arrays | RemoteState


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
            "epoch": checkpoint.epoch,
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
            named = {
                prefix: [PartFile(**part) for part in files]
                for prefix, files in state.get("parts", {}).items()
            }
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
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
            current=_under(_CURRENT, arrays) | self._put_together(named.get(_CURRENT, [])),
            best=_under(_BEST, arrays) | self._put_together(named.get(_BEST, [])),
        )

    def _put_together(self, parts: Sequence[PartFile]) -> Arrays:
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


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {
        # A copy, for training writes to it.
        name.removeprefix(prefix): array.copy()
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
