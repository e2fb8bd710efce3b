"""Exact top-k: one blocked product, a selection that reads it from cache, a final order.

The order is that of the scores that are returned, and a pair's score depends on nothing else:
not on the number of threads, not on who else is in the request. A matrix product cannot promise
that (its last bits change with its shape), so products only propose candidates, within a bound
on their error, and the few candidates are scored again in float64. Scorers that give whole blocks
(`score_block`) are taken at their word: their last digits may depend on who is in a block.
"""

from __future__ import annotations

import numpy as np

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.kernels import topk as kernels
from transcf.parallel import parallel_for
from transcf.retrieval.scorer import BLOCK_BYTES, FindsBest, Scorer, Scores, for_many
from transcf.retrieval.sources import LEAST_ROWS
from transcf.retrieval.tiles import Block, Tiles


def top_k(
    scorer: Scorer,
    users: Rows,
    k: int,
    *,
    seen: Csr | None = None,
    allowed: Mask | None = None,
) -> tuple[Rows, Scores]:
    """Find the best k items of each user.

    Args:
        scorer: What gives the scores.
        users: (n,) user rows; a user may be asked for twice.
        k: Length of the lists.
        seen: Items of each user row that are left out, or None.
        allowed: (n_items,) items to choose from, or None for all that can be ranked.

    Returns:
        Item rows (n, k) int32 and scores (n, k) float32 by descending score, equal scores by
        ascending item row; where fewer items are left the rest is -1 and NaN.

    Raises:
        EvaluationError: A score among the allowed items is NaN or infinite.

    Example:
        >>> items, scores = top_k(model, rows, 10, seen=model.seen_)  # doctest: +SKIP
    """
    mask = scorer.rankable if allowed is None else allowed
    scorer = for_many(scorer, users)
    found = scorer.best(users, k, seen, mask) if isinstance(scorer, FindsBest) else None
    if found is not None:
        return found
    items = np.full((len(users), k), UNKNOWN, dtype=np.int32)
    scores = np.full((len(users), k), np.nan, dtype=np.float32)
    tiles = Tiles(scorer, mask)
    length = min(k, tiles.n_columns)
    if length == 0 or len(users) == 0:
        return items, scores
    for part in tiles.blocks(len(users)):
        for some in lists_blocks(part, length):
            block = tiles.open(users[some])
            best = BestLists(tiles, block, length, seen)
            tiles.scan(block, best.look)
            best.finish(items[some, :length], scores[some, :length])
    return items, scores


def lists_blocks(part: slice, k: int) -> list[slice]:
    """Cut a block of users further where lists of k would take too much memory."""
    longest = max(1, BLOCK_BYTES // (8 * kernels.capacity_for(k)))
    return [
        slice(start, min(start + longest, part.stop))
        for start in range(part.start, part.stop, longest)
    ]


class BestLists:
    """The best k of a block of users, while its tiles pass by.

    Args:
        tiles: Where the tiles come from.
        block: The users.
        k: Length of the lists; with 0, known items are taken out and that is all.
        known: Items of each user row that are left out, or None.
    """

    def __init__(self, tiles: Tiles, block: Block, k: int, known: Csr | None) -> None:
        """Start with empty lists."""
        n, capacity = len(block.users), kernels.capacity_for(k)
        self._tiles, self._block, self._k, self._known = tiles, block, k, known
        self._scores = np.empty((n, capacity), dtype=np.float32)
        self._columns = np.empty((n, capacity), dtype=np.int32)
        self._counts = np.zeros(n, dtype=np.int64)
        self._thresholds = np.full(n, kernels.LOWEST, dtype=np.float32)

    def look(self, tile: Scores, first: int, rows: slice) -> None:
        """Take known items out of some rows of a tile, and what may be among the best of it."""
        if self._known is not None:
            self._tiles.hide(tile, first, self._block.users[rows], self._known)
        if self._k == 0:
            return
        kernels.collect(
            tile,
            first,
            self._k,
            self._block.error[rows],
            self._scores[rows],
            self._columns[rows],
            self._counts[rows],
            self._thresholds[rows],
        )

    def finish(self, items: Rows, scores: Scores) -> None:
        """Write the lists, (n, k) each; places beyond the last item stay as they are."""
        if self._k == 0:
            return

        def settle(first: int, end: int) -> None:
            self._settle(slice(first, end), items[first:end], scores[first:end])

        parallel_for(len(self._counts), settle, LEAST_ROWS)
        crowded = np.flatnonzero(self._counts == kernels.CROWDED).astype(np.int32)
        done = 0
        for exact, true_scores in self._tiles.exact(self._block, crowded):
            best = BestLists(self._tiles, exact, self._k, self._known)
            best.look(true_scores, 0, slice(None))
            some = crowded[done : done + len(true_scores)]
            found_items, found_scores = items[some], scores[some]
            best.finish(found_items, found_scores)
            items[some], scores[some] = found_items, found_scores
            done += len(true_scores)

    def _settle(self, rows: slice, items: Rows, scores: Scores) -> None:
        block, tiles = self._block, self._tiles
        error = block.error[rows]
        if block.source is not None and error.any():
            self._score_again(rows)
            error = np.zeros_like(error)
        kernels.settle(
            self._k,
            error,
            block.user_vectors[rows],
            tiles.item_vectors,
            block.constants[rows],
            tiles.columns,
            self._scores[rows],
            self._columns[rows],
            self._counts[rows],
            items,
            scores,
        )

    def _score_again(self, rows: slice) -> None:
        """Give the candidates of some rows their true scores."""
        scores, columns, counts = self._scores[rows], self._columns[rows], self._counts[rows]
        kernels.prune(self._k, self._block.error[rows], scores, columns, counts)
        kept = np.arange(scores.shape[1]) < counts[:, None]
        owners = rows.start + np.nonzero(kept)[0].astype(np.int32)
        items = self._tiles.columns[columns[kept]]
        scores[kept] = self._tiles.pairs(self._block, owners, items)
