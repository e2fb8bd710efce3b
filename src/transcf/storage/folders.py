"""Saved models: one folder of tensors, JSON and ids, without anything that could run.

| file | holds |
|---|---|
| `model.json` | format version, model, hyper-parameters, training report, size and checksums |
| `model.safetensors` | the learned arrays |
| `users.parquet`, `items.parquet` | the caller's ids, in row order |
| `seen.parquet` | user and item rows of the training interactions, and the place of each in time |
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from transcf import __version__
from transcf.data.atomic import whole_folder
from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import IdMap, Rows
from transcf.errors import ModelFileError, ParameterError
from transcf.storage import tensors
from transcf.storage.card import model_card
from transcf.storage.checksums import checksums

About: TypeAlias = dict[str, Any]

FORMAT = "transcf-model"
VERSION = 2

_ABOUT, _CARD = "model.json", "README.md"
_TENSORS, _USERS, _ITEMS, _SEEN = (
    "model.safetensors",
    "users.parquet",
    "items.parquet",
    "seen.parquet",
)
_CHECKED = (_TENSORS, _USERS, _ITEMS, _SEEN)


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A model taken apart, as a folder holds it.

    Attributes:
        kind: Name of its class.
        summary: What it is, in a line.
        params: Hyper-parameters.
        report: Facts about its training; JSON values only.
        users: User ids.
        items: Item ids.
        seen: Items of each user in training.
        histories: The same in the order of events.
        timed: Whether that is an order of time.
        arrays: What it learned.
    """

    kind: str
    summary: str
    params: dict[str, Any]
    report: dict[str, Any]
    users: IdMap
    items: IdMap
    seen: Csr
    histories: Histories
    timed: bool
    arrays: tensors.Arrays


def write_model(model: StoredModel, folder: str | Path) -> Path:
    """Write a model to a folder, all or nothing.

    A model that is already there is replaced in one step; anything else but an empty folder is
    left alone, with an error.
    """
    target = Path(folder).absolute()
    check_replaceable(target)
    with whole_folder(target) as place:
        tensors.write(place / _TENSORS, model.arrays)
        model.users.series.to_frame().write_parquet(place / _USERS)
        model.items.series.to_frame().write_parquet(place / _ITEMS)
        _seen_table(model).write_parquet(place / _SEEN)
        about = _describe(model, place)
        (place / _ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        (place / _CARD).write_text(model_card(model.summary, about, model.users), encoding="utf-8")
    return Path(folder)


def read_model(folder: str | Path) -> StoredModel:
    """Read a model from its folder.

    Raises:
        ModelFileError: Something is missing, damaged, altered, too old or too new; the message
            says what.
    """
    place = Path(folder)
    about = read_about(place)
    _check_files(place, about)
    users, items = _read_ids(place / _USERS), _read_ids(place / _ITEMS)
    seen, histories = _read_seen(place / _SEEN, len(users), len(items))
    return StoredModel(
        kind=about["class"],
        summary="",
        params=about["params"],
        report=about["report"],
        users=users,
        items=items,
        seen=seen,
        histories=histories,
        timed=about["timed"],
        arrays=tensors.read(place / _TENSORS),
    )


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
    if isinstance(version, int) and 0 < version < VERSION:
        raise ModelFileError(
            f"{folder} was written in format {version} by an older transcf and this one reads "
            f"format {VERSION}: fit again."
        )
    if version != VERSION or about.get("sha256") != _own_checksum(about):
        raise ModelFileError(
            f"{path} was altered after it was saved: restore the folder from a copy or fit again."
        )
    return about


def _describe(model: StoredModel, place: Path) -> About:
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
        "class": model.kind,
        "params": model.params,
        "report": model.report,
        "timed": model.timed,
        "files": files,
    }
    try:
        about = json.loads(json.dumps(about, default=np.generic.item, allow_nan=False))
    except (ValueError, TypeError) as error:
        raise ParameterError(
            f"{model.kind} cannot be saved: its parameters and report must be plain numbers, words "
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


def _read_ids(path: Path) -> IdMap:
    ids = _read_table(path, {"id": (pl.Int64, pl.String)})["id"]
    if ids.null_count() or not ids.is_sorted() or ids.n_unique() != len(ids):
        raise ModelFileError(f"{path} does not hold unique ids in ascending order.")
    return IdMap(ids)


def _seen_table(model: StoredModel) -> pl.DataFrame:
    """User and item rows of each interaction, and its place in the user's history, from 0."""
    owners = model.seen.entry_rows
    by_item = np.lexsort((model.histories.items, owners))
    places = (model.histories.places[by_item] - 1).astype(np.int32)
    return pl.DataFrame({"user": owners, "item": model.seen.indices, "place": places})


def _read_seen(path: Path, n_users: int, n_items: int) -> tuple[Csr, Histories]:
    kinds = dict.fromkeys(("user", "item", "place"), (pl.Int32,))
    table = _read_table(path, kinds)
    users, items, places = (table[name].to_numpy() for name in kinds)
    missing = table.null_count().sum_horizontal().item()
    if missing or not _is_ordered(users, items, n_users, n_items):
        raise ModelFileError(f"{path} does not fit the users and items of the model.")
    indptr = np.searchsorted(users, np.arange(n_users + 1, dtype=np.int32)).astype(np.int64)
    in_order = np.full(len(items), -1, np.int32)
    inside = (places >= 0) & (places < np.diff(indptr)[users])
    in_order[(indptr[users] + places)[inside]] = items[inside]
    if (in_order < 0).any():
        raise ModelFileError(f"{path} does not say in which order users took their items.")
    return Csr(indptr, items.copy(), n_items), Histories(indptr, in_order, n_items)


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
