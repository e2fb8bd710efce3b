"""Consistent reads of a folder that may be replaced meanwhile, and checksums of its files.

`save` exchanges a whole folder for another, and removes the old one. Files that are opened one by
one by their paths may belong to different folders; here the folder is opened once and its files
relative to it. If one is missing then, because the old folder is being removed, reading restarts.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from transcf.errors import ModelFileError

T = TypeVar("T")

#: How often reading restarts if the folder is replaced meanwhile.
_ATTEMPTS = 100
#: Whether files can be opened relative to an open folder; not on Windows.
_BY_HANDLE = os.open in os.supports_dir_fd
#: Held while a position is set and read from, on systems without `preadv`.
_position = threading.Lock()

#: Checksums are of pieces of this size, so that a large file is hashed by all cores in parallel.
PIECE_BYTES = 64 * 2**20
#: Bytes that are read and hashed at a time: they stay in the CPU cache in between.
_STEP_BYTES = 2**20
#: Fewer bytes are hashed faster without threads.
_FEW_BYTES = 2**20


@dataclass(frozen=True)
class OpenFile:
    """An open file: its path for messages, its descriptor and its size."""

    path: Path
    handle: int
    size: int

    def read(self) -> bytes:
        """Return all of it."""
        content = bytearray(self.size)
        return bytes(content[: self.read_into(0, memoryview(content))])

    def read_into(self, start: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset on; return the number of bytes that were read."""
        filled = 0
        while filled < len(buffer):
            length = _read_some(self.handle, start + filled, buffer[filled:])
            if not length:
                break
            filled += length
        return filled


@dataclass(frozen=True)
class OpenFolder:
    """An open folder: its path, its descriptor (None where there is none) and its identity."""

    path: Path
    handle: int | None
    identity: os.stat_result
    files: ExitStack

    def file(self, name: str) -> OpenFile | None:
        """Open a file of the folder; None if there is no regular file of that name."""
        # Not blocking: opening a pipe of that name would wait for a writer.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            if self.handle is None:
                handle = os.open(self.path / name, flags)
            else:
                handle = os.open(name, flags, dir_fd=self.handle)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(self.path / name, error) from error
        self.files.callback(os.close, handle)
        facts = os.fstat(handle)
        is_regular = stat.S_ISREG(facts.st_mode)
        return OpenFile(self.path / name, handle, facts.st_size) if is_regular else None

    def was_replaced(self) -> bool:
        """Return whether the path is another folder by now, or none."""
        try:
            return not os.path.samestat(self.identity, os.stat(self.path))
        except OSError:
            return True


def read_steadily(folder: Path, read: Callable[[OpenFolder], T]) -> T:
    """Read a folder that may be replaced meanwhile; errors in a replaced folder are ignored.

    Args:
        folder: The folder.
        read: Reads it, and raises a `ModelFileError` if something is wrong.
    """
    for _ in range(_ATTEMPTS):
        with _open_folder(folder) as opened:
            try:
                return read(opened)
            except ModelFileError:
                if not opened.was_replaced():
                    raise
            except OSError as error:
                raise _unreadable(folder, error) from error
    raise ModelFileError(f"{folder} is being replaced without pause: try again later.")


def checksums(paths: Sequence[Path]) -> list[list[str]]:
    """Return the SHA-256 of every piece of every file.

    A file of up to `PIECE_BYTES` has one checksum, the one that `sha256sum` prints.
    """
    with ExitStack() as stack:
        handles = [stack.enter_context(path.open("rb", buffering=0)).fileno() for path in paths]
        files = [
            OpenFile(path, handle, os.fstat(handle).st_size)
            for path, handle in zip(paths, handles, strict=True)
        ]
        return read_checksums(files, [None] * len(files))


def read_checksums(
    files: Sequence[OpenFile], copies: Sequence[memoryview | None]
) -> list[list[str]]:
    """Return the checksums of open files, and copy what was hashed.

    Args:
        files: Files to read, up to the size that each had when it was opened.
        copies: Buffer for the content of each, as long as the file; None copies nothing.
    """
    jobs = [
        (number, start)
        for number, file in enumerate(files)
        for start in range(0, max(file.size, 1), PIECE_BYTES)
    ]

    def digest(job: tuple[int, int]) -> str:
        number, start = job
        return _digest(files[number], copies[number], start)

    if sum(file.size for file in files) < _FEW_BYTES:
        digests = list(map(digest, jobs))
    else:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            digests = list(pool.map(digest, jobs))
    found: list[list[str]] = [[] for _ in files]
    for (number, _), text in zip(jobs, digests, strict=True):
        found[number].append(text)
    return found


def _digest(file: OpenFile, copy: memoryview | None, start: int) -> str:
    """Hash one piece; hashing and reading both release the GIL."""
    digest = hashlib.sha256()
    end = min(start + PIECE_BYTES, file.size)
    scratch = memoryview(bytearray(min(_STEP_BYTES, end - start) if copy is None else 0))
    for first in range(start, end, _STEP_BYTES):
        last = min(first + _STEP_BYTES, end)
        buffer = scratch[: last - first] if copy is None else copy[first:last]
        length = file.read_into(first, buffer)
        digest.update(buffer[:length])
        if length < len(buffer):
            break  # truncated meanwhile: the checksum differs
    return digest.hexdigest()


@contextmanager
def _open_folder(path: Path) -> Iterator[OpenFolder]:
    with ExitStack() as stack:
        handle = None
        try:
            if _BY_HANDLE:
                handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                stack.callback(os.close, handle)
            elif not path.is_dir():
                raise NotADirectoryError
            identity = os.stat(path if handle is None else handle)
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:
            raise ModelFileError(f"There is no model folder {path}.") from error
        except OSError as error:
            raise _unreadable(path, error) from error
        yield OpenFolder(path, handle, identity, stack)


def _read_some(handle: int, start: int, buffer: memoryview) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(handle, [buffer], start)
    with _position:
        os.lseek(handle, start, os.SEEK_SET)
        content = os.read(handle, len(buffer))
    buffer[: len(content)] = content
    return len(content)


def _unreadable(path: Path, error: OSError) -> ModelFileError:
    return ModelFileError(f"{path} cannot be read: {error.strerror or error}.")
