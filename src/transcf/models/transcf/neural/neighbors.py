"""Neighbourhoods as rows of one length, drawn where there are more neighbours."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from transcf.kernels import Array


class Padded(NamedTuple):
    """Neighbours of some rows.

    Attributes:
        rows: (n, width) int64; where there are fewer than `width`, any row.
        absent: (n, width) bool, which of them are none.
    """

    rows: Array
    absent: Array


class Neighborhoods:
    """Who is next to whom, at most so many of them at a time.

    Args:
        indptr: (n + 1,) int64.
        indices: (nnz,) int32.
        limit: Most neighbours that are looked at.
    """

    def __init__(self, indptr: Array, indices: Array, limit: int) -> None:
        """Keep them."""
        self._starts, self._sizes = indptr[:-1], np.diff(indptr)
        self._sorted, self._indices, self._limit = indices, indices, limit
        self._owners = np.repeat(np.arange(len(self._sizes)), self._sizes)

    def shuffle(self, generator: np.random.Generator) -> None:
        """Put the neighbours of every row into random order, whatever it was before."""
        order = np.lexsort((generator.random(len(self._sorted)), self._owners))
        self._indices = self._sorted[order]

    def of(self, rows: Array, generator: np.random.Generator) -> Padded:
        """Return the neighbours of rows (n,), `limit` of them drawn evenly where there are more.

        Those in a row from a random place on: in shuffled order that draws none of them twice.
        """
        sizes = self._sizes[rows]
        width = int(min(self._limit, sizes.max(initial=1)))
        first = np.where(sizes > width, generator.integers(0, np.maximum(1, sizes)), 0)
        places = first[:, None] + np.arange(width)
        found = self._starts[rows][:, None] + places % np.maximum(1, sizes)[:, None]
        absent = np.arange(width) >= sizes[:, None]
        found[absent] = 0
        return Padded(self._indices[found].astype(np.int64), absent)
