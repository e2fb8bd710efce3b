"""How many threads work on something, and how they share it.

`use_threads(2)` limits our own kernels, the matrix products of BLAS, and torch where it is loaded.
Results never depend on it, because work is cut by blocks of data.

Kernels are compiled without the interpreter lock and run on plain threads of one pool that stays:
starting threads for every block would cost more than some blocks, and a parallel loop of the
compiler takes longer to compile than to run once.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from transcf.errors import UnsupportedError, check_integer

# -- the number of threads ---------------------------------------------------------------------


class _Limits:
    """What is asked for at the moment, and what the libraries had before.

    Of several requests for a number of threads the latest counts. `alone` is how many want matrix
    products on one thread, which counts for BLAS whatever else is asked for.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.requests, self.alone = dict[object, int](), 0
        self._libraries: list[Any] = []
        self._before: dict[str, int] = {}  # threads of each library, until nothing is asked for

    def apply(self, *, to_all: bool, search: bool = False) -> None:
        """Set the number of threads of the libraries, or of BLAS alone.

        With `search`, libraries that were loaded since the last time are found.
        """
        count = next(reversed(self.requests.values()), None)
        torch = sys.modules.get("torch") if to_all else None
        if torch is not None:  # asked before any of its libraries changes
            self._before.setdefault("torch", torch.get_num_threads())
        if search or not self._libraries:
            self._libraries = _loaded_libraries()
        for library in self._libraries:
            is_blas = library.user_api == "blas"
            if to_all or is_blas:
                before = self._before.setdefault(library.filepath, library.num_threads)
                library.set_num_threads(1 if is_blas and self.alone else count or before)
        if torch is not None:
            torch.set_num_threads(count or self._before["torch"])
        if not (self.requests or self.alone):
            self._before.clear()


def _loaded_libraries() -> list[Any]:
    """Return the libraries with threads that are loaded; looking for them takes a while."""
    # Only libraries that are loaded can be limited, and these will be.
    import numpy  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    found: list[Any] = ThreadpoolController().lib_controllers
    return found


_limits = _Limits()


def thread_count() -> int:
    """Threads that work is shared among: as many as were asked for, else one for every core."""
    if requests := list(_limits.requests.values()):  # another thread may end the last one meanwhile
        return requests[-1]
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Let kernels, BLAS and torch use `count` threads inside the block; None changes nothing.

    It holds for the whole process, whichever of its threads asked; of several requests at a time
    the latest one that is still open counts.

    Raises:
        ParameterError: It is not a whole number of at least 1.

    Example:
        >>> with use_threads(1):
        ...     thread_count()
        1
    """
    if count is None:
        yield
        return
    count, key = check_integer("threads", count, 1), object()
    with _limits.lock:
        _limits.requests[key] = count
        _limits.apply(to_all=True, search=True)
    try:
        yield
    finally:
        with _limits.lock:
            del _limits.requests[key]
            _limits.apply(to_all=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let matrix products inside the block run on the thread that asks for them.

    For kernels that share their work among threads by themselves: the products of each are the
    same to the bit however many there are, and do not fight for cores.
    """
    with _limits.lock:
        _limits.alone += 1
        _limits.apply(to_all=False)
    try:
        yield
    finally:
        with _limits.lock:
            _limits.alone -= 1
            _limits.apply(to_all=False)


# -- the pool ----------------------------------------------------------------------------------

_working = threading.local()


@lru_cache(maxsize=1)
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, "transcf")


@contextmanager
def instead_of_sharing(note: Callable[[Any], object]) -> Iterator[None]:
    """Call `note(work)` where this thread would share work inside the block."""
    _working.note = note
    try:
        yield
    finally:
        _working.note = None


def parallel_for(n: int, work: Callable[[int, int], object], least: int = 1) -> None:
    """Call `work(first, end)` on ranges that cover 0 to n, side by side; returns when all are done.

    Args:
        n: How many parts there are, independent of each other: where it is cut changes nothing.
        work: Mostly a kernel that has let go of the interpreter lock. Work that is shared by
            work which is itself shared runs on its own thread.
        least: Fewer parts than this are not worth a thread.
    """
    if (note := getattr(_working, "note", None)) is not None:
        note(work)
        return
    most = thread_count()
    threads = 1 if getattr(_working, "is_shared", False) else min(most, n // least)
    if threads <= 1:
        work(0, n)
        return
    cuts = [n * part // threads for part in range(threads + 1)]
    pool = _pool(most)
    others = [pool.submit(_run, work, *ends) for ends in pairwise(cuts[1:])]
    try:
        _run(work, cuts[0], cuts[1])
    except BaseException:
        _release_compiler()
        raise
    finally:
        errors = [other.exception() for other in others]  # waits for all of them
    for error in errors:
        if error is not None:
            raise error


def _release_compiler() -> None:
    """Release numba's lock, which an exception of Ctrl-C may have left locked by this thread."""
    compiler = sys.modules.get("numba.core.compiler_lock")
    while compiler is not None and compiler.global_compiler_lock.is_locked():
        compiler.global_compiler_lock.release()


def _run(work: Callable[[int, int], object], first: int, end: int) -> None:
    _working.is_shared = True
    try:
        work(first, end)
    finally:
        _working.is_shared = False


# -- forks -------------------------------------------------------------------------------------

#: Whether polars was at work before a fork: a forked process has none of its threads.
_is_polars_at_work = _is_polars_lost = False


def check_unforked(what: str) -> None:
    """Refuse what needs the threads of polars where a fork has lost them: it would wait for ever.

    Fitted models answer in a forked child all the same; only files and logs need polars whole.
    `what` is about to be done, as in "load a model".
    """
    if _is_polars_lost:
        raise UnsupportedError(
            f"This process cannot {what}: it was forked from one in which polars was at work, and "
            f"has none of its threads; do it before the fork, or start the process by 'spawn'."
        )


def _before_fork() -> None:
    """Look for threads of polars; where the system does not name threads, they are running."""
    global _is_polars_at_work
    tasks = Path("/proc/self/task")
    try:
        names = [path.read_text() for path in tasks.glob("*/comm")] if tasks.exists() else None
    except OSError:
        names = None
    is_running = names is None or any(re.match(r"polars-\d", name) for name in names)
    _is_polars_at_work = _is_polars_lost or ("polars" in sys.modules and is_running)


def _after_fork() -> None:
    """Forget threads that are not here, and who of them holds a lock."""
    global _is_polars_lost
    _is_polars_lost, _limits.lock = _is_polars_at_work, threading.RLock()
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
