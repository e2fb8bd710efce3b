"""Atomic writes of files and folders.

Both are written in a hidden folder `.NAME.TOKEN.tmp` next to the target and renamed at the end. New
files get the permissions of the umask, whichever library wrote them. What the system refuses (a
full disk, no permission) is a `WriteError` in one sentence, and leaves the target as it was.

The writer keeps its hidden folder locked. The system releases the lock when the writer ends in any
way, so the next writer of the same target removes folders whose lock is free. Where folders cannot
be locked (Windows, some network disks), none is ever removed. (Not by `filelock`: its import takes
longer than most writes.)
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from transcf.errors import DataError, TransCFError, WriteError
from transcf.interrupts import remove_folder, temporary, uninterrupted

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_NEW, _OLD = "new", "old"
#: Longest target name, in bytes, that a hidden folder repeats: most systems end names at 255.
_NAME_BYTES = 200
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2

#: Polars reports this, without the system's number, if it cannot write the end of a Parquet file.
_FOOTER = "Invalid thrift: transport error"
_FORBIDDEN = "there is no permission to write there: choose another place or ask for it"
_REASONS = {
    errno.ENOSPC: "the disk is full: free some space or choose another place",
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
    """Yield a path to write to; at the end the file replaces the target.

    A file that is replaced keeps its permissions, and a symbolic link stays: the file that it
    points to is replaced. If anything fails, the target stays as it was and nothing else is left.
    """
    with _write_errors(target):
        if is_taken(target) and target.is_symlink():
            target = Path(os.path.realpath(target))
        mode = stat.S_IMODE(target.stat().st_mode) if is_taken(target) else None
        if mode is not None and not target.is_file():
            raise WriteError(f"{target} is not a file that can be replaced: name another one.")
        with workspace(target) as (folder, file_mode):
            unfinished = folder / _NEW / target.name
            yield unfinished
            _flush(unfinished, file_mode if mode is None else mode)
            unfinished.replace(target)


def atomic_write_text(target: Path, text: str) -> Path:
    """Write a text file as `atomic_write` does, and return its path."""
    with atomic_write(target) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    return target


@contextmanager
def atomic_write_dir(target: Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield a folder to write to; at the end it replaces the target.

    The files and both folders are flushed to disk before the swap. If anything fails, the
    target stays as it was and nothing else is left. Without `replace`, a folder that is not empty
    is left alone, which is a `WriteError`.
    """
    with _write_errors(target):
        is_taken(target)
        with workspace(target) as (folder, file_mode):
            new = folder / _NEW
            yield new
            for path in (*sorted(new.rglob("*")), new):
                _flush(path, file_mode)
            _put_in_place(folder, target, replace)
            _flush(target.parent, file_mode)


def check_free(target: Path, is_ours: Callable[[Path], bool], what: str) -> None:
    """Raise a `DataError` if a folder holds something else than what is written there."""
    is_used = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if is_used and not is_ours(target):
        raise DataError(f"{target} exists and is not {what}: choose another folder or remove it.")


def is_taken(target: Path) -> bool:
    """Return whether anything exists at a path; raise a `WriteError` if nothing can be there."""
    if "\0" in str(target):
        raise WriteError(f"{str(target)!r} cannot be written: a name has no NUL in it.")
    with _write_errors(target):
        try:
            target.lstat()
        except FileNotFoundError:
            return False
        except ValueError as error:  # such as half of a character
            raise WriteError(f"{str(target)!r} cannot be written: {error}.") from error
    return True


@contextmanager
def workspace(target: Path) -> Iterator[tuple[Path, int]]:
    """Yield a hidden folder next to the target, with a folder `new`, and permissions of new files.

    Those that killed writers of the same target left behind are removed first.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(target)
    with temporary(partial(_make, target), partial(_close, target)) as (folder, _):
        yield folder, stat.S_IMODE(folder.stat().st_mode) & 0o666


def remove_abandoned(target: Path) -> None:
    """Remove the hidden folders of this target whose writers have ended."""
    pattern = re.compile(rf"\.{re.escape(_stem(target))}\.[0-9a-f]{{8}}\.tmp")
    for folder in list(target.parent.iterdir()):
        if pattern.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink():
            # One that is in use or cannot be removed must not prevent writing another.
            with suppress(OSError):
                _close(target, (folder, _lock(folder)))


def _lock(folder: Path) -> int:
    """Lock a folder until the handle is closed; raise an `OSError` if that is not possible."""
    if fcntl is None:
        raise OSError("folders cannot be locked on this system")
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _make(target: Path) -> tuple[Path, int | None]:
    """Make a hidden folder, and lock it."""
    folder = target.with_name(f".{_stem(target)}.{secrets.token_hex(4)}")
    folder.mkdir()
    (folder / _NEW).mkdir()
    handle = None  # if it cannot be locked, no writer locks it and removes it as abandoned
    with suppress(OSError):
        handle = _lock(folder)
    return folder.rename(f"{folder}.tmp"), handle  # locked, before another writer looks at it


def _close(target: Path, made: tuple[Path, int | None]) -> None:
    """Remove what a writer made in a locked hidden folder, and the folder if it is empty."""
    folder, handle = made
    try:
        # Of two renames of which the second was not done, the first is undone.
        if (folder / _OLD).exists() and not target.exists():
            (folder / _OLD).rename(target)
        for part in (_NEW, _OLD):
            remove_folder(folder / part)
        with suppress(OSError):
            folder.rmdir()
    finally:
        if handle is not None:
            os.close(handle)


def _stem(target: Path) -> str:
    """Return the target's name, or its hash if the name is too long."""
    name = os.fsencode(target.name)
    return target.name if len(name) <= _NAME_BYTES else hashlib.sha256(name).hexdigest()


def _put_in_place(folder: Path, target: Path, replace: bool) -> None:
    """Rename the new folder to the target; an old one is in the hidden folder afterwards."""
    new, old = folder / _NEW, folder / _OLD
    try:
        new.rename(target)  # to a free name, or over an empty folder
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    if not replace:
        raise WriteError(f"{target} appeared while it was being written, and was left alone.")
    if _exchange(new, target):
        return
    # No atomic exchange on this system: the name is free for a moment between two renames.
    with uninterrupted():
        target.rename(old)
        try:
            new.rename(target)
        except OSError:
            old.rename(target)
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step, if the system can."""
    rename = getattr(ctypes.CDLL(None) if os.name == "posix" else None, "renameat2", None)
    if rename is None:
        return False
    paths = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
    return bool(rename(*paths, _RENAME_EXCHANGE) == 0)


@contextmanager
def _write_errors(target: Path) -> Iterator[None]:
    """Convert errors of the system, and those of polars and safetensors, to a `WriteError`."""
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
    """Return whether an error names a file outside the folder of the target."""
    name = getattr(error, "filename", None)
    if not isinstance(name, str | bytes):
        return False
    path, folder = os.path.abspath(os.fsdecode(name)), os.path.abspath(target.parent)
    return not (path.startswith(folder) or folder.startswith(path))


def _flush(path: Path, file_mode: int) -> None:
    """Set the permissions of a file, and flush a file or folder to disk."""
    if path.is_file() and not path.is_symlink():
        path.chmod(file_mode)
    if path.is_dir() and os.name != "posix":
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
