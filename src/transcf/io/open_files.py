"""The files of a folder as they were at one moment, whoever replaces the folder meanwhile.

`save` exchanges a whole folder for another, and removes the old one. Who opens files one by one
by their paths may get some of each; here the folder is opened once and its files relative to it.
If one is missing then, because the old folder is just being removed, reading begins anew.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from transcf.errors import ModelFileError

T = TypeVar("T")

#: How often a folder that is replaced meanwhile is read anew.
_ATTEMPTS = 100
#: Whether files can be opened relative to an open folder; not on Windows.
_BY_HANDLE = os.open in os.supports_dir_fd
#: Held while a position is set and read from, on systems that have no one call for both.
_position = threading.Lock()


@dataclass(frozen=True)
class OpenFile:
    """A file that stays readable whatever becomes of its name.

    Attributes:
        path: What messages call it.
        handle: Its descriptor.
        size: Its bytes.
    """

    path: Path
    handle: int
    size: int

    def read(self) -> bytes:
        """Return all of it."""
        content = bytearray(self.size)
        return bytes(content[: read_into(self.handle, 0, memoryview(content))])


def read_into(handle: int, start: int, buffer: memoryview) -> int:
    """Fill a buffer from some place of a file; return how much was there."""
    filled = 0
    while filled < len(buffer):
        length = _read_some(handle, start + filled, buffer[filled:])
        if not length:
            break
        filled += length
    return filled


def _read_some(handle: int, start: int, buffer: memoryview) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(handle, [buffer], start)
    with _position:
        os.lseek(handle, start, os.SEEK_SET)
        content = os.read(handle, len(buffer))
    buffer[: len(content)] = content
    return len(content)


class OpenFolder:
    """A folder that is open while the `with` block runs, and the files that were opened in it.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        """Keep the name."""
        self.path = path
        self._handles: list[int] = []

    def __enter__(self) -> Self:
        """Open the folder.

        Raises:
            ModelFileError: There is none, or it may not be read.
        """
        try:
            if _BY_HANDLE:
                self._handles.append(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY))
            elif not self.path.is_dir():
                raise NotADirectoryError
            self._facts = os.stat(self._handles[0] if _BY_HANDLE else self.path)
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:
            raise ModelFileError(f"There is no model folder {self.path}.") from error
        except OSError as error:
            raise _unreadable(self.path, error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close everything."""
        while self._handles:
            os.close(self._handles.pop())

    def file(self, name: str) -> OpenFile | None:
        """Open a file of the folder; None if there is no plain file of that name."""
        # Not blocking: a pipe of that name would keep everybody waiting for a writer.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            if _BY_HANDLE:
                handle = os.open(name, flags, dir_fd=self._handles[0])
            else:
                handle = os.open(self.path / name, flags)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(self.path / name, error) from error
        self._handles.append(handle)
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            return None
        return OpenFile(self.path / name, handle, facts.st_size)

    def was_replaced(self) -> bool:
        """Whether the name stands for another folder by now, or for none."""
        try:
            now = os.stat(self.path)
        except OSError:
            return True
        return not os.path.samestat(self._facts, now)


def read_steadily(folder: Path, read: Callable[[OpenFolder], T]) -> T:
    """Read a folder that others may replace meanwhile; what is wrong with the old one is no error.

    Args:
        folder: Where it is.
        read: Reads what is wanted, and raises a `ModelFileError` if something is wrong.
    """
    for _ in range(_ATTEMPTS):
        with OpenFolder(folder) as opened:
            try:
                return read(opened)
            except ModelFileError:
                if not opened.was_replaced():
                    raise
            except OSError as error:
                raise _unreadable(folder, error) from error
    raise ModelFileError(f"{folder} is being replaced without pause: try again later.")


def _unreadable(path: Path, error: OSError) -> ModelFileError:
    return ModelFileError(f"{path} cannot be read: {error.strerror or error}.")
