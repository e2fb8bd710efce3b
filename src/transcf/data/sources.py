"""What a command line calls DATA: a file, a folder or a name, opened the right way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from transcf.data.candidates import draw_candidates
from transcf.data.catalog import load, recognize
from transcf.data.interactions import Interactions
from transcf.data.locations import SYNTHETIC, dataset_names, find_folder, resolve
from transcf.data.prepared import is_prepared, read_prepared, read_prepared_split
from transcf.data.readers import Reading, read_interactions
from transcf.data.split import Split
from transcf.data.splits import leave_one_out
from transcf.data.storage import is_saved_split, load_saved_split
from transcf.data.synthetic import synthesize
from transcf.errors import DataError, ParameterError

_PROTOCOLS = ("strict", "paper", "paper-as-published")


def open_data(spec: str | Path, **reading: Unpack[Reading]) -> Interactions:
    """Open a log.

    Args:
        spec: "synthetic", a name of the catalog, a file, a folder that the authors prepared, a
            folder that `Split.save` wrote (all parts together), or a folder with the published
            files of a dataset. A path that exists wins over a name of the same spelling, with a
            warning; `./name` is always a path.
        reading: Columns and rule of ratings, as for `read_interactions`; for files only.

    Example:
        >>> import polars as pl
        >>> pl.DataFrame({"who": [1, 2], "what": ["tea", "cups"]}).write_csv("events.csv")
        >>> open_data("events.csv", user="who", item="what")
        Interactions(2 users, 2 items, 2 interactions, density 50 %)
    """
    source = resolve(spec)
    if reading and (isinstance(source, str) or source.is_dir()):
        raise ParameterError(
            f"{spec} is no file: columns and a rule of ratings ({', '.join(reading)}) can only be "
            "given for a file."
        )
    if isinstance(source, str):
        return synthesize() if source == SYNTHETIC else load(source)
    return _open_folder(source) if source.is_dir() else _open_file(source, reading)


def open_split(
    spec: str | Path, protocol: str = "strict", *, seed: int = 0, **reading: Unpack[Reading]
) -> Split:
    """Open a split that fits a protocol.

    A saved split is taken as it is. For `paper` and `paper-as-published`, a prepared folder
    gives the authors' own split. Everything else is split by leaving one out: in time order
    where there are times, else at random. The two sampled protocols get 99 drawn candidates
    where none are stored.

    Args:
        spec: As for `open_data`.
        protocol: "strict", "paper" or "paper-as-published".
        seed: Of the random split and of the candidates.
        reading: As for `open_data`.
    """
    _check_protocol(protocol)
    source = resolve(spec)
    folder = None if reading else _folder(source)  # `open_data` refuses to read folders so
    found: Split | Interactions
    if folder is not None and is_saved_split(folder):
        found = load_saved_split(folder)
    elif folder is not None and protocol != "strict" and is_prepared(folder):
        found = read_prepared_split(folder)
    else:
        found = open_data(source, **reading)
    return as_split(found, protocol, seed=seed)


def as_split(data: Any, protocol: str = "strict", *, seed: int = 0) -> Split:
    """Make a split that fits a protocol out of whatever there is.

    Args:
        data: A split, a log, a table that `read_interactions` takes, or what `open_data` takes.
        protocol: As for `open_split`, which says how a log is split.
        seed: Of the random split and of the candidates.

    Example:
        >>> as_split(synthesize(users=50, items=30, interactions=500))
        Split(leave-one-out by time: train 400, validation 50, test 50, candidates none)
    """
    if isinstance(data, str | Path):
        return open_split(data, protocol, seed=seed)
    _check_protocol(protocol)
    if isinstance(data, Split):
        split = data
    else:
        log = data if isinstance(data, Interactions) else read_interactions(data)
        split = leave_one_out(log, "random" if log.timestamps is None else "time", seed=seed)
    if protocol != "strict" and split.candidates is None:
        split = draw_candidates(split, seed=seed)
    return split


def _check_protocol(protocol: str) -> None:
    if protocol not in _PROTOCOLS:
        raise ParameterError(f"protocol={protocol!r} is not one of {', '.join(_PROTOCOLS)}.")


def _folder(source: str | Path) -> Path | None:
    """Return the folder that a name or a path stands for, if it does."""
    if isinstance(source, str):
        return find_folder(source)
    return source if source.is_dir() else None


def _open_folder(folder: Path) -> Interactions:
    if is_saved_split(folder):
        return _join(load_saved_split(folder))
    if is_prepared(folder):
        return read_prepared(folder)
    dataset = recognize(folder)
    if dataset is None:
        raise DataError(
            f"{folder} is a folder but neither prepared, nor a saved split, nor a dataset of the "
            f"catalog: name a file in it."
        )
    return dataset.parse(folder)


def _open_file(path: Path, reading: Reading) -> Interactions:
    if not path.exists() and not path.suffix:
        raise DataError(
            f"{path} is neither a file, nor a folder, nor a name of the catalog: "
            f"{', '.join(dataset_names())}."
        )
    return read_interactions(path, **reading)


def _join(split: Split) -> Interactions:
    """Put the parts of a split together again."""
    parts = (split.train, split.validation, split.test)
    ratings = [part.ratings for part in parts if part.ratings is not None]
    times = [part.timestamps for part in parts if part.timestamps is not None]
    log = Interactions.from_rows(
        split.train.users,
        split.train.items,
        np.concatenate([part.user_rows for part in parts]),
        np.concatenate([part.item_rows for part in parts]),
        ratings=np.concatenate(ratings) if ratings else None,
        timestamps=np.concatenate(times) if times else None,
        times_are_dates=split.train.times_are_dates,
        categories=split.train.categories,
    )
    places = np.concatenate([part.positions for part in parts])
    return replace(log, positions=places[log.positions], report=split.train.report)
