"""Files and folders that appear whole or not at all.

Both are written in a workspace beside the target and take its name in one step. New files get the
permissions that the umask gives, whichever library wrote them. What the system refuses (a full
disk, no permission) is a `WriteError` in one sentence, and leaves the target as it was.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transcf.data.workspace import Workspace, workspace
from transcf.errors import TransCFError, WriteError
from transcf.interrupts import uninterrupted

_HERE = -100  # AT_FDCWD: paths are relative to the working directory
_EXCHANGE = 2  # RENAME_EXCHANGE: both names exist before and after

_FULL = "the disk is full: free some space or choose another place"
#: Polars reports this, without the system's number, if it cannot write the end of a Parquet file.
_FOOTER = "Invalid thrift: transport error"
_FORBIDDEN = "there is no permission to write there: choose another place or ask for it"
_REASONS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: "the quota of disk space is used up: free some of it or choose another place",
    errno.EFBIG: "it grows beyond the size that is allowed here (see ulimit -f): raise the limit "
    "or choose another place",
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
    errno.ENAMETOOLONG: "its name is too long: choose a shorter one",
    errno.ENOTDIR: "a part of its path is a file: choose another place",
    errno.EISDIR: "it is a folder: name a file",
}


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """Give a file of the same name to write to, and put it in the target's place at the end.

    A file that is replaced keeps its permissions, and a symbolic link stays: the file that it
    points to is replaced. If anything fails, the target stays as it was and nothing else is left.

    Raises:
        WriteError: The system refuses to write it.

    Example:
        >>> with atomic_write(Path("table.csv")) as path:
        ...     _ = path.write_text("a,b")
        >>> Path("table.csv").read_text()
        'a,b'
    """
    with _in_words(target):
        if _exists(target) and target.is_symlink():
            target = Path(os.path.realpath(target))
        mode = stat.S_IMODE(target.stat().st_mode) if _exists(target) else None
        if mode is not None and not target.is_file():
            raise WriteError(f"{target} is not a file that can be replaced: name another one.")
        target.parent.mkdir(parents=True, exist_ok=True)
        with workspace(target) as work:
            unfinished = work.new / target.name
            yield unfinished
            _finish(unfinished, work.file_mode if mode is None else mode)
            unfinished.replace(target)


@contextmanager
def atomic_write_dir(target: Path, *, replace: bool = True) -> Iterator[Path]:
    """Give a folder to write to, and put it in the target's place at the end.

    The files and both folders are flushed to disk before the swap. If anything fails, the
    target stays as it was and nothing else is left.

    Args:
        target: Where the folder should be.
        replace: Whether a folder with anything in it is replaced.

    Raises:
        WriteError: The system refuses to write it, or something is there and stays.
    """
    with _in_words(target):
        _exists(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with workspace(target) as work:
            yield work.new
            for path in (*sorted(work.new.rglob("*")), work.new):
                _finish(path, work.file_mode)
            _put_in_place(work, target, replace)
            _flush(target.parent)


def is_taken(target: Path) -> bool:
    """Whether anything is there.

    Raises:
        WriteError: There cannot be a file or folder of that name.
    """
    with _in_words(target):
        return _exists(target)


def _exists(target: Path) -> bool:
    """Whether anything is there; raise before the work is done if such a name cannot be."""
    if "\0" in str(target):
        raise WriteError(f"{str(target)!r} cannot be written: a name has no NUL in it.")
    try:
        target.lstat()
    except FileNotFoundError:
        return False
    except ValueError as error:  # such as half of a character
        raise WriteError(f"{str(target)!r} cannot be written: {error}.") from error
    return True


@contextmanager
def _in_words(target: Path) -> Iterator[None]:
    """Turn what the system says into a sentence.

    Polars and safetensors have errors of their own, with the system's number in their text.
    """
    try:
        yield
    except (TransCFError, ConnectionError, TimeoutError):
        raise
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        if number is None and (found := re.search(r"\(os error (\d+)\)", str(error))):
            number = int(found[1])
        elif number is None and _FOOTER in str(error):
            number = errno.ENOSPC
        if number is None or _is_elsewhere(error, target):
            raise
        reason = _REASONS.get(number, f"{os.strerror(number)}: choose another place")
        raise WriteError(f"{target} cannot be written, since {reason}.") from error


def _is_elsewhere(error: Exception, target: Path) -> bool:
    """Whether an error names a file that has nothing to do with the target."""
    name = getattr(error, "filename", None)
    if not isinstance(name, str | bytes):
        return False
    path, folder = os.path.abspath(os.fsdecode(name)), os.path.abspath(target.parent)
    return not (path.startswith(folder) or folder.startswith(path))


def _finish(path: Path, file_mode: int) -> None:
    """Give a file its permissions, and make sure that it is on disk."""
    if path.is_file() and not path.is_symlink():
        path.chmod(file_mode)
    _flush(path)


def _put_in_place(work: Workspace, target: Path, replace: bool) -> None:
    """Swap the new folder in; what was there before is in the workspace afterwards."""
    try:
        work.new.rename(target)  # to a free name, or over an empty folder
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    if not replace:
        raise WriteError(f"{target} appeared while it was being written, and was left alone.")
    if _exchange(work.new, target):
        return
    # No atomic exchange on this system: the name is free for a moment between two renames.
    with uninterrupted():
        target.rename(work.old)
        try:
            work.new.rename(target)
        except OSError:
            work.old.rename(target)
            raise


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
