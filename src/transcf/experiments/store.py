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
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transcf.errors import DataError, DivergenceError, ParameterError, WriteError
from transcf.interrupts import stop_request, temporary
from transcf.user_cache import user_cache

if TYPE_CHECKING:
    from filelock import BaseFileLock

    from transcf.experiments.results import RunResult
    from transcf.experiments.run import RunKey

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
#: Columns of the index after the key and the sizes and times of the files.
COLUMNS = (
    "kind", "dataset", "model", "seed", "protocol", "metric", "figure", "seconds", "written",
)  # fmt: skip


class RunLockedError(Exception):
    """Another process is computing this run."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One stored run: `cell` is the JSON form of its key, `about` has names of data and model."""

    key: str
    cell: Mapping[str, Any]
    about: Mapping[str, str]
    result: RunResult
    versions: Mapping[str, str]
    written: str


class Store:
    """A folder of stored runs, created with the first one; several processes may use it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
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
            warnings.warn(f"{problem} It is run again.", stacklevel=2)
            return None

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
        """Store a result; an entry of the same key is replaced."""
        from transcf.data.atomic import atomic_write_dir
        from transcf.data.json_text import to_json
        from transcf.experiments.results import FILES, to_dict

        place, digest = self.place(key.digest), key.digest
        # A file name that is not Unicode has surrogates, which JSON cannot hold.
        about = {name: text.encode(errors="replace").decode() for name, text in about.items()}
        with atomic_write_dir(place) as folder:
            sums = {}
            for part, name in FILES.items():
                if (found := getattr(result, part)) is not None:
                    found.per_user.write_parquet(folder / name)
                    sums[name] = _checksum((folder / name).read_bytes())
            body: dict[str, Any] = {
                "cell": key.to_dict(),
                "about": about,
                "versions": {name: _version(name) for name in _LIBRARIES if name in sys.modules},
                "written": datetime.now(UTC).isoformat(timespec="seconds"),
                "result": to_dict(result),
                "files": sums,
            }
            text = to_json(body)
            head = {"format": _FORMAT, "key": digest, "sha256": _checksum(text.encode())}
            (folder / _HEAD).write_text(to_json({**head, "run": json.loads(text)}) + "\n")
        with suppress(OSError):  # the index is made again from the entries
            written = Entry(digest, body["cell"], about, result, {}, body["written"])
            line = _index_line(written, _stamp(place))
            with (self.folder / _INDEX).open("a", encoding="utf-8") as index:
                index.write(line)

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

    @contextmanager
    def lock(self, key: RunKey, *, wait: bool = False) -> Iterator[None]:
        """Lock a run inside the block; the system unlocks it when the process ends.

        Raises a `RunLockedError` if another process has locked it and not `wait`. If files cannot
        be locked, two processes may compute the same run, with equal results.
        """
        path = self.folder / _LOCKS / f"{key.digest}.lock"
        with ExitStack() as held:
            with stop_request() as request:
                while True:
                    try:
                        held.enter_context(temporary(partial(_acquire, path), _release))
                        break
                    except RunLockedError:
                        if not wait:
                            raise
                        if request.asked:
                            raise KeyboardInterrupt from None
                        time.sleep(POLL_SECONDS)
            yield

    def remove_free_locks(self) -> None:
        """Remove the lock files that killed processes left."""
        for path in (self.folder / _LOCKS).glob("*.lock"):
            with suppress(RunLockedError):
                _release(_acquire(path))

    def all_keys(self, prefix: str = "") -> list[str]:
        """Return the keys of all entries that begin with a text, sorted."""
        if not self.folder.is_dir():
            return []
        shards = [shard.path for shard in os.scandir(self.folder) if len(shard.name) == 2]
        names = [name for shard in shards if os.path.isdir(shard) for name in os.listdir(shard)]
        return sorted(n for n in names if n.startswith(prefix) and not n.startswith("."))

    def one_key(self, prefix: str) -> str:
        """Return the only key that begins with a text."""
        found = self.all_keys(prefix) if prefix else []
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
        lines = self._index_lines()
        found, damaged, is_complete = {}, [], True
        for key in self.all_keys():
            stamp = _stamp(self.place(key))
            line = lines.get(key)
            if line is None or line[1] != stamp:
                try:
                    line = json.loads(_index_line(self.read(key), stamp))
                except DataError as problem:
                    damaged.append(str(problem))
                    continue
                is_complete = False
            found[key] = line
        if not is_complete:
            self._write_index(found.values())
        rows = [dict(zip(COLUMNS, line[2:], strict=True), key=key) for key, line in found.items()]
        return sorted(rows, key=lambda row: (str(row["written"]), row["key"])), damaged

    def _index_lines(self) -> dict[str, list[Any]]:
        """Read the index; lines that are damaged count as missing."""
        lines = {}
        with suppress(OSError, UnicodeDecodeError):
            for text in (self.folder / _INDEX).read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, RecursionError):
                    line = json.loads(text)
                    plain = isinstance(line, list) and len(line) == len(COLUMNS) + 2
                    if plain and all(isinstance(v, str | int | float | None) for v in line):
                        lines[str(line[0])] = line
        return lines

    def _write_index(self, lines: Any) -> None:
        from transcf.data.atomic import atomic_write

        with suppress(WriteError, OSError), atomic_write(self.folder / _INDEX) as path:
            path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def cached(
    store: Store | None,
    key: RunKey | None,
    about: Mapping[str, str] | None,
    compute: Callable[[], RunResult],
    *,
    wait: bool,
) -> RunResult:
    """Return the stored result of a run, or compute and store it.

    Errors are stored only if the training diverged, as it would again. If the result cannot be
    written, there is a warning. Raises a `RunLockedError` as `Store.lock` does.
    """
    if store is None or key is None:
        return compute()
    if (found := store.find(key)) is not None:
        return found
    with store.lock(key, wait=wait):
        if (found := store.find(key)) is not None:  # stored between the look-up and the lock
            return found
        result = compute()
        if result.error is None or isinstance(result.error, DivergenceError):
            try:
                store.write(key, result, about or {})
            except WriteError as problem:
                # Names the store instead of the entry, so that the same warning is shown once.
                reason = str(problem).replace(str(store.place(key.digest)), str(store.folder))
                warnings.warn(f"{reason} Results are not stored.", stacklevel=2)
        return result


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
        raise RunLockedError from None
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


def _index_line(entry: Entry, stamp: str) -> str:
    result, cell = entry.result, entry.cell
    metric = str(cell["rules"].get("metric", ""))
    if result.evaluation is not None:
        metric, figure = next((name, str(e)) for name, e in result.evaluation.metrics.items())
    else:
        figure = "-" if result.validation is None else f"{result.validation:.4f}"
    values = {
        "kind": cell["kind"],
        "dataset": entry.about.get("dataset", ""),
        "model": entry.about.get("model", ""),
        "seed": cell["settings"].get("random_state"),
        "protocol": cell["rules"].get("protocol", "validation"),
        "metric": metric,
        "figure": figure if result.error is None else "failed",
        "seconds": round(result.spent, 2),
        "written": entry.written,
    }
    plain = [v if isinstance(v, str | int | float | None) else str(v) for v in values.values()]
    return json.dumps([entry.key, stamp, *plain]) + "\n"


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


@cache
def _version(library: str) -> str:
    return version(library)  # reads a file


def _read_bytes(path: Path) -> bytes:
    """Read a plain file; a pipe would block."""
    if not path.is_file():
        raise ValueError(f"{path.name} is not a file")
    return path.read_bytes()
