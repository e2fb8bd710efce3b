"""Named datasets: those of the paper and a few more, found locally or downloaded.

`catalog.toml` describes them, `parsers` reads them.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import sys
import tomllib
import urllib.error
import urllib.request
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from transcf.data.datasets import parsers
from transcf.data.files import path_of, user_path
from transcf.data.interactions import Interactions
from transcf.data.split import Split, is_saved_split
from transcf.errors import DataError, did_you_mean
from transcf.interrupts import temporary_folder
from transcf.user_cache import user_cache

#: The name of the generated demo data.
SYNTHETIC = "synthetic"
_TIMEOUT = 30.0


@dataclass(frozen=True)
class Remote:
    """A file to download."""

    url: str
    name: str  # of the file, or of the member of a zip archive
    sha256: str | None = None  # of the file or member, where known


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalog."""

    name: str  # for `load`
    title: str
    home: str
    citation: str
    terms: str
    marks: Sequence[str] = ()  # files by which a folder is recognized; one of them suffices
    remotes: Sequence[Remote] = ()  # empty if the files have to be requested at `home`
    #: Whether the authors' split follows from the published files: their filter, then each user's
    #: largest item number. (Tests compare it with their held-out rows.)
    split_by_rule: bool = False
    #: Alternative formats of the published files; empty if a function of its own reads them.
    forms: Sequence[Mapping[str, Any]] = ()

    def parse(self, folder: Path) -> Interactions:
        """Read the published files in a folder."""
        return parsers.read_published(folder, self.name, self.forms)


def _entry(name: str, fields: dict[str, Any]) -> Dataset:
    remotes = [Remote(**remote) for remote in fields.pop("remotes", ())]
    return Dataset(name, remotes=remotes, **fields)


_TEXT = Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8")
#: Every dataset by name.
CATALOG = {name: _entry(name, fields) for name, fields in tomllib.loads(_TEXT).items()}


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
    root = os.environ.get("TRANSCF_DATA") or user_cache()
    return fetch(dataset, Path(root, name) if folder is None else path_of(folder))


def dataset_names() -> tuple[str, ...]:
    """Return all names that `read_interactions` accepts."""
    return (SYNTHETIC, *CATALOG)


def is_name(spec: str | PathLike[str]) -> bool:
    """Return whether a spec is the name of a dataset; a path of the same spelling is not."""
    return isinstance(spec, str) and spec in dataset_names() and not Path(spec).exists()


def absolute_name(spec: str) -> str:
    """Return a name or a path such that it means the same from any folder."""
    return spec if is_name(spec) else str(path_of(spec).resolve())


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
    found = (one for one in CATALOG.values() if parsers.find_file(folder, *one.marks) is not None)
    return next(found, CATALOG.get(folder.name))


def read_dataset(source: str | Path) -> Interactions | None:
    """Read all events of a dataset by its name, or in a folder of a known format; else None."""
    from transcf.data.partitioned import is_partitioned, open_parts
    from transcf.data.synthetic import synthesize

    if isinstance(source, str):
        return synthesize() if source == SYNTHETIC else load(source)
    if not source.is_dir():
        if not source.exists() and not source.suffix and not glob.has_magic(str(source)):
            raise DataError(
                f"{source} is neither a file, nor a folder, nor a name of the catalog: "
                f"{', '.join(dataset_names())}.{did_you_mean(source.name, dataset_names())}"
            )
        return None
    if is_saved_split(source):
        split = Split.load(source)
        return Interactions.joined(split.train, split.validation, split.test)
    if is_partitioned(source):
        return open_parts(source).read()
    if parsers.is_prepared(source):
        return parsers.read_prepared(source)
    dataset = recognize(source)
    return None if dataset is None else dataset.parse(source)


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
    dataset = recognize(Path(source))
    return dataset is not None and dataset.split_by_rule


def fetch(dataset: Dataset, folder: Path) -> Path:
    """Download the files of a dataset into a folder, with a progress bar.

    The folder is created when all files are complete and their checksums, where known, match.
    """
    if not dataset.remotes:
        raise DataError(f"{dataset.name} has to be asked for at {dataset.home}.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(f".{folder.name}.", folder.parent) as scratch:
        fetched: dict[str, Path] = {}
        (scratch / "new").mkdir()
        for number, remote in enumerate(dataset.remotes):
            if remote.url not in fetched:
                fetched[remote.url] = _download(remote.url, scratch / f"{number}.part")
            target = scratch / "new" / remote.name
            if remote.url.endswith(".zip"):
                _extract(fetched[remote.url], remote, target)
            else:
                fetched[remote.url].rename(target)
            with target.open("rb") as content:
                found = hashlib.file_digest(content, "sha256").hexdigest()
            if remote.sha256 not in (None, found):
                raise DataError(
                    f"{remote.name} from {remote.url} has sha256 {found[:16]}..., expected "
                    f"{str(remote.sha256)[:16]}...: the file was changed or damaged on the way."
                )
        folder.mkdir(exist_ok=True)
        for file in (scratch / "new").iterdir():
            file.replace(folder / file.name)
    return folder


def _download(url: str, target: Path) -> Path:
    from rich.console import Console
    from rich.progress import wrap_file

    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, target.open("wb") as file:
            size = int(answer.headers.get("Content-Length") or 0)
            console, quiet = Console(stderr=True), not sys.stderr.isatty()
            name = url.rsplit("/", 1)[-1]
            with wrap_file(answer, size, description=name, console=console, disable=quiet) as bar:
                shutil.copyfileobj(bar, file)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as problem:
        raise DataError(
            f"{url} cannot be fetched ({getattr(problem, 'reason', problem)}): check the network, "
            "or put the file into a folder and set TRANSCF_DATA to its parent."
        ) from problem
    if size and target.stat().st_size != size:
        raise DataError(f"{url} broke off after {target.stat().st_size:,} of {size:,} bytes.")
    return target


def _extract(archive: Path, remote: Remote, target: Path) -> None:
    """Extract one member of an archive, from any of its folders."""
    try:
        with zipfile.ZipFile(archive) as packed:
            members = [n for n in packed.namelist() if n.rsplit("/", 1)[-1] == remote.name]
            if not members:
                raise DataError(f"{remote.url} holds no {remote.name}.")
            with packed.open(members[0]) as member, target.open("wb") as file:
                shutil.copyfileobj(member, file)
    except zipfile.BadZipFile as problem:
        raise DataError(f"{remote.url} is no zip archive: {problem}.") from problem
