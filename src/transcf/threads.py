"""How many threads work on something, and how they share it.

One word for everything: `use_threads(2)` binds our own kernels, the matrix products of BLAS, and
torch where it is loaded. Results never depend on it, because work is cut by blocks of data.

Kernels are compiled without the interpreter lock and run on plain threads of one pool that stays:
starting threads for every block would cost more than some blocks, and a parallel loop of the
compiler takes longer to compile than to run once.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise

_working = threading.local()
_asked: int | None = None  # of the whole process, as the limits of BLAS and torch are


class _Pool:
    """Threads that stay; a forked child, which has none of them, makes its own."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._lock, self._size, self._threads = threading.Lock(), 0, ThreadPoolExecutor(1)

    def of(self, size: int) -> ThreadPoolExecutor:
        with self._lock:
            if size > self._size:
                self._size, self._threads = size, ThreadPoolExecutor(size, "transcf")
            return self._threads


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)


def thread_count() -> int:
    """Threads that work is shared among: as many as were asked for, else one for every core."""
    if _asked is not None:
        return _asked
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Let kernels, BLAS and torch use `count` threads inside the block; None changes nothing.

    It holds for the whole process, whichever of its threads asked.

    Example:
        >>> with use_threads(1):
        ...     thread_count()
        1
    """
    if count is None:
        yield
        return
    from threadpoolctl import threadpool_limits

    global _asked
    asked_before, _asked = _asked, count
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 0
    try:
        if torch is not None:
            torch.set_num_threads(count)
        with threadpool_limits(count):
            yield
    finally:
        _asked = asked_before
        if torch is not None:
            torch.set_num_threads(before)


def share(n: int, work: Callable[[int, int], object], least: int = 1) -> None:
    """Call `work(first, end)` on ranges that cover 0 to n, side by side; returns when all are done.

    Args:
        n: How many parts there are, independent of each other: where it is cut changes nothing.
        work: Mostly a kernel that has let go of the interpreter lock. Work that is shared by
            work which is itself shared runs on its own thread.
        least: Fewer parts than this are not worth a thread.
    """
    threads = 1 if getattr(_working, "is_shared", False) else min(thread_count(), n // least)
    if threads <= 1:
        work(0, n)
        return
    cuts = [n * part // threads for part in range(threads + 1)]
    pool = _pool.of(threads - 1)
    others = [pool.submit(_run, work, *ends) for ends in pairwise(cuts[1:])]
    try:
        _run(work, cuts[0], cuts[1])
    finally:
        errors = [other.exception() for other in others]  # waits for all of them
    for error in errors:
        if error is not None:
            raise error


def _run(work: Callable[[int, int], object], first: int, end: int) -> None:
    _working.is_shared = True
    try:
        work(first, end)
    finally:
        _working.is_shared = False
