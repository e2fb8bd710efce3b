"""Splits as folders: Parquet tables with the caller's ids, and a JSON file with the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PolarsError

from transcf.data.atomic import atomic_write_dir
from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.data.report import Report
from transcf.data.split import Candidates, Split
from transcf.errors import DataError

_HEAD = "split.json"
_VERSION = 1
_PARTS = ("train", "validation", "test")


def is_saved_split(folder: Path) -> bool:
    """Whether `Split.save` wrote this folder."""
    return (folder / _HEAD).is_file()


def save_split(split: Split, folder: Path) -> Path:
    """Write to a neighbour folder first, then give it the name: all or nothing."""
    if folder.exists() and not is_saved_split(folder) and _is_used(folder):
        raise DataError(
            f"{folder} exists and is not a saved split: choose another folder or remove it."
        )
    with atomic_write_dir(folder) as unfinished:
        _write(split, unfinished)
    return folder


def load_saved_split(folder: Path) -> Split:
    """Read a folder that `save_split` wrote."""
    if not is_saved_split(folder):
        raise DataError(f"{folder} is not a saved split: it has no {_HEAD}.")
    try:
        head = json.loads((folder / _HEAD).read_text(encoding="utf-8"))
        if head["version"] != _VERSION:
            raise DataError(
                f"{folder} is a split of version {head['version']}, this library reads "
                f"{_VERSION}: make it anew."
            )
        return _read(folder, head)
    except DataError:
        raise
    except (PolarsError, OSError, KeyError, ValueError, TypeError) as problem:
        raise DataError(f"{folder} is a damaged split ({problem}): make it anew.") from problem


def _is_used(folder: Path) -> bool:
    return not folder.is_dir() or any(folder.iterdir())


def _write(split: Split, folder: Path) -> None:
    train = split.train
    for name in _PARTS:
        part: Interactions = getattr(split, name)
        frame = part.to_frame().with_columns(position=pl.Series(part.positions))
        frame.write_parquet(folder / f"{name}.parquet")
    for name, ids in (("users", train.users), ("items", train.items)):
        ids.series.to_frame().write_parquet(folder / f"{name}.parquet")
    for name, table in (("categories", train.categories), ("links", train.links)):
        if table is not None:
            table.write_parquet(folder / f"{name}.parquet")
    if split.candidates is not None:
        _candidate_table(split).write_parquet(folder / "candidates.parquet")
    head = {
        "version": _VERSION,
        "recipe": split.recipe,
        "report": split.report.to_list(),
        "log_report": train.report.to_list(),
        "times_are_dates": train.times_are_dates,
        "candidates": None if split.candidates is None else split.candidates.source,
    }
    (folder / _HEAD).write_text(json.dumps(head, indent=2) + "\n", encoding="utf-8")


def _candidate_table(split: Split) -> pl.DataFrame:
    candidates = split.candidates
    assert candidates is not None
    owners = np.repeat(np.arange(split.train.n_users), np.diff(candidates.indptr))
    return pl.DataFrame(
        {
            "user_id": split.train.users.ids(owners),
            "item_id": split.train.items.ids(candidates.items),
        }
    )


def _read(folder: Path, head: dict[str, Any]) -> Split:
    users, items = (
        IdMap(pl.read_parquet(folder / f"{name}.parquet", glob=False)["id"])
        for name in ("users", "items")
    )
    beside = {name: folder / f"{name}.parquet" for name in ("categories", "links")}
    shared: dict[str, Any] = {
        name: pl.read_parquet(path, glob=False) if path.exists() else None
        for name, path in beside.items()
    }
    shared |= {
        "times_are_dates": bool(head["times_are_dates"]),
        "report": Report.from_list(head["log_report"]),
    }
    parts = {name: _read_part(folder / f"{name}.parquet", users, items, shared) for name in _PARTS}
    candidates = None
    if head["candidates"] is not None:
        table = pl.read_parquet(folder / "candidates.parquet", glob=False)
        owners, chosen = _rows(table, users, items)
        candidates = Candidates(_offsets(owners, len(users)), chosen, head["candidates"])
    return Split(
        **parts,
        candidates=candidates,
        recipe=head["recipe"],
        report=Report.from_list(head["report"]),
    )


def _read_part(path: Path, users: IdMap, items: IdMap, shared: dict[str, Any]) -> Interactions:
    """Read one part; its events are in order already."""
    frame = pl.read_parquet(path, glob=False)
    owners, columns = _rows(frame, users, items)
    times = frame["timestamp"].cast(pl.Int64).to_numpy() if "timestamp" in frame.columns else None
    return Interactions(
        users=users,
        items=items,
        by_user=Csr(_offsets(owners, len(users)), columns, len(items)),
        positions=frame["position"].to_numpy().copy(),
        ratings=frame["rating"].to_numpy().copy() if "rating" in frame.columns else None,
        timestamps=None if times is None else times.copy(),
        **shared,
    )


def _rows(frame: pl.DataFrame, users: IdMap, items: IdMap) -> tuple[Rows, Rows]:
    owners = users.rows_of_column(frame["user_id"])
    columns = items.rows_of_column(frame["item_id"])
    if (owners == UNKNOWN).any() or (columns == UNKNOWN).any():
        raise ValueError("a table names ids that are not among its users and items")
    if len(owners) and (np.diff(owners) < 0).any():
        raise ValueError("a table is not in the order of its users")
    return owners, columns


def _offsets(owners: Rows, n_users: int) -> npt.NDArray[np.int64]:
    indptr = np.zeros(n_users + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=n_users), out=indptr[1:])
    return indptr
