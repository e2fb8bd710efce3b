"""What DATA stands for, a path or the name of a dataset, and where named datasets are."""

from __future__ import annotations

import os
import warnings
from os import PathLike
from pathlib import Path

from transcf.data.paths import user_path
from transcf.data.published import CATALOG
from transcf.user_cache import user_cache

#: The name of the built-in data.
SYNTHETIC = "synthetic"


def dataset_names() -> tuple[str, ...]:
    """Return every word that can stand for a dataset."""
    return (SYNTHETIC, *CATALOG)


def is_name(spec: str | PathLike[str]) -> bool:
    """Tell whether a spec is the name of a dataset; a path of the same spelling wins.

    Example:
        >>> is_name("synthetic"), is_name("events.csv")
        (True, False)
    """
    return isinstance(spec, str) and spec in dataset_names() and not Path(spec).exists()


def resolve(spec: str | PathLike[str]) -> str | Path:
    """Return the name of a dataset as text, and everything else as a path.

    Warns where a path hides a dataset of the same name: who wrote the name may have meant that.
    """
    if is_name(spec):
        return str(spec)
    path = user_path(spec)
    if isinstance(spec, str) and spec in dataset_names() and not _is_its_folder(path, spec):
        warnings.warn(
            f"{spec} is a path here, and it is read in place of the dataset of that name: write "
            f"./{spec} if it is meant, else run this in another folder.",
            stacklevel=3,  # who called the function that opens it
        )
    return path


def find_folder(name: str) -> Path | None:
    """Return the first local folder of a dataset of the catalog that is not empty, or None.

    Its name is looked for in $TRANSCF_DATA, ./data, ./datasets and the user's cache
    ($XDG_CACHE_HOME/transcf or ~/.cache/transcf), in this order.
    """
    if name not in CATALOG:
        return None
    root = os.environ.get("TRANSCF_DATA")
    places = [*([Path(root)] if root else []), Path("data"), Path("datasets"), user_cache()]
    folders = (place / name for place in places)
    return next((folder for folder in folders if folder.is_dir() and any(folder.iterdir())), None)


def download_folder(name: str) -> Path:
    """Return where a dataset is put: in $TRANSCF_DATA or the user's cache, under its name."""
    root = os.environ.get("TRANSCF_DATA")
    return (Path(root) if root else user_cache()) / name


def _is_its_folder(path: Path, name: str) -> bool:
    """Tell whether the path is where the dataset is found anyway."""
    folder = find_folder(name)
    return folder is not None and folder.samefile(path)
