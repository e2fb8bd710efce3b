"""Counting who beats a held-out item, in tiles of scores (see `topk` for tiles)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from transcf.kernels import compiled
from transcf.kernels.products import pair_score

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]


@compiled
def count_beaters(
    tile: Floats,
    first: int,
    columns: Rows,
    error: Floats,
    user_vectors: Floats,
    item_vectors: Floats,
    constants: Floats,
    indptr: Counts,
    targets: Floats,
    above: Counts,
    level: Counts,
) -> None:
    """Add to each target the scores of the tile above it and level with it.

    Args:
        tile: (n, width) scores without constants; what does not compete is -inf.
        first: Column of the tile's first score.
        columns: Item row of each column.
        error: (n,) how far a tile's score may be from the true one; 0 if it is the true one.
        user_vectors: (n, d) for true scores; not read where the error is 0.
        item_vectors: (n_items, d).
        constants: (n,) to be added to the tile's scores.
        indptr: (n + 1,) targets of each row.
        targets: (m,) true scores of the targets, constants included.
        above: (m,) counts to add to.
        level: (m,) counts to add to.
    """
    width = tile.shape[1]
    for row in range(len(tile)):
        line = tile[row]
        for t in range(indptr[row], indptr[row + 1]):
            target = targets[t]
            if error[row] == 0:
                for n in range(width):
                    above[t] += line[n] > target
                    level[t] += line[n] == target
                continue
            low = target - constants[row] - 2 * error[row]
            high = target - constants[row] + 2 * error[row]
            surely, maybe = 0, 0
            for n in range(width):
                surely += line[n] > high
                maybe += line[n] >= low
            above[t] += surely
            if maybe == surely:
                continue
            for n in range(width):
                if low <= line[n] <= high:
                    item = item_vectors[columns[first + n]]
                    score = pair_score(user_vectors[row], item, constants[row])
                    above[t] += score > target
                    level[t] += score == target


@compiled
def count_candidates(
    scores: Floats, indptr: Counts, targets: Floats, above: Counts, level: Counts
) -> None:
    """Count the candidates above and level with each target; one target per row of `indptr`."""
    for t in range(len(targets)):
        for n in range(indptr[t], indptr[t + 1]):
            above[t] += scores[n] > targets[t]
            level[t] += scores[n] == targets[t]
