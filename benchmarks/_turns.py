"""What timed benchmarks share: one thread, and contestants that take turns."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from transcf.parallel import use_threads

_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_limited = ExitStack()


def use_one_thread() -> None:
    """Start this program again with one thread for everything, unless it has one already.

    Peers read these settings when they are loaded, so setting them later is no use.
    """
    if any(os.environ.get(name) != "1" for name in _LIMITS):
        os.execve(
            sys.executable, [sys.executable, *sys.argv], os.environ | dict.fromkeys(_LIMITS, "1")
        )
    _limited.enter_context(use_threads(1))


def in_turn(
    contestants: dict[str, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Run everybody once to warm up, then in turn; median seconds of each by a clock."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(repeats + 1):
        for name, run in contestants.items():
            start = clock()
            run()
            if turn:
                seconds[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
