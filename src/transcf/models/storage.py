"""Saved models: one folder of tensors, JSON and ids, without anything that could run.

| file | holds |
|---|---|
| `model.json` | format version, model, hyper-parameters, training report, size and checksums |
| `model.safetensors` | the learned arrays |
| `users.parquet`, `items.parquet` | the caller's ids, in row order |
| `seen.parquet` | user and item rows of the training interactions |
| `README.md` | the model card, for people; loading does not read it, so it may be edited |

Loading first compares every file with its SHA-256, in pieces of 64 MiB on all cores (about
1.4 GB/s for each core with SHA instructions), so that damage can never become a wrong
recommendation; then arrays are mapped into memory rather than read. `model.json` carries a
checksum of itself. Checksums find damage and careless edits; they do not prove who wrote a file.
A folder can only name a registered model, and no file in it can make code run.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from transcf import __version__
from transcf.data.atomic import whole_folder
from transcf.data.csr import Csr
from transcf.data.ids import IdMap, Rows
from transcf.errors import ModelFileError, ParameterError
from transcf.models import _tensors
from transcf.models._card import model_card
from transcf.models._checksums import checksums
from transcf.models.base import Recommender
from transcf.models.registry import registered_class
from transcf.models.rules import check

About: TypeAlias = dict[str, Any]

FORMAT = "transcf-model"
VERSION = 1

_ABOUT, _CARD = "model.json", "README.md"
_TENSORS, _USERS, _ITEMS, _SEEN = (
    "model.safetensors",
    "users.parquet",
    "items.parquet",
    "seen.parquet",
)
_CHECKED = (_TENSORS, _USERS, _ITEMS, _SEEN)


def save(model: Recommender, folder: str | Path) -> Path:
    """Write a fitted model to a folder, all or nothing.

    A model that is already there is replaced in one step; anything else but an empty folder is
    left alone, with an error.

    Example:
        >>> save(Popularity().fit(log), "models/floor")  # doctest: +SKIP
    """
    registered_class(type(model).__name__)
    target = Path(folder).absolute()
    check_replaceable(target)
    with whole_folder(target) as place:
        _tensors.write(place / _TENSORS, model._state())
        model.users_.series.to_frame().write_parquet(place / _USERS)
        model.items_.series.to_frame().write_parquet(place / _ITEMS)
        seen = {"user": model.seen_.entry_rows, "item": model.seen_.indices}
        pl.DataFrame(seen).write_parquet(place / _SEEN)
        about = _describe(model, place)
        (place / _ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        (place / _CARD).write_text(model_card(model, about), encoding="utf-8")
    return Path(folder)


def load(folder: str | Path) -> Recommender:
    """Read a model of any registered class from its folder.

    Raises:
        ModelFileError: Something is missing, damaged, altered or too new; the message says what.

    Example:
        >>> load("models/floor").recommend("ann")  # doctest: +SKIP
    """
    place = Path(folder)
    about = read_about(place)
    _check_files(place, about)
    model = _make(place, about)
    users, items = _read_ids(place / _USERS), _read_ids(place / _ITEMS)
    model._remember(users, items, _read_seen(place / _SEEN, len(users), len(items)))
    model.report_ = about["report"]
    try:
        model._restore(_tensors.read(place / _TENSORS))
    except (KeyError, ValueError, TypeError) as error:
        raise ModelFileError(
            f"{place / _TENSORS} does not hold the arrays of a {type(model).__name__}: {error}."
        ) from error
    return model


def read_about(folder: str | Path) -> About:
    """Read and check `model.json` alone: class, hyper-parameters and training report."""
    path = Path(folder) / _ABOUT
    if not Path(folder).is_dir():
        raise ModelFileError(f"There is no model folder {folder}.")
    if not path.is_file():
        raise ModelFileError(f"{folder} is not a saved model: it has no {_ABOUT}.")
    try:
        about = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{path} is damaged (it is not JSON): restore the folder from a copy or fit again."
        ) from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ModelFileError(f"{path} does not describe a model of this library.")
    version = about.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ModelFileError(
            f"{folder} was written in format {version} and this library reads up to {VERSION}: "
            "install a newer transcf."
        )
    if version != VERSION or about.get("sha256") != _own_checksum(about):
        raise ModelFileError(
            f"{path} was altered after it was saved: restore the folder from a copy or fit again."
        )
    return about


def _describe(model: Recommender, place: Path) -> About:
    """Make the content of `model.json`, JSON values only."""
    paths = [place / name for name in _CHECKED]
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": digests}
        for path, digests in zip(paths, checksums(paths), strict=True)
    }
    about: About = {
        "format": FORMAT,
        "version": VERSION,
        "library": __version__,
        "class": type(model).__name__,
        "params": model.get_params(),
        "report": model.report_,
        "files": files,
    }
    try:
        about = json.loads(json.dumps(about, default=np.generic.item, allow_nan=False))
    except (ValueError, TypeError) as error:
        raise ParameterError(
            f"{model!r} cannot be saved: its parameters and report must be plain numbers, words "
            f"and lists ({error})."
        ) from error
    about["sha256"] = _own_checksum(about)
    return about


def _own_checksum(about: About) -> str:
    content = {key: value for key, value in about.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_replaceable(target: Path) -> None:
    """Raise unless a model may be written there: a free name, an empty folder or another model."""
    if not target.exists() and not target.is_symlink():
        return
    if target.is_symlink() or not target.is_dir():
        raise ModelFileError(f"{target} is not a folder: choose another place for the model.")
    others = {path.name for path in target.iterdir()} - {_ABOUT, _CARD, *_CHECKED}
    if others:
        raise ModelFileError(
            f"{target} holds other files (such as {min(others)}): choose another folder for the "
            "model, or empty this one."
        )
    if any(target.iterdir()):
        read_about(target)


def _check_files(place: Path, about: About) -> None:
    """Compare every file with what was written."""
    paths = [place / name for name in _CHECKED]
    for path in paths:
        if not path.is_file():
            raise ModelFileError(f"{place} is incomplete: {path.name} is missing.")
        written, present = about["files"][path.name]["bytes"], path.stat().st_size
        if present < written:
            raise ModelFileError(f"{path} is cut off: {present:,} of {written:,} bytes are there.")
        if present > written:
            raise ModelFileError(f"{path} has grown: {present:,} bytes instead of {written:,}.")
    for path, digests in zip(paths, checksums(paths), strict=True):
        if digests != about["files"][path.name]["sha256"]:
            raise ModelFileError(
                f"{path} is damaged or was altered (its checksum differs): restore the folder "
                "from a copy or fit again."
            )


def _make(place: Path, about: About) -> Recommender:
    """Make the unfitted model that the folder names."""
    try:
        made = registered_class(about["class"])().set_params(**about["params"])
        check(type(made).__name__, made.get_params(), made.rules)
    except ParameterError as error:
        raise ModelFileError(
            f"{place} holds a model that this version (transcf {__version__}) cannot make: {error}"
        ) from error
    return made


def _read_ids(path: Path) -> IdMap:
    ids = _read_table(path, {"id": (pl.Int64, pl.String)})["id"]
    if ids.null_count() or not ids.is_sorted() or ids.n_unique() != len(ids):
        raise ModelFileError(f"{path} does not hold unique ids in ascending order.")
    return IdMap(ids)


def _read_seen(path: Path, n_users: int, n_items: int) -> Csr:
    table = _read_table(path, {"user": (pl.Int32,), "item": (pl.Int32,)})
    users, items = table["user"].to_numpy(), table["item"].to_numpy()
    missing = table.null_count().sum_horizontal().item()
    if missing or not _is_ordered(users, items, n_users, n_items):
        raise ModelFileError(f"{path} does not fit the users and items of the model.")
    indptr = np.searchsorted(users, np.arange(n_users + 1, dtype=np.int32)).astype(np.int64)
    return Csr(indptr, items.copy(), n_items)


def _is_ordered(users: Rows, items: Rows, n_users: int, n_items: int) -> bool:
    """Whether these are pairs of rows by user and then by item, none of them twice."""
    if not len(users):
        return True
    later = users[1:] > users[:-1]
    ordered = later | ((users[1:] == users[:-1]) & (items[1:] > items[:-1]))
    inside = users[0] >= 0 and users[-1] < n_users and items.min() >= 0 and items.max() < n_items
    return bool(inside and ordered.all())


def _read_table(path: Path, columns: dict[str, tuple[Any, ...]]) -> pl.DataFrame:
    try:
        table = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise ModelFileError(f"{path} cannot be read as Parquet: {error}.") from error
    if table.columns != list(columns) or any(
        table.schema[name] not in kinds for name, kinds in columns.items()
    ):
        raise ModelFileError(f"{path} has other columns than a saved model.")
    return table
