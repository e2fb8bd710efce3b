"""Checksums of files, by all cores at once, and copies of their content made on the way."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from transcf.io.open_files import OpenFile, read_into

#: Checksums are made of pieces of this size, so that a large file is read by all cores at once.
PIECE_BYTES = 64 * 2**20
#: What is read and hashed at a time: it stays in the cache in between.
_STEP_BYTES = 2**20
#: Less than this is hashed sooner than threads are started.
_FEW_BYTES = 2**20


def checksums(paths: Sequence[Path]) -> list[list[str]]:
    """SHA-256 of every piece of every file.

    A file of up to `PIECE_BYTES` has one checksum, the one that `sha256sum` prints.
    """
    files = [path.open("rb", buffering=0) for path in paths]
    try:
        opened = [
            OpenFile(path, file.fileno(), os.fstat(file.fileno()).st_size)
            for path, file in zip(paths, files, strict=True)
        ]
        return read_checksums(opened, [None] * len(opened))
    finally:
        for file in files:
            file.close()


def read_checksums(
    files: Sequence[OpenFile], copies: Sequence[memoryview | None]
) -> list[list[str]]:
    """Do the same for open files, and copy what was hashed.

    Args:
        files: What to read, up to the size that each had when it was opened.
        copies: Where the content of each goes, as long as the file; None keeps nothing.
    """
    jobs = [
        (place, start)
        for place, file in enumerate(files)
        for start in range(0, max(file.size, 1), PIECE_BYTES)
    ]

    def digest(job: tuple[int, int]) -> str:
        place, start = job
        return _digest(files[place], copies[place], start)

    if sum(file.size for file in files) < _FEW_BYTES:
        digests = list(map(digest, jobs))
    else:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            digests = list(pool.map(digest, jobs))
    found: list[list[str]] = [[] for _ in files]
    for (place, _), text in zip(jobs, digests, strict=True):
        found[place].append(text)
    return found


def _digest(file: OpenFile, copy: memoryview | None, start: int) -> str:
    """Hash one piece; hashing and reading both let other threads run."""
    digest = hashlib.sha256()
    end = min(start + PIECE_BYTES, file.size)
    scratch = memoryview(bytearray(min(_STEP_BYTES, end - start) if copy is None else 0))
    for first in range(start, end, _STEP_BYTES):
        last = min(first + _STEP_BYTES, end)
        buffer = scratch[: last - first] if copy is None else copy[first:last]
        length = read_into(file.handle, first, buffer)
        digest.update(buffer[:length])
        if length < len(buffer):
            break  # cut off meanwhile: the checksum tells
    return digest.hexdigest()
