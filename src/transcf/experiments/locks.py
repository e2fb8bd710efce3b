"""Locks between processes: the system frees them when their owner ends, however that is."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Say whether a file is ours for the length of the block; else somebody else has it.

    Where files cannot be locked, or the disk is full, everything is ours.

    Args:
        path: It is there while it is locked.

    Example:
        >>> with locked(Path("mine.lock")) as first, locked(Path("mine.lock")) as second:
        ...     first, second
        (True, False)
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        yield True
        return
    try:
        is_ours = _lock(handle, path)
        try:
            yield is_ours
        finally:
            if is_ours:
                path.unlink(missing_ok=True)  # while it is locked: nobody can hold it
    finally:
        os.close(handle)


def _lock(handle: int, path: Path) -> bool:
    """Lock a file unless somebody else holds it, or has removed it meanwhile."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # no locks on this file system
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
