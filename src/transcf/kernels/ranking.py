"""Counting who beats a held-out item."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from transcf.kernels.decorators import compiled, inner
from transcf.kernels.products import pair_score

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
    first: int,
    columns: Rows,
    error: Floats,
    user_vectors: Floats,
    item_vectors: Floats,
    constants: Floats,
    indptr: Counts,
    target_scores: Floats,
    above: Counts,
    at_least: Counts,
) -> None:
    """Add to each target how many scores of a tile are above it, and how many are not below it.

    Targets of row r are `indptr[r]` to `indptr[r + 1]`; their scores are true ones. Hidden
    scores (-inf) never count. Where a tile's score is within its error of a target, the pair is
    scored again.
    """
    width = tile.shape[1]
    for row in range(len(tile)):
        line, constant, doubt = tile[row], constants[row], error[row]
        for target in range(indptr[row], indptr[row + 1]):
            true_score = target_scores[target]
            middle = np.float32(true_score - constant)
            low, high = np.float32(middle - doubt), np.float32(middle + doubt)
            for start in range(0, width, CHUNK):
                part = line[start : min(start + CHUNK, width)]
                over, level = _count_pair(part, low, high)
                above[target] += over
                at_least[target] += over if doubt > 0 else level
                if doubt == 0 or over == level:
                    continue
                for n in range(len(part)):
                    if low <= part[n] <= high:
                        vector = item_vectors[columns[first + start + n]]
                        score = pair_score(user_vectors[row], vector, constant)
                        above[target] += score > true_score
                        at_least[target] += score >= true_score


@compiled
def count_surely_better(
    tile: Floats,
    error: Floats,
    indptr: Counts,
    target_scores: Floats,
    above: Counts,
    at_least: Counts,
) -> int:
    """Like `count_better`, but leave out what is within a tile's error; return how many are."""
    doubts = 0
    for row in range(len(tile)):
        for target in range(indptr[row], indptr[row + 1]):
            low = np.float32(target_scores[target] - error[row])
            high = np.float32(target_scores[target] + error[row])
            for start in range(0, tile.shape[1], CHUNK):
                part = tile[row, start : min(start + CHUNK, tile.shape[1])]
                over, level = _count_pair(part, low, high)
                above[target] += over
                at_least[target] += over
                doubts += level - over
    return doubts


@compiled
def list_doubts(
    tile: Floats, error: Floats, indptr: Counts, target_scores: Floats, doubts: int
) -> tuple[Rows, Rows, Counts]:
    """Rows, columns and targets of what `count_surely_better` has left out, (doubts,) each."""
    rows, columns = np.empty(doubts, np.int32), np.empty(doubts, np.int32)
    targets, found = np.empty(doubts, np.int64), 0
    for row in range(len(tile)):
        for target in range(indptr[row], indptr[row + 1]):
            low = np.float32(target_scores[target] - error[row])
            high = np.float32(target_scores[target] + error[row])
            for start in range(0, tile.shape[1], CHUNK):
                part = tile[row, start : min(start + CHUNK, tile.shape[1])]
                over, level = _count_pair(part, low, high)
                if over == level:
                    continue
                for n in range(len(part)):
                    if low <= part[n] <= high:
                        rows[found], columns[found], targets[found] = row, start + n, target
                        found += 1
    return rows, columns, targets


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
