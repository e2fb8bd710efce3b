"""The run cache: results of runs in files, under the hash of what they depend on.

    FOLDER/3f/3f9a.../run.json         key and result, without the metrics of users
                      users.parquet    metrics of every user
                      full.parquet     the same in full ranking, where a protocol samples
    FOLDER/claims/3f9a....lock         locked by the process that computes this run

Entries are written to a temporary folder and renamed, so that a kill loses at most the run in
progress.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from math import nan
from pathlib import Path
from typing import Any, TypedDict, get_type_hints

import polars as pl
from polars.exceptions import PanicException, PolarsError

from transcf.data.atomic import atomic_write_dir
from transcf.data.json_text import from_json, misfit, to_json
from transcf.data.parquet_check import damage_of
from transcf.errors import DataError, DivergenceError, ParameterError, WriteError, shown
from transcf.evaluation import Evaluation
from transcf.experiments.locks import locked
from transcf.experiments.run_key import Kind, RunKey
from transcf.experiments.run_result import RunResult
from transcf.user_cache import user_cache

_FORMAT = 1
_HEAD, _USERS, _FULL = "run.json", "users.parquet", "full.parquet"
_CLAIMS = "claims"
#: What stands before all that the checksum is of.
_RUN = '"run": '
#: What of a result has figures of users.
_EVALUATION, _FULL_RANKING = "evaluation", "full_ranking"
#: Libraries whose versions are noted; the last one where it is in use.
_LIBRARIES = ("transcf", "numpy", "numba", "polars", "torch")


class RunLockedError(Exception):
    """Another process is computing this run."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One stored run.

    Attributes:
        key: Hash of the `RunKey`.
        cell: JSON form of the `RunKey`.
        about: Names in lists: `dataset` and `model`.
        result: The result.
        versions: Versions of the libraries that computed it.
        written: Time in UTC.
    """

    key: str
    cell: Mapping[str, Any]
    about: Mapping[str, str]
    result: RunResult
    versions: Mapping[str, str]
    written: str


class Store:
    """A folder of stored runs; several processes may use it at the same time.

    Args:
        folder: Where; it appears with the first run.

    Example:
        >>> from transcf import EASE, Validation, open_split
        >>> split, store = open_split("synthetic"), Store("my-runs")
        >>> key = RunKey.trial(EASE(), split.train, Validation.of(split))
        >>> store.find(key) is None
        True
        >>> store.write(key, RunResult("EASE", validation=0.25), {"dataset": "synthetic"})
        >>> store.find(key).validation
        0.25
    """

    def __init__(self, folder: str | Path) -> None:
        """Refuse what cannot be a folder."""
        self.folder = Path(folder).expanduser()
        if self.folder.exists() and not self.folder.is_dir():
            raise ParameterError(
                f"{folder} is a file, and stored runs need a folder: name another."
            )

    def absolute(self) -> Store:
        """Return it by a name that means the same in every working folder."""
        return Store(self.folder.resolve())

    def find(self, key: RunKey) -> RunResult | None:
        """Return a stored result, or None; a damaged entry counts as missing."""
        if not (self.place(key.digest) / _HEAD).exists():
            return None
        try:
            return self.read(key.digest).result
        except DataError as problem:
            warnings.warn(f"{problem} It is run again.", stacklevel=2)
            return None

    def write(self, key: RunKey, result: RunResult, about: Mapping[str, str]) -> None:
        """Store a result; an entry of the same key is replaced."""
        place = self.place(key.digest)
        with atomic_write_dir(place) as folder:
            sums = {}
            for name, found in ((_USERS, result.evaluation), (_FULL, result.full_ranking)):
                if found is not None:
                    found.per_user.write_parquet(folder / name)
                    sums[name] = _checksum((folder / name).read_bytes())
            body = {
                "cell": key.to_dict(),
                # A file name that is not Unicode has surrogates, which JSON cannot hold.
                "about": {k: name.encode(errors="replace").decode() for k, name in about.items()},
                "versions": _versions(),
                "written": datetime.now(UTC).isoformat(timespec="seconds"),
                "result": _result_to_dict(result),
                "files": sums,
            }
            text = to_json(body)
            head = {"format": _FORMAT, "key": key.digest, "sha256": _checksum(text.encode())}
            (folder / _HEAD).write_text(to_json({**head, "run": json.loads(text)}) + "\n")

    @contextmanager
    def lock(self, key: RunKey) -> Iterator[None]:
        """Lock a run inside the block; the system unlocks it when the process ends.

        Where files cannot be locked, two processes may compute the same run, with equal results.

        Raises:
            RunLockedError: Another process has locked it.
        """
        with locked(self.folder / _CLAIMS / f"{key.digest}.lock") as is_ours:
            if not is_ours:
                raise RunLockedError
            yield

    def remove_free_locks(self) -> None:
        """Remove the lock files that killed processes left."""
        for path in (self.folder / _CLAIMS).glob("*.lock"):
            with locked(path):  # a lock that is free is taken, and removed at the end
                pass

    def all_keys(self, prefix: str = "") -> list[str]:
        """Return the keys of all entries that begin with a text, sorted."""
        if not self.folder.is_dir():
            return []
        shards = [
            shard for shard in self.folder.iterdir() if len(shard.name) == 2 and shard.is_dir()
        ]
        return sorted(
            place.name
            for shard in shards
            for place in shard.iterdir()
            if not place.name.startswith(".") and place.name.startswith(prefix)
        )

    def one_key(self, prefix: str) -> str:
        """Return the only key that begins with a text.

        Raises:
            ParameterError: There is none, or more than one.
        """
        found = self.all_keys(prefix) if prefix else []
        if len(found) != 1:
            few = f"{len(found)} runs begin" if found else "No run begins"
            raise ParameterError(
                f"{few} with {prefix!r} in {self.folder}: `transcf runs list` shows their keys."
            )
        return found[0]

    def read(self, key: str) -> Entry:
        """Read an entry.

        Raises:
            DataError: It is damaged, altered or of another format.
        """
        place = self.place(key)
        try:
            text = _read_bytes(place / _HEAD).decode()
            head = from_json(text)
            if (wrong := misfit(head, _ENTRY)) is not None:
                raise ValueError(f"it has no valid value of {shown(wrong)}")
            if head["format"] != _FORMAT:
                raise ValueError(f"format {head['format']}, and this library reads {_FORMAT}")
            if head["key"] != key or head["sha256"] != _checksum(_body(text).encode()):
                raise ValueError(f"{_HEAD} was altered")
            body = head["run"]
            tables = {
                name: _read_table(place / name, body["files"][name])
                for name in (_USERS, _FULL)
                if name in body["files"]
            }
            result = _result_from_dict(body["result"], tables)
        except (OSError, PolarsError, PanicException, ValueError, KeyError) as problem:
            raise DataError(
                f"The stored run {place} is damaged ({problem}): `transcf runs rm {key[:12]}` "
                "removes it."
            ) from problem
        about = {name: body[name] for name in ("cell", "about", "versions", "written")}
        return Entry(key=key, result=result, **about)

    def remove(self, key: str) -> None:
        """Remove an entry: first its name, then what is in it."""
        place = self.place(key)
        aside = place.with_name(f".{key}.{os.getpid()}.removed")
        place.rename(aside)
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside)
        else:
            aside.unlink()
        with suppress(OSError):
            place.parent.rmdir()  # if it was the last one there

    def place(self, key: str) -> Path:
        """Return the folder of an entry."""
        return self.folder / key[:2] / key


@dataclass
class CachedRun:
    """A run that is found in the cache, or computed and then stored there.

    Attributes:
        result: The stored result; None if it has to be computed and set.
    """

    result: RunResult | None = None


@contextmanager
def cached_run(
    store: Store | None, make_key: Callable[[], RunKey], about: Mapping[str, str] | None = None
) -> Iterator[CachedRun]:
    """Look up a run; if it is not stored, lock it, and store the result that the block sets.

    Errors are stored only if the training diverged, as it would again. If the result cannot be
    written, there is a warning.

    Args:
        store: The cache; with None, nothing is found and stored.
        make_key: Returns what the result depends on.
        about: Names in lists: `dataset` and `model`.

    Raises:
        RunLockedError: Another process is computing this run.
    """
    if store is None:
        yield CachedRun()
        return
    key = make_key()
    if (found := store.find(key)) is not None:
        yield CachedRun(found)
        return
    with store.lock(key):
        run = CachedRun(store.find(key))  # another process may have stored it before the lock
        is_new = run.result is None
        yield run
        result = run.result
        if is_new and result and (not result.error or isinstance(result.error, DivergenceError)):
            try:
                store.write(key, result, about or {})
            except WriteError as problem:
                # Names the store instead of the entry, so that the same warning is shown once.
                reason = str(problem).replace(str(store.place(key.digest)), str(store.folder))
                warnings.warn(f"{reason} Results are not stored.", stacklevel=2)


class _Step(TypedDict):
    """One epoch of a curve."""

    epoch: int
    loss: float | None
    metric: float | None


class _Figures(TypedDict):
    """An evaluation without the figures of users."""

    model: str
    protocol: str
    ties: str
    part: str
    skipped: dict[str, int]
    catalogue: dict[str, float | None]
    note: str
    split: str


#: Types of the JSON form of a result and of an entry.
_RESULT = {
    **{name: kind for name, kind in get_type_hints(RunResult).items() if name != "stored"},
    "curve": list[_Step],
    _EVALUATION: _Figures | None,
    _FULL_RANKING: _Figures | None,
    "error": str | None,
}
_RUN_KIND = {
    "cell": {"kind": Kind, "data": str, "rules": dict[str, Any], "settings": dict[str, Any]},
    "about": dict[str, str],
    "versions": dict[str, str],
    "written": str,
    "result": _RESULT,
    "files": dict[str, str],
}
_ENTRY = {"format": int, "key": str, "sha256": str, "run": _RUN_KIND}


def default_folder() -> Path:
    """Return where runs are stored unless somebody says where.

    That is $TRANSCF_RUNS, else `runs` in the user's cache ($XDG_CACHE_HOME/transcf or
    ~/.cache/transcf): the same run is found again from every working folder, and what is lost can
    be run again.
    """
    named = os.environ.get("TRANSCF_RUNS")
    return Path(named) if named else user_cache() / "runs"


def _body(text: str) -> str:
    """Cut what the checksum is of out of an entry: its last part, one step less indented."""
    return text[text.index(_RUN) + len(_RUN) : text.rindex("\n}")].replace("\n  ", "\n")


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _versions() -> dict[str, str]:
    return {name: _version(name) for name in _LIBRARIES if name in sys.modules}


@cache
def _version(library: str) -> str:
    return version(library)  # reads a file


def _read_table(path: Path, checksum: str) -> pl.DataFrame:
    content = _read_bytes(path)
    if _checksum(content) != checksum:
        raise ValueError(f"{path.name} was altered")
    if (damage := damage_of(content)) is not None:
        raise ValueError(f"{path.name} is damaged: {damage}")
    table = pl.read_parquet(content)
    figures = table.drop("user_id")
    if not all(kind.is_float() for kind in figures.dtypes) or not figures.width * figures.height:
        raise ValueError(f"{path.name} has no figures of users")
    if figures.null_count().sum_horizontal().item():
        raise ValueError(f"{path.name} has missing figures")
    return table


def _read_bytes(path: Path) -> bytes:
    """Read a plain file; a pipe would block."""
    if not path.is_file():
        raise ValueError(f"{path.name} is not a file")
    return path.read_bytes()


def _result_to_dict(result: RunResult) -> dict[str, Any]:
    """JSON form, without the figures of users."""
    content = {entry.name: getattr(result, entry.name) for entry in fields(result)}
    del content["stored"]
    content["error"] = None if result.error is None else str(result.error)
    for name in (_EVALUATION, _FULL_RANKING):
        if content[name] is not None:
            known = {entry.name: getattr(content[name], entry.name) for entry in fields(Evaluation)}
            content[name] = {key: value for key, value in known.items() if key != "per_user"}
    return content


def _result_from_dict(content: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> RunResult:
    read = {**content, "stored": True}
    if content["error"] is not None:
        read["error"] = DivergenceError(content["error"])
    for name, file in ((_EVALUATION, _USERS), (_FULL_RANKING, _FULL)):
        if (about := content[name]) is not None:
            figures = {
                n: nan if value is None else value for n, value in about["catalogue"].items()
            }
            read[name] = Evaluation(**{**about, "catalogue": figures, "per_user": tables[file]})
    return RunResult(**read)
