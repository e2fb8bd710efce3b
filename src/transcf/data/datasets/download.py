"""Download of the files of a dataset, with a progress bar."""

from __future__ import annotations

import hashlib
import shutil
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from transcf.data.datasets.catalog import Dataset, Remote
from transcf.errors import DataError
from transcf.interrupts import temporary_folder

_CHUNK = 1 << 18
_TIMEOUT = 30.0


def fetch(dataset: Dataset, folder: Path) -> Path:
    """Download the files of a dataset into a folder.

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
    from rich.progress import DownloadColumn, Progress, TimeRemainingColumn

    try:
        with (
            urllib.request.urlopen(url, timeout=_TIMEOUT) as answer,
            target.open("wb") as file,
            Progress(
                *Progress.get_default_columns()[:2],
                DownloadColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                disable=not sys.stderr.isatty(),
            ) as progress,
        ):
            size = int(answer.headers.get("Content-Length") or 0)
            task = progress.add_task(url.rsplit("/", 1)[-1], total=size or None)
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                progress.advance(task, len(chunk))
    except (urllib.error.URLError, TimeoutError, ConnectionError) as problem:
        raise DataError(
            f"{url} cannot be fetched ({getattr(problem, 'reason', problem)}): check the network, "
            f"or put the file into a folder and set TRANSCF_DATA to its parent."
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
    if remote.sha256 is None:
        return
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != remote.sha256:
        raise DataError(
            f"{remote.name} from {remote.url} has sha256 {found[:16]}..., expected "
            f"{remote.sha256[:16]}...: the file was changed or damaged on the way."
        )
