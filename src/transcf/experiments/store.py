"""The run cache: results of runs in files, under the hash of everything that they depend on.

    FOLDER/3f/3f9a.../run.json         key and result, without the metrics of users
                      users.parquet    metrics of every user
                      full.parquet     the same in full ranking, if the protocol samples candidates
    FOLDER/claims/3f9a....lock         locked by the process that computes this run
    FOLDER/index.jsonl                 a line per entry for `transcf runs list`; made from entries

Entries are written to a temporary folder and renamed, so that a kill loses at most the run in
progress. Modules that take long to import are imported where they are used.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from warnings import warn

from transcf.errors import DataError, DivergenceError, ParameterError, WriteError
from transcf.interrupts import stop_request, temporary
from transcf.user_cache import user_cache

if TYPE_CHECKING:
    from filelock import BaseFileLock

    from transcf.experiments.results import RunResult
    from transcf.experiments.run import RunKey

T = TypeVar("T")

_FORMAT = 1
_HEAD, _INDEX, _LOCKS = "run.json", "index.jsonl", "claims"
#: The checksum is that of the text after this one.
_RUN = '"run": '
#: Libraries whose versions are recorded if they are imported.
_LIBRARIES = ("transcf", "numpy", "numba", "polars", "torch")
#: Errors of file systems that are full or have no locks: runs are then computed without a lock.
_NO_LOCK = {errno.ENOSPC, errno.EDQUOT, errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
#: Seconds between two looks at a run that another process computes.
POLL_SECONDS = 0.1
#: Columns of the index after the key; `stamp` follows, the sizes and times of the files.
COLUMNS = (
    "kind", "dataset", "model", "seed", "protocol", "metric", "figure", "seconds", "written",
)  # fmt: skip


class RunLockedError(Exception):
    """Another process is computing a run; `lock` is its lock file."""

    def __init__(self, lock: Path) -> None:
        super().__init__(f"Another process is computing the run of {lock}.")
        self.lock = lock

    def wait(self) -> None:
        """Wait until the other process has computed the run, or has ended."""
        with stop_request() as request:
            while not request.asked:
                with suppress(RunLockedError):
                    _release(_acquire(self.lock))
                    return
                time.sleep(POLL_SECONDS)
        raise KeyboardInterrupt


def wait_for_others(work: Callable[[], T]) -> T:
    """Call `work`, and again after each run that another process was computing."""
    while True:
        try:
            return work()
        except RunLockedError as locked:
            locked.wait()


@dataclass(frozen=True, eq=False)
class Entry:
    """One stored run: `cell` is the JSON form of its key, `about` has names of data and model."""

    key: str
    cell: Mapping[str, Any]
    about: Mapping[str, str]
    result: RunResult
    versions: Mapping[str, str]
    written: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found = self.result
        return {
            "key": self.key,
            **self.about,
            "cell": dict(self.cell),
            "written": self.written,
            "versions": dict(self.versions),
            "parameters": dict(found.parameters),
            "seconds": found.seconds,
            "spent_seconds": found.spent,
            "validation": found.validation,
            "best_epoch": found.best_epoch,
            "curve": list(found.curve),
            "error": None if found.error is None else str(found.error),
            "evaluation": None if found.evaluation is None else found.evaluation.to_dict(),
        }


class Store:
    """A folder of stored runs, created with the first one; several processes may use it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()
        if self.folder.exists() and not self.folder.is_dir():
            raise ParameterError(
                f"{folder} is a file, and stored runs need a folder: name another."
            )

    def place(self, key: str) -> Path:
        """Return the folder of an entry."""
        return self.folder / key[:2] / key

    def find(self, key: RunKey) -> RunResult | None:
        """Return a stored result, or None; a damaged entry counts as missing."""
        if not (self.place(key.digest) / _HEAD).exists():
            return None
        try:
            return self.read(key.digest).result
        except DataError as problem:
            warn(f"{problem} It is run again.", stacklevel=2)
            return None

    def get(
        self, key: RunKey, compute: Callable[[], RunResult], about: Mapping[str, str]
    ) -> RunResult:
        """Return the stored result of a run, or compute and store it.

        Errors are stored only if the training diverged, as it would again. Raises a
        `RunLockedError` if another process is computing the run.
        """
        if (found := self.find(key)) is not None:
            return found
        with self.lock(key):
            if (found := self.find(key)) is not None:  # stored between the look-up and the lock
                return found
            result = compute()
            if result.error is None or isinstance(result.error, DivergenceError):
                self.write(key, result, about)
            return result

    def read(self, key: str) -> Entry:
        """Read an entry; a `DataError` says that it is damaged, altered or of another format."""
        from transcf.data.json_text import from_json
        from transcf.experiments.results import FILES, from_parts

        place = self.place(key)
        try:
            text = _read_bytes(place / _HEAD).decode()
            head = from_json(text)
            if head["format"] != _FORMAT:
                raise ValueError(f"format {head['format']}, and this library reads {_FORMAT}")
            if head["key"] != key or head["sha256"] != _checksum(_body(text).encode()):
                raise ValueError(f"{_HEAD} was altered")
            body = head["run"]
            contents = {}
            for name in [name for name in FILES.values() if name in body["files"]]:
                contents[name] = _read_bytes(place / name)
                if _checksum(contents[name]) != body["files"][name]:
                    raise ValueError(f"{name} was altered")
            result = from_parts(body["result"], contents)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise DataError(
                f"The stored run {place} is damaged ({problem}): `transcf runs rm {key[:12]}` "
                "removes it."
            ) from problem
        about = {name: body[name] for name in ("cell", "about", "versions", "written")}
        return Entry(key=key, result=result, **about)

    def write(self, key: RunKey, result: RunResult, about: Mapping[str, str]) -> None:
        """Store a result, replacing an entry of the same key; warn if it cannot be written."""
        from transcf.data.atomic import atomic_write_dir
        from transcf.data.json_text import to_json
        from transcf.experiments.results import FILES, to_dict

        place, sums = self.place(key.digest), {}
        body: dict[str, Any] = {
            "cell": key.to_dict(),
            # A file name that is not Unicode has surrogates, which JSON cannot hold.
            "about": {name: text.encode(errors="replace").decode() for name, text in about.items()},
            "versions": {name: version(name) for name in _LIBRARIES if name in sys.modules},
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            with atomic_write_dir(place) as folder:
                for part, name in FILES.items():
                    if (found := getattr(result, part)) is not None:
                        found.per_user.write_parquet(folder / name)
                        sums[name] = _checksum((folder / name).read_bytes())
                text = to_json({**body, "result": to_dict(result), "files": sums})
                head = {"format": _FORMAT, "key": key.digest, "sha256": _checksum(text.encode())}
                (folder / _HEAD).write_text(to_json({**head, "run": json.loads(text)}) + "\n")
        except WriteError as problem:
            # Names the store instead of the entry, so that the same warning is shown once.
            reason = str(problem).replace(str(place), str(self.folder))
            warn(f"{reason} Results are not stored.", stacklevel=3)
            return
        with suppress(OSError):  # the index is made again from the entries
            row = _index_row(Entry(key=key.digest, result=result, **body), place)
            with (self.folder / _INDEX).open("a", encoding="utf-8") as index:
                index.write(json.dumps(row) + "\n")

    def remove(self, key: str) -> None:
        """Remove an entry: first its name, then its files."""
        place = self.place(key)
        aside = place.with_name(f".{key}.{os.getpid()}.removed")
        place.rename(aside)
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside)
        else:
            aside.unlink()
        with suppress(OSError):
            place.parent.rmdir()  # if it is empty

    def lock(self, key: RunKey) -> AbstractContextManager[object]:
        """Lock a run for a block; the system unlocks it when the process ends.

        Raises a `RunLockedError` if another process has locked it. If files cannot be locked, two
        processes may compute the same run, with equal results.
        """
        path = self.folder / _LOCKS / f"{key.digest}.lock"
        return temporary(partial(_acquire, path), _release)

    def all_keys(self) -> list[str]:
        """Return the keys of all entries, sorted."""
        if not self.folder.is_dir():
            return []
        shards = [shard.path for shard in os.scandir(self.folder) if len(shard.name) == 2]
        names = [name for shard in shards if os.path.isdir(shard) for name in os.listdir(shard)]
        return sorted(name for name in names if not name.startswith("."))

    def one_key(self, prefix: str) -> str:
        """Return the only key that begins with a text."""
        found = [key for key in self.all_keys() if prefix and key.startswith(prefix)]
        if len(found) != 1:
            few = f"{len(found)} runs begin" if found else "No run begins"
            raise ParameterError(
                f"{few} with {prefix!r} in {self.folder}: `transcf runs list` shows their keys."
            )
        return found[0]

    def listed(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return `key` and `COLUMNS` of all entries, the oldest first, and errors of damaged ones.

        Only entries that are not in the index, or changed since, are read.
        """
        from transcf.data.atomic import atomic_write_text

        index = self._read_index()
        rows: list[dict[str, Any]] = []
        damaged = []
        for key in self.all_keys():
            row, place = index.get(key), self.place(key)
            if row is None or row["stamp"] != _stamp(place):
                try:
                    row = _index_row(self.read(key), place)
                except DataError as problem:
                    damaged.append(str(problem))
                    continue
            rows.append(row)
        if any(index.get(row["key"]) is not row for row in rows):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            with suppress(WriteError, OSError):
                atomic_write_text(self.folder / _INDEX, text)
        return sorted(rows, key=lambda row: (str(row["written"]), row["key"])), damaged

    def _read_index(self) -> dict[str, dict[str, Any]]:
        """Return the lines of the index by key; those that are damaged count as missing."""
        lines = {}
        with suppress(OSError, UnicodeDecodeError):
            for text in (self.folder / _INDEX).read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, RecursionError):
                    line = json.loads(text)
                    if isinstance(line, dict) and line.keys() == {"key", *COLUMNS, "stamp"}:
                        lines[str(line["key"])] = line
        return lines


def default_folder() -> Path:
    """Return $TRANSCF_RUNS, or else `runs` in the user's cache ($XDG_CACHE_HOME or ~/.cache)."""
    named = os.environ.get("TRANSCF_RUNS")
    return Path(named) if named else user_cache() / "runs"


def _acquire(path: Path) -> BaseFileLock | None:
    """Lock a file; None if the file system is full or has no locks."""
    from filelock import FileLock, Timeout

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(path, fallback_to_soft=False).acquire(timeout=0).lock
    except Timeout:
        raise RunLockedError(path) from None
    except OSError as error:
        if error.errno not in _NO_LOCK:
            raise
        return None


def _release(lock: BaseFileLock | None) -> None:
    """Remove a lock file while it is locked, and unlock it."""
    if lock is not None:
        with suppress(OSError):  # Windows does not remove open files
            os.unlink(lock.lock_file)
        lock.release()


def _index_row(entry: Entry, place: Path) -> dict[str, Any]:
    result, rules = entry.result, entry.cell["rules"]
    metric = str(rules.get("metric", ""))
    if result.evaluation is not None:
        metric, figure = next((name, str(e)) for name, e in result.evaluation.metrics.items())
    else:
        figure = "-" if result.validation is None else f"{result.validation:.4f}"
    return {
        "key": entry.key,
        "kind": entry.cell["kind"],
        "dataset": entry.about.get("dataset", ""),
        "model": entry.about.get("model", ""),
        "seed": entry.cell["settings"].get("random_state"),
        "protocol": rules.get("protocol", "validation"),
        "metric": metric,
        "figure": figure if result.error is None else "failed",
        "seconds": round(result.spent, 2),
        "written": entry.written,
        "stamp": _stamp(place),
    }


def _stamp(place: Path) -> str:
    """Return sizes and times of the files of an entry; empty if it is no folder."""
    try:
        files = sorted((file.name, file.stat()) for file in os.scandir(place))
    except OSError:
        return ""
    return " ".join(f"{name}:{about.st_size}:{about.st_mtime_ns}" for name, about in files)


def _body(text: str) -> str:
    """Cut the text of the checksum out of an entry: its last part, one step less indented."""
    return text[text.index(_RUN) + len(_RUN) : text.rindex("\n}")].replace("\n  ", "\n")


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_bytes(path: Path) -> bytes:
    """Read a plain file; a pipe would block."""
    if not path.is_file():
        raise ValueError(f"{path.name} is not a file")
    return path.read_bytes()
