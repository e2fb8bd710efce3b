"""The catalog of named datasets, read from `catalog.toml`, and the download of their files."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transcf.data.interactions import Interactions
from transcf.errors import DataError
from transcf.interrupts import temporary_folder

_CHUNK = 1 << 18
_TIMEOUT = 30.0


@dataclass(frozen=True)
class Remote:
    """A file to download.

    Attributes:
        url: Its address.
        name: Name of the file, or of the member of a zip archive.
        sha256: Checksum of the file or member, or None if not known.
    """

    url: str
    name: str
    sha256: str | None = None


@dataclass(frozen=True)
class Dataset:
    """One entry of the catalog.

    Attributes:
        name: Name for `load`.
        title: Full name.
        home: Home page.
        citation: Publication to cite.
        terms: Terms of use.
        forms: Alternative formats of the published files; empty if a function of its own reads
            them.
        marks: Files by which a folder is recognized as this dataset; one of them suffices.
        remotes: Files to download; empty if they have to be requested at `home`.
        paper_size: Users, items and interactions in the paper, where known.
        split_by_rule: Whether the authors' split follows from the published files: their filter,
            then each user's largest item number. (Tests compare it with their held-out rows.)
    """

    name: str
    title: str
    home: str
    citation: str
    terms: str
    marks: tuple[str, ...] = ()
    remotes: tuple[Remote, ...] = ()
    paper_size: tuple[int, int, int] | None = None
    split_by_rule: bool = False
    forms: tuple[Mapping[str, Any], ...] = ()

    def parse(self, folder: Path) -> Interactions:
        """Read the published files in a folder."""
        from transcf.data.datasets.parsers import read_published

        return read_published(folder, self.name, self.forms)


def _entry(name: str, fields: dict[str, Any]) -> Dataset:
    remotes = tuple(Remote(**remote) for remote in fields.pop("remotes", ()))
    lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
    return Dataset(name, remotes=remotes, **{**fields, **lists})


_TEXT = Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8")
#: Every dataset by name.
CATALOG = {name: _entry(name, fields) for name, fields in tomllib.loads(_TEXT).items()}


def fetch(dataset: Dataset, folder: Path) -> Path:
    """Download the files of a dataset into a folder, with a progress bar.

    The folder is created when all files are complete and their checksums, where known, match.
    """
    if not dataset.remotes:
        raise DataError(f"{dataset.name} has to be asked for at {dataset.home}.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(f".{folder.name}.", folder.parent) as scratch:
        fetched: dict[str, Path] = {}
        ready: list[tuple[Path, str]] = []
        for number, remote in enumerate(dataset.remotes):
            if remote.url not in fetched:
                fetched[remote.url] = _download(remote.url, scratch / f"{number}.part")
            file = fetched[remote.url]
            if remote.url.endswith(".zip"):
                file = _extract(file, remote, scratch / f"{number}.member")
            _check_sum(file, remote)
            ready.append((file, remote.name))
        folder.mkdir(exist_ok=True)
        for file, name in ready:
            file.replace(folder / name)
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
                shutil.copyfileobj(bar, file, _CHUNK)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as problem:
        raise DataError(
            f"{url} cannot be fetched ({getattr(problem, 'reason', problem)}): check the network, "
            "or put the file into a folder and set TRANSCF_DATA to its parent."
        ) from problem
    if size and target.stat().st_size != size:
        raise DataError(f"{url} broke off after {target.stat().st_size:,} of {size:,} bytes.")
    return target


def _extract(archive: Path, remote: Remote, target: Path) -> Path:
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
    return target


def _check_sum(file: Path, remote: Remote) -> None:
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if remote.sha256 not in (None, found):
        raise DataError(
            f"{remote.name} from {remote.url} has sha256 {found[:16]}..., expected "
            f"{str(remote.sha256)[:16]}...: the file was changed or damaged on the way."
        )
