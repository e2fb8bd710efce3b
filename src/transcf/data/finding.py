"""The rows of ids, found without threads.

polars searches with a pool of threads, which a forked child does not have: it would wait for
ever. Servers that load a model and then fork, and multiprocessing, do just that. What is used
here (numpy; hashes, equality, filtering and gathering in polars) works in the calling thread;
methods of polars that go through an expression, such as `fill_null`, do not.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

Rows: TypeAlias = npt.NDArray[np.int32]
#: Takes ids of a comparable kind and returns the row of each.
Finder: TypeAlias = Callable[[pl.Series], Rows]

#: The row of an id that is not there.
UNKNOWN = -1


def finder_of(ids: pl.Series) -> Finder:
    """Return what finds ids among some, which are unique and in ascending order (at least one).

    Example:
        >>> finder_of(pl.Series(["ann", "bob"]))(pl.Series(["bob", "zoe", None])).tolist()
        [1, -1, -1]
    """
    return _text_finder(ids) if ids.dtype == pl.String else _integer_finder(ids)


def _integer_finder(ids: pl.Series) -> Finder:
    known = ids.to_numpy()

    def find(wanted: pl.Series) -> Rows:
        sought = wanted.cast(pl.Int64, strict=False)
        if wanted.dtype.is_float() or sought.null_count():
            # The cast cuts fractions off, and what does not fit is null.
            whole = (sought.is_not_null() & sought.eq_missing(wanted)).to_numpy()
            rows = np.full(len(wanted), UNKNOWN, dtype=np.int32)
            rows[whole] = search(sought.filter(pl.Series(whole)).to_numpy())
            return rows
        return search(sought.to_numpy())

    def search(values: npt.NDArray[np.int64]) -> Rows:
        places = np.minimum(np.searchsorted(known, values), len(known) - 1)
        return np.where(known[places] == values, places, UNKNOWN).astype(np.int32)

    return find


def _text_finder(ids: pl.Series) -> Finder:
    """Look text up by its hash: eight bytes an id, and several times faster than by its letters."""
    seed, order, ordered = _unique_hashes(ids)

    def find(wanted: pl.Series) -> Rows:
        places = np.searchsorted(ordered, wanted.hash(seed).to_numpy())
        rows = order[np.minimum(places, len(ordered) - 1)]
        found = ids.gather(pl.Series(rows)).eq_missing(wanted)  # another id may share the hash
        return np.where(found.to_numpy(), rows, np.int32(UNKNOWN))

    return find


def _unique_hashes(ids: pl.Series) -> tuple[int, Rows, npt.NDArray[np.uint64]]:
    """Return the first seed that gives all ids different hashes, their order, and them in it."""
    for seed in count():
        hashes = ids.hash(seed).to_numpy()
        order = np.argsort(hashes).astype(np.int32)
        ordered = hashes[order]
        if (ordered[1:] != ordered[:-1]).all():
            return seed, order, ordered
    raise AssertionError("unreachable: `count` does not end")
