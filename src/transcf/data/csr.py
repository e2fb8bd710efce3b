"""`Csr`: a binary sparse matrix by rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp


@dataclass(frozen=True, eq=False)
class Csr:
    """A binary sparse matrix with ascending columns in each row.

    Attributes:
        indptr: (n_rows + 1,) int64 offsets.
        indices: (n_entries,) int32 columns.
        n_columns: Width of the matrix.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    n_columns: int

    def __post_init__(self) -> None:
        """Freeze the arrays: they are shared by everything made from them."""
        self.indptr.flags.writeable = False
        self.indices.flags.writeable = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(n_rows,) entries per row."""
        return np.diff(self.indptr)

    @property
    def entry_rows(self) -> npt.NDArray[np.int32]:
        """(n_entries,) the row of each entry."""
        return np.repeat(np.arange(self.n_rows, dtype=np.int32), self.counts)

    def row(self, row: int) -> npt.NDArray[np.int32]:
        """Return the columns of one row, ascending."""
        return self.indices[self.indptr[row] : self.indptr[row + 1]]

    def take(self, rows: npt.NDArray[np.integer]) -> Csr:
        """Return some rows, in the given order, as a matrix of their own."""
        counts = self.counts[rows]
        indptr = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(counts, out=indptr[1:])
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], counts)
        return Csr(indptr, self.indices[entries], self.n_columns)

    def to_scipy(
        self, dtype: npt.DTypeLike = np.float32, values: npt.NDArray[np.floating] | None = None
    ) -> sp.csr_array:
        """Return the matrix with ones as values, or with those that are given (if any)."""
        if values is None or not len(values):
            values = np.ones(len(self.indices), dtype=dtype)
        shape = (self.n_rows, self.n_columns)
        return sp.csr_array((values.astype(dtype), self.indices, self.indptr), shape=shape)
