"""Counting and masking the entries of compressed rows by row and column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import compiled


@compiled
def count_by_row(
    indptr: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int32],
    kept_columns: npt.NDArray[np.bool_],
) -> npt.NDArray[np.int64]:
    """(n_rows,) entries of each row in kept columns."""
    counts = np.zeros(len(indptr) - 1, dtype=np.int64)
    for row in range(len(counts)):
        for place in range(indptr[row], indptr[row + 1]):
            counts[row] += kept_columns[columns[place]]
    return counts


@compiled
def count_by_column(
    indptr: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int32],
    kept_rows: npt.NDArray[np.bool_],
    n_columns: int,
) -> npt.NDArray[np.int64]:
    """(n_columns,) entries of each column in kept rows."""
    counts = np.zeros(n_columns, dtype=np.int64)
    for row in range(len(indptr) - 1):
        if kept_rows[row]:
            for place in range(indptr[row], indptr[row + 1]):
                counts[columns[place]] += 1
    return counts


@compiled
def entry_mask(
    indptr: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int32],
    kept_rows: npt.NDArray[np.bool_],
    kept_columns: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """(n_entries,) which entries lie in kept rows and kept columns."""
    mask = np.zeros(len(columns), dtype=np.bool_)
    for row in range(len(indptr) - 1):
        if kept_rows[row]:
            for place in range(indptr[row], indptr[row + 1]):
                mask[place] = kept_columns[columns[place]]
    return mask
