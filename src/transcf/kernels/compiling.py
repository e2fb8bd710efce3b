"""Knowing that kernels are being compiled, which makes a first use slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event


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
