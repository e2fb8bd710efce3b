"""Counting the scores that beat held-out items."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from transcf.kernels.decorators import compiled, inner

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]

#: Scores that are compared at once.
CHUNK = 256
_ZERO = np.float32(0)
_ONE = np.float32(1)


@inner
def _count_pair(part: Floats, low: np.float32, high: np.float32) -> tuple[int, int]:
    """How many scores are above `high`, and how many are at least `low`."""
    # Sums of ones are the form that compilers turn into vector code; exact up to 2^24 terms.
    above = at_least = _ZERO
    for n in range(len(part)):
        above += _ONE if part[n] > high else _ZERO
        at_least += _ONE if part[n] >= low else _ZERO
    return int(above), int(at_least)


@compiled
def count_better(
    tile: Floats,
    error: Floats,
    indptr: Counts,
    levels: Floats,
    above: Counts,
    at_least: Counts,
    doubts: Counts,
) -> None:
    """Add to each target how many scores of a tile are above it, and how many are not below it.

    Targets of row r are `indptr[r]` to `indptr[r + 1]`; `levels` are their scores without the
    user's constant. Hidden scores (-inf) never count. Scores within the tile's error of a target
    are left out, and added to `doubts`.
    """
    width = tile.shape[1]
    for row in range(len(tile)):
        line, doubt = tile[row], error[row]
        for target in range(indptr[row], indptr[row + 1]):
            low, high = np.float32(levels[target] - doubt), np.float32(levels[target] + doubt)
            for start in range(0, width, CHUNK):
                over, level = _count_pair(line[start : min(start + CHUNK, width)], low, high)
                above[target] += over
                at_least[target] += over if doubt > 0 else level
                doubts[target] += level - over if doubt > 0 else 0


@compiled
def list_doubts(
    tile: Floats,
    error: Floats,
    indptr: Counts,
    levels: Floats,
    doubts: Counts,
    rows: Rows,
    columns: Rows,
    targets: Counts,
) -> None:
    """Fill rows, columns and targets with the scores that `count_better` has left out."""
    found, width = 0, tile.shape[1]
    for row in range(len(tile)):
        for target in range(indptr[row], indptr[row + 1]):
            low = np.float32(levels[target] - error[row])
            high = np.float32(levels[target] + error[row])
            for start in range(0, width if doubts[target] > 0 else 0, CHUNK):
                part = tile[row, start : min(start + CHUNK, width)]
                over, level = _count_pair(part, low, high)
                if over == level:  # counted by vectors, which is faster than looking at each
                    continue
                for n in range(len(part)):
                    if low <= part[n] <= high:
                        rows[found], columns[found], targets[found] = row, start + n, target
                        found += 1


@compiled
def count_better_candidates(
    candidate_indptr: Counts,
    candidate_scores: Floats,
    target_indptr: Counts,
    target_scores: Floats,
    above: Counts,
    at_least: Counts,
) -> None:
    """Set for each target how many candidates of its row are above it, and how many not below."""
    for row in range(len(target_indptr) - 1):
        part = candidate_scores[candidate_indptr[row] : candidate_indptr[row + 1]]
        for target in range(target_indptr[row], target_indptr[row + 1]):
            score = target_scores[target]
            above[target], at_least[target] = _count_pair(part, score, score)
