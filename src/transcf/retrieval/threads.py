"""Sharing the rows of a block among threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba

#: Fewer rows than this are not worth a thread.
MIN_ROWS = 32


def share_rows(n_rows: int, work: Callable[[slice], None]) -> None:
    """Call `work` on slices that cover the rows, on as many threads as numba may use.

    Rows have to be independent of each other, so that the cut changes nothing. Plain threads and
    kernels that release the interpreter lock are safe under a server that calls from several
    threads; numba's own parallel loops are not on every platform.
    """
    threads = max(1, min(numba.get_num_threads(), n_rows // MIN_ROWS))
    if threads == 1:
        work(slice(0, n_rows))
        return
    cuts = [n_rows * n // threads for n in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        # `list` waits for all of them and lets an error out.
        list(pool.map(work, map(slice, cuts[:-1], cuts[1:])))
