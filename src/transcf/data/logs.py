"""Whatever a caller has, as a log: a path, a name, a table, a matrix, pairs."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Unpack, cast

from transcf.data.authors_format import is_prepared, read_prepared
from transcf.data.catalog import load, recognize
from transcf.data.filters import filtered
from transcf.data.interactions import Interactions
from transcf.data.locations import SYNTHETIC, dataset_names, resolve
from transcf.data.partitioned.log import PartitionedLog, is_partitioned, open_parts
from transcf.data.rating_filter import filter_min_rating
from transcf.data.readers import Reading, read_interactions
from transcf.data.split import Split
from transcf.data.storage import is_saved_split, load_saved_split
from transcf.data.synthetic import synthesize
from transcf.errors import DataError, ParameterError, did_you_mean


def as_interactions(data: Any) -> Interactions:
    """Turn whatever a caller has into a log.

    Args:
        data: A log, which stays as it is; one in parts, all of whose events are read; text or a
            path, as for `open_data`; or whatever
            `read_interactions` takes: tables of polars, pandas and pyarrow, scipy sparse
            matrices, lists of paths or of (user, item) pairs.

    Raises:
        DataError: One sentence that names `read_interactions`, where columns and their meaning
            can be given.

    Example:
        >>> as_interactions([("ann", 7), ("bob", 9)])
        Interactions(2 users, 2 items, 2 interactions, density 50 %)
    """
    if isinstance(data, Interactions):
        return data
    if isinstance(data, PartitionedLog):
        return data.read()
    if isinstance(data, Split):
        raise DataError(
            "A split is no event log: give one of its parts, such as split.train, or what "
            "`read_interactions` takes."
        )
    if isinstance(data, str | PathLike):
        return open_data(data)
    return read_interactions(data)


def as_partitioned(data: Any) -> PartitionedLog | None:
    """Return a log in parts, or the path of one, without reading its events; None for all else."""
    if isinstance(data, PartitionedLog):
        return data
    if not isinstance(data, str | PathLike):
        return None
    source = resolve(data)
    return open_parts(source) if isinstance(source, Path) and is_partitioned(source) else None


def open_data(
    spec: str | PathLike[str] | Sequence[str | PathLike[str]], **reading: Unpack[Reading]
) -> Interactions:
    """Open a log.

    Args:
        spec: "synthetic", a name of the catalog, a file, a pattern such as `logs/*.csv`, a folder
            that the authors prepared, a folder that `Split.save` or `prepare_parts` wrote (all
            parts together), a folder with the published files of a dataset, or a folder of Parquet
            or other files. A path that exists wins over a name of the same spelling, with a
            warning; `./name` is always a path. A list of files is one log.
        reading: Columns and forms, as for `read_interactions`; for files only, except for
            `min_rating` and `filter`. Unless `min_rating` is given, datasets of the catalog keep
            all events, as their published counts do.

    Example:
        >>> import polars as pl
        >>> pl.DataFrame({"who": [1, 2], "what": ["tea", "cups"]}).write_csv("events.csv")
        >>> open_data("events.csv", user="who", item="what")
        Interactions(2 users, 2 items, 2 interactions, density 50 %)
    """
    if isinstance(spec, list | tuple) and spec:
        return read_interactions(list(spec), **reading)
    source = resolve(cast("str | PathLike[str]", spec))
    if isinstance(source, Path) and not (source.is_dir() and _is_dataset(source)):
        return _read(source, reading)
    bar, name = reading.pop("min_rating", None), reading.pop("filter", "none")
    if reading:
        raise ParameterError(
            f"{spec} is no file: how to read it ({', '.join(reading)}) can only be said of a file."
        )
    if isinstance(source, Path):
        log = _open_dataset(source)
    else:
        log = synthesize() if source == SYNTHETIC else load(source)
    return filtered(log if bar is None else filter_min_rating(log, bar), name)


def _is_dataset(folder: Path) -> bool:
    """Tell whether a folder has a form of its own rather than being full of tables."""
    has_form = is_saved_split(folder) or is_partitioned(folder) or is_prepared(folder)
    return has_form or recognize(folder) is not None


def _open_dataset(folder: Path) -> Interactions:
    if is_saved_split(folder):
        split = load_saved_split(folder)
        return Interactions.joined(split.train, split.validation, split.test)
    if is_partitioned(folder):
        return open_parts(folder).read()
    if is_prepared(folder):
        return read_prepared(folder)
    dataset = recognize(folder)
    assert dataset is not None  # `_is_dataset` has seen to it
    return dataset.parse(folder)


def _read(path: Path, reading: Reading) -> Interactions:
    if not path.exists() and not path.suffix and not glob.has_magic(str(path)):
        raise DataError(
            f"{path} is neither a file, nor a folder, nor a name of the catalog: "
            f"{', '.join(dataset_names())}.{did_you_mean(path.name, dataset_names())}"
        )
    return read_interactions(path, **reading)
