"""Whether what a model is about to learn fits into memory, told before it starts.

Settings that ask for much say so: a class of settings with a method `room` is asked before every
fit. The figure is what learning takes at the very least, so that nothing is refused that would
have gone well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from transcf.errors import OutOfMemoryError

_MEMORY = Path("/proc/meminfo")
#: What a container may take, in its two forms.
_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@dataclass(frozen=True)
class MemoryEstimate:
    """What learning takes at least.

    Attributes:
        size: Bytes.
        what: What takes them, such as "dim=64".
        remedy: How to need less.
    """

    size: int
    what: str
    remedy: str = "lower dim"


@runtime_checkable
class EstimatesMemory(Protocol):
    """Settings that know how much memory learning takes."""

    def room(self, users: int, items: int) -> MemoryEstimate:
        """Return what learning takes at least, for so many users and items."""


@contextmanager
def check_memory(name: str, settings: object, users: int, items: int) -> Iterator[None]:
    """Learn only if there is room for it, and say so if it was not enough after all.

    Args: as for `check_free_memory`.

    Raises:
        OutOfMemoryError: Before anything is learned, or where the system gives no more memory.
    """
    check_free_memory(name, settings, users, items)
    try:
        yield
    except OutOfMemoryError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(
            f"{name} ran out of memory on {users:,} users and {items:,} items: use smaller "
            f"settings, or less data ({error})."
        ) from error


def check_free_memory(name: str, settings: object, users: int, items: int) -> None:
    """Raise a `OutOfMemoryError` if learning cannot fit into the memory that is free.

    Args:
        name: What the error calls the model.
        settings: Its settings; those without `room` are not checked.
        users: Number of users.
        items: Number of items.
    """
    if not isinstance(settings, EstimatesMemory):
        return
    needed, free = settings.room(users, items), free_memory()
    if free is not None and needed.size > free:
        raise OutOfMemoryError(
            f"{name} needs {_shown(needed.size)} of memory for {users:,} users and {items:,} items "
            f"with {needed.what}, and {_shown(free)} are free: {needed.remedy}."
        )


def vectors(count: int, dim: int) -> int:
    """Return the bytes of float32 vectors while they are learned: theirs and those of a copy."""
    return 2 * 4 * count * dim


def free_memory() -> int | None:
    """Return the bytes that are free for a process, or None if the system does not tell."""
    found = [limit for limit in map(_limit, _LIMITS) if limit is not None]
    try:
        told = re.search(r"MemAvailable:\s+(\d+) kB", _MEMORY.read_text())
    except OSError:
        told = None
    if told is not None:
        found.append(1024 * int(told[1]))
    elif hasattr(os, "sysconf"):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found, default=None)


def _limit(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # there is none, or it says "max"
        return None


def _shown(size: int) -> str:
    if size >= 2**60:
        return "more than an EiB"
    return f"{size / 2**30:,.0f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"
