"""`load(name)`: the datasets of the paper and three more, found locally or fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from transcf.data.authors_format import is_prepared, read_prepared, read_prepared_split
from transcf.data.interactions import Interactions
from transcf.data.locations import download_folder, find_folder, resolve
from transcf.data.parsers import find_file
from transcf.data.paths import path_of
from transcf.data.published import CATALOG, Dataset
from transcf.data.split import Split
from transcf.errors import DataError, did_you_mean

Variant = Literal["prepared", "raw"]


def names() -> list[str]:
    """Return the names that `load` knows."""
    return list(CATALOG)


def describe(name: str) -> Dataset:
    """Return where a dataset comes from, what to cite and on what terms it is given."""
    if name not in CATALOG:
        raise DataError(
            f"There is no dataset {name!r} in the catalog: {', '.join(CATALOG)}."
            f"{did_you_mean(name, CATALOG)}"
        )
    return CATALOG[name]


def load(
    name: str, folder: str | Path | None = None, *, variant: Variant | None = None
) -> Interactions:
    """Load a dataset of the catalog.

    It is looked for in `folder`; else under its name in $TRANSCF_DATA, ./data, ./datasets and
    the user's cache; and fetched if it is in none of them.

    Args:
        name: One of `names()`.
        folder: The folder with its files.
        variant: "prepared" for the pairs that the authors filtered and numbered, "raw" for the
            published log; None prefers the former where it is there.

    Example:
        >>> load("delicious")  # doctest: +SKIP
        Interactions(1,050 users, 1,196 items, 7,698 interactions, density 0.613 %)
    """
    dataset = describe(name)
    place = path_of(folder) if folder is not None else find_folder(name) or download(name)
    if not place.is_dir():
        raise DataError(f"There is no folder {place} with {dataset.title}: check the path.")
    if variant == "prepared" or (variant is None and is_prepared(place)):
        return read_prepared(place)
    return dataset.parse(place)


def load_split(name: str | Path) -> Split:
    """Load the split that the authors published, with their candidates.

    Args:
        name: A name of the catalog, or a folder that they prepared; that wins where it is there.
    """
    source = resolve(name)
    place = find_folder(source) if isinstance(source, str) else source
    if place is None:
        raise DataError(
            f"{name} is not here with the authors' split: put their LOO*.dat files into a folder "
            f"{name} and set TRANSCF_DATA to its parent."
        )
    return read_prepared_split(place)


def download(name: str, folder: str | Path | None = None) -> Path:
    """Fetch the published files of a dataset and return their folder.

    Args:
        name: One of `names()`.
        folder: Where to; None means $TRANSCF_DATA or the user's cache, under its name.
    """
    from transcf.data.download import fetch

    dataset = describe(name)
    return fetch(dataset, path_of(folder) if folder is not None else download_folder(name))


def recognize(folder: Path) -> Dataset | None:
    """Tell which dataset's published files a folder holds: by its files, then by its name."""
    for dataset in CATALOG.values():
        if any(find_file(folder, mark) is not None for mark in dataset.marks):
            return dataset
    return CATALOG.get(folder.name)
