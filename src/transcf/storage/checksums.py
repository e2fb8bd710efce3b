"""Checksums of files, by all cores at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Checksums are made of pieces of this size, so that a large file is read by all cores at once.
PIECE_BYTES = 64 * 2**20


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
