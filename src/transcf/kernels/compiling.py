"""Compilation of kernels: when it happens, and how long it takes.

`decorators` reports it. This module does not import numba: models without kernels need it, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

_log = logging.getLogger("transcf.kernels")
_callbacks: list[Callable[[bool], object]] = []


class _Timer:
    """Adds up the seconds that this process compiles, and logs that it does, once.

    Functions compile those that they call meanwhile. Only one thread at a time compiles.
    """

    def __init__(self) -> None:
        self._seconds, self._depth = 0.0, 0
        self._started: float | None = None
        self._is_logged = False

    def start(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._started = perf_counter()
        if not self._is_logged:
            _log.info("compiling kernels, which happens on first use only ...")
        self._is_logged = True
        for callback in tuple(_callbacks):
            callback(True)

    def end(self) -> None:
        self._depth -= 1
        if self._depth or self._started is None:
            return
        for callback in tuple(_callbacks):
            callback(False)
        self._seconds += perf_counter() - self._started
        self._started = None

    def clock(self) -> float:
        now, started = perf_counter(), self._started
        return now - self._seconds - (0.0 if started is None else now - started)


_timer = _Timer()
note_start, note_end = _timer.start, _timer.end
#: Returns seconds as `time.perf_counter` does, without those in which kernels are compiled.
clock = _timer.clock


@contextmanager
def on_compile(callback: Callable[[bool], object]) -> Iterator[None]:
    """Call `callback(True)` when compiling starts inside the block, `callback(False)` when it ends.

    Functions that are loaded from disk do not count. Only one thread at a time compiles, and it is
    the one that calls.
    """
    _callbacks.append(callback)
    try:
        yield
    finally:
        _callbacks.remove(callback)
