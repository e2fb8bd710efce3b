"""Named datasets: those of the paper and a few more, found locally or downloaded."""

from __future__ import annotations

import os
import warnings
from os import PathLike
from pathlib import Path
from typing import Literal

from transcf.data.datasets import parsers
from transcf.data.datasets.catalog import CATALOG, Dataset, fetch
from transcf.data.files import path_of, user_path
from transcf.data.interactions import Interactions
from transcf.data.split import Split, is_saved_split
from transcf.errors import DataError, did_you_mean
from transcf.user_cache import user_cache

#: The name of the generated demo data.
SYNTHETIC = "synthetic"


def names() -> list[str]:
    """Return the names that `load` knows."""
    return list(CATALOG)


def describe(name: str) -> Dataset:
    """Return the catalog entry of a dataset: its origin, citation and terms of use."""
    if name not in CATALOG:
        raise DataError(
            f"There is no dataset {name!r} in the catalog: {', '.join(CATALOG)}."
            f"{did_you_mean(name, CATALOG)}"
        )
    return CATALOG[name]


def load(
    name: str,
    folder: str | Path | None = None,
    *,
    variant: Literal["prepared", "raw"] | None = None,
) -> Interactions:
    """Load a dataset of the catalog.

    It is searched for in `folder`; else under its name in $TRANSCF_DATA, ./data, ./datasets and
    the user's cache; and downloaded if it is in none of them.

    Args:
        name: One of `names()`.
        folder: The folder with its files.
        variant: "prepared" for the pairs that the authors filtered and numbered, "raw" for the
            published log; None prefers the former if it is available.

    Example:
        >>> load("delicious")  # doctest: +SKIP
        Interactions(1,050 users, 1,196 items, 7,698 interactions, density 0.613 %)
    """
    dataset = describe(name)
    place = path_of(folder) if folder is not None else find_folder(name) or download(name)
    if not place.is_dir():
        raise DataError(f"There is no folder {place} with {dataset.title}: check the path.")
    if variant == "prepared" or (variant is None and parsers.is_prepared(place)):
        return parsers.read_prepared(place)
    return dataset.parse(place)


def load_split(name: str | Path) -> Split:
    """Load the split that the authors published, with their candidates.

    Args:
        name: A name of the catalog, or a folder with their files, which takes precedence.
    """
    source = resolve(name)
    place = find_folder(source) if isinstance(source, str) else source
    if place is None:
        raise DataError(
            f"{name} is not here with the authors' split: put their LOO*.dat files into a folder "
            f"{name} and set TRANSCF_DATA to its parent."
        )
    return parsers.read_prepared_split(place)


def download(name: str, folder: str | Path | None = None) -> Path:
    """Download the published files of a dataset and return their folder.

    Args:
        name: One of `names()`.
        folder: Target folder; None means its name in $TRANSCF_DATA or in the user's cache.
    """
    dataset = describe(name)
    if folder is not None:
        return fetch(dataset, path_of(folder))
    root = os.environ.get("TRANSCF_DATA")
    return fetch(dataset, (Path(root) if root else user_cache()) / name)


def dataset_names() -> tuple[str, ...]:
    """Return all names that `read_interactions` accepts."""
    return (SYNTHETIC, *CATALOG)


def is_name(spec: str | PathLike[str]) -> bool:
    """Return whether a spec is the name of a dataset; a path of the same spelling is not."""
    return isinstance(spec, str) and spec in dataset_names() and not Path(spec).exists()


def resolve(spec: str | PathLike[str]) -> str | Path:
    """Return the name of a dataset as text, all else as a path; warn where both fit."""
    if is_name(spec):
        return str(spec)
    path = user_path(spec)
    if isinstance(spec, str) and spec in dataset_names():
        usual = find_folder(spec)
        if usual is None or not usual.samefile(path):
            warnings.warn(
                f"{spec} is a path here, and it is read in place of the dataset of that name: "
                f"write ./{spec} if it is meant, else run this in another folder.",
                stacklevel=3,  # the caller of the function that opens it
            )
    return path


def find_folder(name: str) -> Path | None:
    """Return the first local folder of a dataset that is not empty, in the order of `load`."""
    if name not in CATALOG:
        return None
    root = os.environ.get("TRANSCF_DATA")
    places = [*([Path(root)] if root else []), Path("data"), Path("datasets"), user_cache()]
    folders = (place / name for place in places)
    return next((folder for folder in folders if folder.is_dir() and any(folder.iterdir())), None)


def recognize(folder: Path) -> Dataset | None:
    """Return the dataset whose published files a folder holds: by its files, then by its name."""
    for dataset in CATALOG.values():
        if any(parsers.find_file(folder, mark) is not None for mark in dataset.marks):
            return dataset
    return CATALOG.get(folder.name)


def read_named(name: str) -> Interactions:
    """Read a dataset by its name, or make the demo data."""
    if name != SYNTHETIC:
        return load(name)
    from transcf.data.synthetic import synthesize

    return synthesize()


def read_folder(folder: Path) -> Interactions | None:
    """Read all events of a folder in a format of its own; None if it is a folder of tables."""
    from transcf.data.partitioned import is_partitioned, open_parts

    if is_saved_split(folder):
        split = Split.load(folder)
        return Interactions.joined(split.train, split.validation, split.test)
    if is_partitioned(folder):
        return open_parts(folder).read()
    if parsers.is_prepared(folder):
        return parsers.read_prepared(folder)
    dataset = recognize(folder)
    return None if dataset is None else dataset.parse(folder)


def read_split(source: str | Path, *, sampled: bool, seed: int) -> Split | None:
    """Read a saved split or the published one of a dataset; None where a log has to be split."""
    from transcf.data.partitioned import is_partitioned, open_parts

    folder = find_folder(source) if isinstance(source, str) else source
    if folder is None and isinstance(source, str) and source in parsers.PUBLIC:
        folder = download(source)
    if folder is None or not folder.is_dir():
        return None
    if not sampled and parsers.is_public_split(folder):
        return parsers.read_public_split(folder, seed=seed)
    if is_partitioned(folder):
        return open_parts(folder).split()
    if is_saved_split(folder):
        return Split.load(folder)
    return parsers.read_prepared_split(folder) if sampled and parsers.is_prepared(folder) else None


def is_split_by_rule(source: str | Path) -> bool:
    """Return whether the authors' split of a dataset follows from its published files."""
    folder = isinstance(source, Path) and source.is_dir()
    dataset = recognize(Path(source)) if folder else CATALOG.get(str(source))
    return dataset is not None and dataset.split_by_rule
