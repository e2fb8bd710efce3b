"""Saved models: one folder of tensors, JSON and ids, without code.

| file | holds |
|---|---|
| `model.json` | format version, model, hyper-parameters, training report, size and checksums |
| `model.safetensors` | the learned arrays |
| `users.parquet`, `items.parquet` | the caller's ids, in row order |
| `seen.parquet` | user and item rows of the training interactions, and the place of each in time |
| `README.md` | the model card; loading does not read it, so it may be edited |

Loading compares every file with its SHA-256, in pieces of 64 MiB on all cores. Checksums find
damage and careless edits; they do not authenticate the author. A folder can only name a registered
model, and no file in it can execute code.

`save` never writes to an existing file: it replaces the folder. Files that are read meanwhile may
belong to different folders, which their checksums show; reading then starts again. Loaded arrays
are a private copy; those of `LARGE_BYTES` and more are memory-mapped, so that a large model is
ready at once and its memory is shared between processes. Other programs should replace folders as
`save` does (`cp -r` to a new name, then `mv`): writing to a mapped file changes answers, and
truncating it ends the process. Where that cannot be ruled out, load with `mapped=False`.

Version 1 of a model is its folder, say `models/shop`. Later ones are `models/shop.versions/2` and
so on, and `models/shop.versions/current` holds the number of the current one, which everything that
loads a model by the name of its folder uses: `transcf.load`, every command, and the service.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import mmap
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from transcf import __version__
from transcf.data.atomic import atomic_write, atomic_write_dir, is_taken
from transcf.data.csr import Csr, Histories
from transcf.data.files import path_of
from transcf.data.ids import IdMap
from transcf.data.json_text import from_json, misfit
from transcf.data.parquet_check import damage_of
from transcf.data.readers import Reading
from transcf.data.training_data import TrainingData
from transcf.errors import ModelFileError, ParameterError, shown
from transcf.io import tensors
from transcf.parallel import check_unforked

About: TypeAlias = dict[str, Any]

#: From this size on arrays are mapped unless the caller says otherwise; smaller ones are copied.
LARGE_BYTES = 256 * 2**20
#: Checksums are of pieces of this size, so that a large file is hashed by all cores in parallel.
PIECE_BYTES = 64 * 2**20
#: How often reading restarts if the folder is replaced meanwhile.
_ATTEMPTS = 100
#: Users whose histories are sorted at a time, to bound the memory.
_USERS_AT_ONCE = 1 << 16
#: How a version is numbered.
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")

#: The description of a model.
NAME = "model.json"
_FORMAT, VERSION = "transcf-model", 3
#: The oldest format that is read; models of it may have other names, see `models.aliases`.
_OLDEST = 2
_CARD = "README.md"
_TENSORS = "model.safetensors"
_USERS, _ITEMS, _SEEN = "users.parquet", "items.parquet", "seen.parquet"
_CHECKED = (_TENSORS, _USERS, _ITEMS, _SEEN)
_REMEDY = "restore the folder from a copy or fit again"

#: Types of the training report; models add values of their own, which are not checked.
_REPORT = {
    "users": int,
    "items": int,
    "interactions": int,
    "seconds": float,
    "ending?": str,
    "dataset?": str | list[str],
    "reading?": dict,
    "protocol?": str,
    "split?": str,
    "split_seed?": int,
    "held_out?": bool,
    "fitted_on?": str,
    "events_after?": int,
}
_CONTENT = {
    "library": str,
    "class": str,
    "params": dict,
    "report": _REPORT,
    "timed": bool,
    "best_epoch": int | None,
    "additions": int,
    "files": {name: {"bytes": int, "sha256": list[str]} for name in _CHECKED},
}


def write_model(
    folder: str | Path,
    about: About,
    known: TrainingData,
    arrays: tensors.Arrays,
    summary: str = "",
    *,
    overwrite: bool = False,
) -> Path:
    """Write a model atomically to a folder; see `check_replaceable`.

    `about` is what the model says in its description: "class", "params" and "report" (JSON values),
    "timed", "best_epoch" and "additions". `summary` is a line of the model card.
    """
    check_unforked("save a model")
    target = path_of(folder).absolute()
    check_replaceable(target, overwrite=overwrite)
    with atomic_write_dir(target, replace=overwrite) as place:
        tensors.write(place / _TENSORS, arrays)
        known.users.series.to_frame().write_parquet(place / _USERS)
        known.items.series.to_frame().write_parquet(place / _ITEMS)
        _seen_table(known).write_parquet(place / _SEEN)
        about = _described(about, place)
        (place / NAME).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        (place / _CARD).write_text(model_card(summary, about, known.users), encoding="utf-8")
    return path_of(folder)


def read_model(
    folder: str | Path, *, mapped: bool | None = None
) -> tuple[About, TrainingData, tensors.Arrays]:
    """Read a model from its folder, also while the folder is being replaced.

    Args:
        folder: The folder.
        mapped: Whether arrays are mapped rather than copied; None maps large ones.

    Returns:
        Its description (see `write_model`; "version" is that of the format), the interactions that
        it was fitted on, and its arrays.

    Raises:
        ModelFileError: Something is missing, damaged, altered, too old or too new; the message
            says what.
    """
    check_unforked("load a model")
    path = path_of(folder)
    for _ in range(_ATTEMPTS):
        identity = _identity(path)
        try:
            return _read(path, mapped)
        except (ModelFileError, OSError) as error:
            if _identity(path) != identity:
                continue
            if isinstance(error, ModelFileError):
                raise
            raise _unreadable(Path(error.filename or path), error) from error
    raise ModelFileError(f"{path} is being replaced without pause: try again later.")


def _identity(folder: Path) -> tuple[int, int]:
    """Return what tells a folder from another one at the same path."""
    try:
        facts = os.stat(folder)
        if not folder.is_dir():
            raise NotADirectoryError
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise ModelFileError(f"There is no model folder {folder}.") from error
    except OSError as error:
        raise _unreadable(folder, error) from error
    return facts.st_ino, facts.st_ctime_ns


def _unreadable(path: Path, error: OSError) -> ModelFileError:
    return ModelFileError(f"{path} cannot be read: {error.strerror or error}.")


def _read(folder: Path, mapped: bool | None) -> tuple[About, TrainingData, tensors.Arrays]:
    about = _read_about(folder / NAME)
    contents = {name: _content(folder / name, about["files"][name], mapped) for name in _CHECKED}
    users, items = (_read_ids(folder / name, contents[name]) for name in (_USERS, _ITEMS))
    seen, histories = _read_seen(folder / _SEEN, contents[_SEEN], len(users), len(items))
    known = TrainingData(users, items, seen, histories, about["timed"])
    return about, known, tensors.parse(folder / _TENSORS, contents[_TENSORS])[1]


def _read_about(path: Path) -> About:
    """Read and check `model.json`: its own checksum, names and types; models check values."""
    folder, altered = path.parent, f"{path} was altered after it was saved: {_REMEDY}."
    if not path.is_file():
        raise ModelFileError(f"{folder} is not a saved model: it has no {NAME}.")
    try:
        about = from_json(path.read_bytes())
        if not isinstance(about, dict) or about.get("format") != _FORMAT:
            raise ModelFileError(f"{path} does not describe a model of this library.")
        version = about.get("version")
        if type(version) is not int or version < 1:
            raise ModelFileError(altered)
        if not _OLDEST <= version <= VERSION:
            remedy = "install a newer transcf" if version > VERSION else "fit again"
            raise ModelFileError(
                f"{folder} was written in format {version} and this library reads {_OLDEST} to "
                f"{VERSION}: {remedy}."
            )
        if about.get("sha256") != _own_checksum(about):
            raise ModelFileError(altered)
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged (it is not JSON): {_REMEDY}.") from error
    if (wrong := _wrong_part(about)) is not None:
        raise ModelFileError(f"{path} has no valid value of {shown(wrong)}: {_REMEDY}.")
    if "reading" in about["report"]:  # without options that only earlier versions had
        reading = about["report"]["reading"]
        known = [name for name in Reading.__annotations__ if name in reading]
        about["report"]["reading"] = {name: reading[name] for name in known}
    return about


def _own_checksum(about: About) -> str:
    content = {key: value for key, value in about.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _wrong_part(about: About) -> str | None:
    """Return the name of the first part with a wrong type or value, None if there is none."""
    wrong = misfit(about, _CONTENT)
    if wrong is not None:
        return wrong
    if about["additions"] < 0:
        return "additions"
    if about["best_epoch"] is not None and about["best_epoch"] < 1:
        return "best_epoch"
    return None


def _content(path: Path, entry: dict[str, Any], mapped: bool | None) -> tensors.Bytes:
    """Return the content of a file, mapped or copied, after checking its size and checksums."""
    if not path.is_file():
        raise ModelFileError(f"{path.parent} is incomplete: {path.name} is missing.")
    with path.open("rb") as file:
        written, present = entry["bytes"], os.fstat(file.fileno()).st_size
        if present < written:
            raise ModelFileError(f"{path} is cut off: {present:,} of {written:,} bytes are there.")
        if present > written:
            raise ModelFileError(f"{path} has grown: {present:,} bytes instead of {written:,}.")
        maps = present >= LARGE_BYTES if mapped is None else mapped
        if maps and present and path.name == _TENSORS:
            view = mmap.mmap(file.fileno(), present, access=mmap.ACCESS_READ)
            content = np.frombuffer(view, np.uint8)
        else:
            content = np.fromfile(file, np.uint8)
    if checksums(content) != entry["sha256"]:
        raise ModelFileError(f"{path} is damaged or was altered (its checksum differs): {_REMEDY}.")
    return content


def checksums(content: tensors.Bytes) -> list[str]:
    """Return the SHA-256 of every piece of a file; small files have one piece."""

    def digest(start: int) -> str:
        return hashlib.sha256(content[start : start + PIECE_BYTES].data).hexdigest()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(digest, range(0, max(len(content), 1), PIECE_BYTES)))


def _described(about: About, place: Path) -> About:
    """Return the content of `model.json`, JSON values only."""
    written = {name: np.memmap(place / name, np.uint8, "r") for name in _CHECKED}
    kind = about["class"]
    about = {"format": _FORMAT, "version": VERSION, "library": __version__, **about}
    about["files"] = {
        name: {"bytes": len(content), "sha256": checksums(content)}
        for name, content in written.items()
    }
    try:
        about = json.loads(json.dumps(about, default=np.generic.item, allow_nan=False))
        if (wrong := _wrong_part(about)) is not None:
            raise ValueError(f"{wrong} has another type")
    except (ValueError, TypeError) as error:
        raise ParameterError(
            f"{kind} cannot be saved: its parameters and report must be plain numbers, words "
            f"and lists ({error})."
        ) from error
    return {**about, "sha256": _own_checksum(about)}


def model_card(summary: str, about: About, users: IdMap) -> str:
    """Return the model card in Markdown: what the model is, how it was fitted, how to use it."""
    size = sum(entry["bytes"] for entry in about["files"].values())
    facts = {
        key: value
        for key, value in about["report"].items()
        if not isinstance(value, list) and key != "auto"  # a long report of its own
    }
    return f"""# {about["class"]}

{summary}

A recommender saved by transcf {about["library"]}, {size / 2**20:,.1f} MiB.

## Hyper-parameters

{_table(about["params"])}

## Training

{_table(facts)}

## Use

```python
import transcf

model = transcf.load("path/to/this/folder")
model.recommend({users.series[0]!r}, k=10)
```

## What is in the folder

Learned arrays (`model.safetensors`), settings and checksums (`model.json`), the ids of
users and items, and the training interactions (`seen.parquet`, so that items that a user
already has are not recommended). The ids and interactions of the training users are
personal data if they were so in the source: treat the folder accordingly.
"""


def _table(values: dict[str, Any]) -> str:
    if not values:
        return "None."
    return "\n".join(["| | |", "|---|---|", *(f"| {k} | `{v}` |" for k, v in values.items())])


def check_replaceable(target: Path, *, overwrite: bool = False) -> None:
    """Raise unless a model may be written to a free name, an empty folder or over a model."""
    current = Versions(target).current()
    if current != 1:
        raise ModelFileError(
            f"{target} has versions, and version {current} is in use: choose another folder, or "
            f"run `transcf refresh {target} --back-to 1` first."
        )
    if not is_taken(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise ModelFileError(f"{target} is not a folder: choose another place for the model.")
    present = {path.name for path in target.iterdir()}
    others = present - {NAME, _CARD, *_CHECKED}
    if others or (present and NAME not in present):
        raise ModelFileError(
            f"{target} holds other files (such as {min(others or present)}): choose another folder "
            "for the model, or empty this one."
        )
    if present and not overwrite:
        raise ModelFileError(
            f"{target} holds a model already: choose another folder, or replace it with "
            "overwrite=True or --overwrite."
        )


def _seen_table(known: TrainingData) -> pl.DataFrame:
    """User and item rows of each interaction, and its place in the user's history, from 0."""
    indptr, owners = known.seen.indptr, known.seen.entry_rows
    places = np.empty(len(owners), np.int32)
    for first in range(0, known.seen.n_rows, _USERS_AT_ONCE):
        users = np.arange(first, min(first + _USERS_AT_ONCE, known.seen.n_rows))
        some = known.histories.take(users)
        places[indptr[first] : indptr[users[-1] + 1]] = some.places[some.by_item] - 1
    return pl.DataFrame({"user": owners, "item": known.seen.indices, "place": places})


def _read_ids(path: Path, content: tensors.Bytes) -> IdMap:
    ids = _read_table(path, content, {"id": (pl.Int64, pl.String)})["id"]
    if not ids.is_sorted() or ids.n_unique() != len(ids):
        raise ModelFileError(f"{path} does not hold unique ids in ascending order.")
    return IdMap(ids)


def _read_seen(
    path: Path, content: tensors.Bytes, n_users: int, n_items: int
) -> tuple[Csr, Histories]:
    kinds = dict.fromkeys(("user", "item", "place"), (pl.Int32,))
    table = _read_table(path, content, kinds)
    users, items, places = (table[name].to_numpy() for name in kinds)
    inside = (users >= 0) & (users < n_users) & (items >= 0) & (items < n_items)
    is_ordered = np.diff(users.astype(np.int64) * n_items + items) > 0
    if not (inside.all() and is_ordered.all()):
        raise ModelFileError(f"{path} does not fit the users and items of the model.")
    indptr = np.searchsorted(users, np.arange(n_users + 1, dtype=np.int32)).astype(np.int64)
    in_order = np.full(len(items), -1, np.int32)
    if ((places >= 0) & (places < np.diff(indptr)[users])).all():
        in_order[indptr[users] + places] = items
    if (in_order < 0).any():
        raise ModelFileError(f"{path} does not say in which order users took their items.")
    return Csr(indptr, items.copy(), n_items), Histories(indptr, in_order, n_items)


def _read_table(
    path: Path, content: tensors.Bytes, columns: dict[str, tuple[Any, ...]]
) -> pl.DataFrame:
    if damage := damage_of(content.data):
        raise ModelFileError(f"{path} is damaged ({damage}): restore the folder or fit again.")
    try:
        table = pl.read_parquet(io.BytesIO(content.data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise ModelFileError(f"{path} cannot be read as Parquet: {error}.") from error
    if table.columns != list(columns) or any(
        table.schema[name] not in kinds for name, kinds in columns.items()
    ):
        raise ModelFileError(f"{path} has other columns than a saved model.")
    if any(column.null_count() for column in table):
        raise ModelFileError(f"{path} has missing values, unlike a saved model.")
    return table


@dataclass(frozen=True)
class Versions:
    """The version folders of one model; `base` is that of version 1.

    A version folder never changes once it has its name, and the file that names the current version
    is replaced atomically.
    """

    base: Path

    @classmethod
    def of(cls, folder: Path) -> Versions:
        """Return the versions of a model, or raise a `ModelFileError` if there is no folder."""
        base = folder.absolute()
        if not base.is_dir():
            raise ModelFileError(f"There is no model folder {base}.")
        return cls(base)

    @property
    def later(self) -> Path:
        """The folder of the later versions."""
        absolute = self.base.absolute()
        return absolute.with_name(f"{absolute.name}.versions")

    @property
    def pointer(self) -> Path:
        """The file that holds the number of the current version."""
        return self.later / "current"

    def folder(self, version: int) -> Path:
        """Return the folder of a version, which need not exist."""
        return self.base if version == 1 else self.later / str(version)

    def current(self) -> int:
        """Return the number of the current version; raise a `ModelFileError` if it is damaged."""
        try:
            text = self.pointer.read_bytes()[:100].decode("ascii", "replace").strip()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return 1
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # then there cannot be other versions
                return 1
            raise _unreadable(self.pointer, error) from error
        if not _NUMBER.fullmatch(text):
            raise ModelFileError(
                f"{self.pointer} does not hold the number of a version: write one into it, or name "
                "one with `transcf refresh --back-to`."
            )
        return int(text)

    def all(self) -> list[int]:
        """Return the numbers of all version folders, complete or not, ascending."""
        found = {1} if self.base.is_dir() else set()
        if self.later.is_dir():
            found |= {int(p.name) for p in self.later.iterdir() if _NUMBER.fullmatch(p.name)}
        return sorted(found)

    def made(self, version: int) -> float | None:
        """Return when a version was written, in seconds since 1970; None if it is incomplete."""
        try:
            return (self.folder(version) / NAME).stat().st_mtime
        except OSError:
            return None

    def fingerprint(self, version: int) -> tuple[int, int, int]:
        """Return a value that changes when the files of a version are replaced."""
        try:
            status = (self.folder(version) / NAME).stat()
        except OSError:
            return version, 0, 0
        return version, status.st_ino, status.st_mtime_ns

    def add(self, model: Any) -> int:
        """Save a model as the next version, which is not served yet, and return its number."""
        version = self.all()[-1] + 1
        model.save(self.folder(version))
        return version

    def switch(self, version: int) -> None:
        """Make a version the current one."""
        if self.made(version) is None:
            known = ", ".join(str(number) for number in self.all() if self.made(number))
            raise ParameterError(f"There is no version {version} of {self.base}: there is {known}.")
        with atomic_write(self.pointer) as unfinished:
            unfinished.write_text(f"{version}\n", encoding="ascii")


def current_folder(folder: str | PathLike[str]) -> Path:
    """Return the folder of the current version of a model."""
    versions = Versions(path_of(folder))
    return versions.folder(versions.current())
