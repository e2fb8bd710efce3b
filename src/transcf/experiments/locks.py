"""Locks between processes: the system frees them when their owner ends, however that is."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from transcf.data.atomic import try_lock
from transcf.interrupts import temporary


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
    with temporary(partial(_open, path), partial(_close, path)) as (_, is_ours):
        yield is_ours


def _open(path: Path) -> tuple[int | None, bool]:
    """Open a file, and say whether it is locked for this process; a full disk counts as a lock."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return None, True
    return handle, _lock(handle, path)


def _close(path: Path, opened: tuple[int | None, bool]) -> None:
    """Remove a file while it is locked, so that no other process holds it, and close it."""
    handle, is_ours = opened
    if handle is None:
        return
    if is_ours:
        with suppress(OSError):  # Windows does not remove open files: it stays there
            path.unlink(missing_ok=True)
    os.close(handle)


def _lock(handle: int, path: Path) -> bool:
    """Lock a file unless somebody else holds it, or has removed it meanwhile."""
    try:
        if not try_lock(handle):
            return False
    except OSError:
        return True  # no locks on this file system
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
