"""Compilation of kernels: when it happens, and how long it takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from numba.core import event

_log = logging.getLogger("transcf.kernels")


class _Compiling(event.Listener):  # type: ignore[misc]
    """Tells when compiling starts and ends; functions compile those that they call meanwhile."""

    def __init__(self, tell: Callable[[bool], object]) -> None:
        self._tell, self._depth = tell, 0

    def on_start(self, event: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._tell(True)

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._tell(False)


class _Timer:
    """Adds up the seconds that this process compiles, and logs that it does, once."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._started: float | None = None
        self._is_logged = False
        event.register("numba:compile", _Compiling(self._tell))

    def _tell(self, is_compiling: bool) -> None:
        if is_compiling:
            self._started = perf_counter()
            if not self._is_logged:
                _log.info("compiling kernels, which happens on first use only ...")
            self._is_logged = True
        elif self._started is not None:
            self._seconds += perf_counter() - self._started
            self._started = None

    def clock(self) -> float:
        now, started = perf_counter(), self._started
        return now - self._seconds - (0.0 if started is None else now - started)


#: Returns seconds as `time.perf_counter` does, without those in which kernels are compiled.
clock = _Timer().clock


@contextmanager
def on_compile(callback: Callable[[bool], object]) -> Iterator[None]:
    """Call `callback(True)` when compiling starts inside the block, `callback(False)` when it ends.

    Functions that are loaded from disk do not count. Only one thread at a time compiles, and it is
    the one that calls.

    Example:
        >>> with on_compile(lambda is_compiling: print("compiling" if is_compiling else "done")):
        ...     model.fit(log)  # doctest: +SKIP
    """
    with event.install_listener("numba:compile", _Compiling(callback)):
        yield
