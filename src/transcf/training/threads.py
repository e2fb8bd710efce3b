"""How many threads compiled kernels use, for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba


@contextmanager
def kernel_threads(count: int | None) -> Iterator[None]:
    """Run kernels on `count` threads (at most what numba was started with); None changes nothing.

    Results never depend on it: kernels split their work by blocks of data, not by thread.
    """
    before = numba.get_num_threads()
    if count is not None:
        numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        numba.set_num_threads(before)
