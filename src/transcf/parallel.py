"""How many threads work on something, and how they share it.

One word for everything: `use_threads(2)` binds our own kernels, the matrix products of BLAS, and
torch where it is loaded. Results never depend on it, because work is cut by blocks of data.

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
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from transcf.errors import ParameterError, UnsupportedError, shown

_working = threading.local()


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


class _Forks:
    """Whether this process lacks the threads of polars, which a fork does not bring along."""

    def __init__(self) -> None:
        self.lost = False
        self._running = False

    def look(self) -> None:
        """Note, before a fork, whether the threads of polars are running."""
        self._running = self.lost or ("polars" in sys.modules and _polars_runs())

    def arrive(self) -> None:
        """Note, in the child, that they are gone."""
        self.lost = self._running


def _polars_runs() -> bool:
    """Tell whether polars has started its pool; where the system does not say, it has."""
    tasks = "/proc/self/task"
    try:
        names = [Path(tasks, task, "comm").read_text() for task in os.listdir(tasks)]
    except OSError:
        return True
    return any(re.match(r"polars-\d", name) for name in names)


_pool, _forks = _Pool(), _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)
    os.register_at_fork(before=_forks.look, after_in_child=_forks.arrive)


def check_unforked(what: str) -> None:
    """Refuse what needs the threads of polars where a fork has lost them: it would wait for ever.

    Fitted models answer in a forked child all the same; only files and logs need polars whole.

    Args:
        what: What is about to be done, as in "load a model".
    """
    if _forks.lost:
        raise UnsupportedError(
            f"This process cannot {what}: it was forked from one in which polars was at work, and "
            f"has none of its threads; do it before the fork, or start the process by 'spawn'."
        )


def thread_count() -> int:
    """Threads that work is shared among: as many as were asked for, else one for every core."""
    if (asked := _limits.count) is not None:
        return asked
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
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ParameterError(f"threads={shown(count)} is not allowed; it must be at least 1.")
    request = _Request(count)
    _limits.add(request)
    try:
        yield
    finally:
        _limits.remove(request)


@dataclass(eq=False)
class _Request:
    """A requested number of threads."""

    count: int


class _Limits:
    """What is asked for at the moment, and what the libraries had before.

    Requests for a number of threads, in order, of which the latest counts; and how many want matrix
    products on the thread that asks for them, which counts for BLAS whatever else is asked for.
    """

    def __init__(self) -> None:
        self.unlock()
        self._open, self._alone = list[_Request](), 0
        self._before: Any = None
        self._torch_before = 0
        self._blas: Any = None
        self._blas_before: Any = None

    def unlock(self) -> None:
        """Forget who holds the lock: after a fork, perhaps a thread that is not there."""
        self._lock = threading.RLock()

    @property
    def count(self) -> int | None:
        requests = self._open
        return requests[-1].count if requests else None

    def add(self, request: _Request) -> None:
        with self._lock:
            self._free_blas()
            if not self._open:
                self._start()
            self._open.append(request)
            self._apply(request.count)
            self._bind_blas()

    def remove(self, request: _Request) -> None:
        with self._lock:
            self._free_blas()
            self._open.remove(request)
            if self._open:
                self._apply(self._open[-1].count)
            else:
                self._before.restore_original_limits()
                if self._torch_before:
                    sys.modules["torch"].set_num_threads(self._torch_before)
            self._bind_blas()

    def enter_alone(self) -> None:
        with self._lock:
            self._free_blas()
            self._alone += 1
            self._bind_blas()

    def leave_alone(self) -> None:
        with self._lock:
            self._free_blas()
            self._alone -= 1
            self._bind_blas()

    def _free_blas(self) -> None:
        """Undo `_bind_blas`, so that other requests see and set their own values."""
        if self._alone:
            self._blas_before.restore_original_limits()

    def _bind_blas(self) -> None:
        if not self._alone:
            return
        if self._blas is None:
            import numpy  # noqa: F401
            import scipy.linalg  # noqa: F401
            from threadpoolctl import ThreadpoolController

            self._blas = ThreadpoolController()  # looking for libraries takes a while
        self._blas_before = self._blas.limit(limits=1, user_api="blas")

    def _start(self) -> None:
        # Only libraries that are loaded can be limited, and these will be.
        import numpy  # noqa: F401
        import scipy.linalg  # noqa: F401
        from threadpoolctl import threadpool_limits

        self._before = threadpool_limits(None)
        torch = sys.modules.get("torch")
        self._torch_before = torch.get_num_threads() if torch is not None else 0

    def _apply(self, count: int) -> None:
        from threadpoolctl import threadpool_limits

        threadpool_limits(count)
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(count)


_limits = _Limits()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limits.unlock)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let matrix products inside the block run on the thread that asks for them.

    For kernels that share their work among threads by themselves: the products of each are the
    same to the bit however many there are, and do not fight for cores.

    Example:
        >>> with one_blas_thread():
        ...     pass
    """
    _limits.enter_alone()
    try:
        yield
    finally:
        _limits.leave_alone()


def parallel_for(n: int, work: Callable[[int, int], object], least: int = 1) -> None:
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
