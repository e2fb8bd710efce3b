"""Folders that appear whole or not at all, and checksums of what is in them."""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

#: Checksums are made of pieces of this size, so that a large file is read by all cores at once.
PIECE_BYTES = 64 * 2**20

_HERE = -100  # AT_FDCWD: paths are relative to the working directory
_EXCHANGE = 2  # RENAME_EXCHANGE: both names exist before and after


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Give a temporary sibling to write to, and put it in the target's place at the end.

    The files and both folders are flushed to disk before the swap. If anything fails, the
    target stays as it was and the sibling is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    sibling = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    sibling.mkdir()
    try:
        yield sibling
        for path in (*sorted(sibling.iterdir()), sibling):
            _flush(path)
        _put_in_place(sibling, target)
        _flush(target.parent)
    finally:
        shutil.rmtree(sibling, ignore_errors=True)


def checksums(paths: Sequence[Path]) -> list[list[str]]:
    """SHA-256 of every piece of every file, hashed by all cores.

    A file of up to `PIECE_BYTES` has one checksum, the one that `sha256sum` prints.
    """
    sizes = [path.stat().st_size for path in paths]
    jobs = [
        (path, start)
        for path, size in zip(paths, sizes, strict=True)
        for start in range(0, max(size, 1), PIECE_BYTES)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        digests = list(pool.map(lambda job: _digest(*job), jobs))
    found: dict[Path, list[str]] = {path: [] for path in paths}
    for (path, _), digest in zip(jobs, digests, strict=True):
        found[path].append(digest)
    return [found[path] for path in paths]


def _digest(path: Path, start: int) -> str:
    """Hash one piece; hashing and reading both let other threads run."""
    digest = hashlib.sha256()
    left = PIECE_BYTES
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        buffer = memoryview(bytearray(2**20))
        while left and (length := file.readinto(buffer[: min(left, len(buffer))])):
            digest.update(buffer[:length])
            left -= length
    return digest.hexdigest()


def _put_in_place(sibling: Path, target: Path) -> None:
    """Swap a folder in; what was there before is at `sibling` afterwards, if anything was."""
    if not target.exists() or not any(target.iterdir()):
        sibling.replace(target)
        return
    if _exchange(sibling, target):
        return
    # No atomic exchange on this system: the name is free for a moment between two renames.
    aside = sibling.with_suffix(".old")
    target.replace(aside)
    try:
        sibling.replace(target)
    except OSError:
        aside.replace(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step, if the system can."""
    rename = getattr(ctypes.CDLL(None) if os.name == "posix" else None, "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def _flush(path: Path) -> None:
    """Make sure that a file or folder is on disk (folders: where the system allows it)."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
