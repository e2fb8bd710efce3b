"""The store of runs: results of cells in files, each written once under the key of its cell.

    FOLDER/3f/3f9a.../run.json         the cell, and all that came of it but the users' figures
                      users.parquet    metrics of every user
                      full.parquet     the same in full ranking, where a protocol samples
    FOLDER/claims/3f9a....lock         somebody is at this cell; free when its process has ended

An entry takes its name when it is whole, so that a kill loses at most the cell under way.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
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

from transcf.data.atomic import whole_folder
from transcf.data.json_text import from_json, misfit, to_json
from transcf.data.parquet import damage_of
from transcf.errors import DataError, DivergenceError, ParameterError, shown
from transcf.evaluation import Evaluation
from transcf.experiments.cells import Cell, Kind, Result
from transcf.experiments.locks import locked
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


@dataclass(frozen=True, eq=False)
class Entry:
    """One stored run.

    Attributes:
        key: What it is found by.
        cell: What it depends on, JSON form.
        about: Names for people: `dataset` and `model`.
        result: What came of it.
        versions: Of the libraries that made it.
        written: When, in UTC.
    """

    key: str
    cell: Mapping[str, Any]
    about: Mapping[str, str]
    result: Result
    versions: Mapping[str, str]
    written: str


class Store:
    """A folder of stored runs; several processes may use it at the same time.

    Args:
        folder: Where; it appears with the first run.

    Example:
        >>> from transcf import EASE, Validation, open_split
        >>> split, store = open_split("synthetic"), Store("my-runs")
        >>> cell = Cell.trial(EASE(), split.train, Validation.of(split))
        >>> store.find(cell) is None
        True
        >>> store.write(cell, Result("EASE", validation=0.25), {"dataset": "synthetic"})
        >>> store.find(cell).validation
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

    def find(self, cell: Cell) -> Result | None:
        """Return what came of a cell, None if it was not run; a damaged entry counts as not run."""
        if not (self.place(cell.key) / _HEAD).exists():
            return None
        try:
            return self.read(cell.key).result
        except DataError as problem:
            warnings.warn(f"{problem} It is run again.", stacklevel=2)
            return None

    def write(self, cell: Cell, result: Result, about: Mapping[str, str]) -> None:
        """Keep what came of a cell; an entry of the same key is replaced."""
        place = self.place(cell.key)
        with whole_folder(place) as folder:
            sums = {}
            for name, found in ((_USERS, result.evaluation), (_FULL, result.full_ranking)):
                if found is not None:
                    found.per_user.write_parquet(folder / name)
                    sums[name] = _checksum((folder / name).read_bytes())
            body = {
                "cell": cell.to_dict(),
                # A file name that is not Unicode has surrogates, which JSON cannot hold.
                "about": {k: name.encode(errors="replace").decode() for k, name in about.items()},
                "versions": _versions(),
                "written": datetime.now(UTC).isoformat(timespec="seconds"),
                "result": _result_to_dict(result),
                "files": sums,
            }
            text = to_json(body)
            head = {"format": _FORMAT, "key": cell.key, "sha256": _checksum(text.encode())}
            (folder / _HEAD).write_text(to_json({**head, "run": json.loads(text)}) + "\n")

    @contextmanager
    def claim(self, cell: Cell) -> Iterator[bool]:
        """Say whether this cell is ours for the length of the block; else somebody is at it.

        The system ends a claim with the process that has it, however that ends. Where files cannot
        be locked, everything is ours: two processes may run the same cell then, with one result.
        """
        with locked(self.folder / _CLAIMS / f"{cell.key}.lock") as is_ours:
            yield is_ours

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
    **{name: kind for name, kind in get_type_hints(Result).items() if name != "stored"},
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
    ~/.cache/transcf): the same cell is found again from every working folder, and what is lost can
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


def _result_to_dict(result: Result) -> dict[str, Any]:
    """JSON form, without the figures of users."""
    content = {entry.name: getattr(result, entry.name) for entry in fields(result)}
    del content["stored"]
    content["error"] = None if result.error is None else str(result.error)
    for name in (_EVALUATION, _FULL_RANKING):
        if content[name] is not None:
            known = {entry.name: getattr(content[name], entry.name) for entry in fields(Evaluation)}
            content[name] = {key: value for key, value in known.items() if key != "per_user"}
    return content


def _result_from_dict(content: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> Result:
    read = {**content, "stored": True}
    if content["error"] is not None:
        read["error"] = DivergenceError(content["error"])
    for name, file in ((_EVALUATION, _USERS), (_FULL_RANKING, _FULL)):
        if (about := content[name]) is not None:
            figures = {
                n: nan if value is None else value for n, value in about["catalogue"].items()
            }
            read[name] = Evaluation(**{**about, "catalogue": figures, "per_user": tables[file]})
    return Result(**read)
