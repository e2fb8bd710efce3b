"""Locks of open files between processes; the system frees them when their owner ends."""

from __future__ import annotations

import errno
import os

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]


def try_lock(handle: int) -> bool:
    """Lock an open file unless another process or handle holds it; closing the file unlocks it.

    Raises:
        OSError: There are no locks on this system or file system.
    """
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif os.name == "nt":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    except (BlockingIOError, PermissionError):  # the first on POSIX, the second on Windows
        return False
    return True
