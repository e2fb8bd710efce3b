"""Where tiles come from: whole blocks, matrix products, and sums of what others give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transcf.data.ids import Rows
from transcf.kernels.products import pair_scores, row_norms
from transcf.kernels.topk import gather
from transcf.parallel import parallel_for
from transcf.retrieval.scorer import (
    LinearForm,
    Norms,
    Scorer,
    Scores,
    Source,
    TileMaker,
    block_length,
)
from transcf.retrieval.scorer import tile_maker as maker_of

#: Fewer rows than this are not worth a thread.
LEAST_ROWS = 32
#: Memory that whole blocks may take where they are parts of a sum; other parts gain by many users.
_PART_BYTES = 256 * 2**20
#: Largest rounding of a number, relative to it.
_ROUNDING = 2.0**-24


class BlockSource:
    """All scores of some users, which are the true ones.

    Args:
        scores: (n, n_items) float32.
        items: (m,) rows of what will be asked for.
    """

    def __init__(self, scores: Scores, items: Rows) -> None:
        """Keep them."""
        self._scores, self._items = scores, items
        self.error: Scores = np.zeros(len(scores), np.float32)

    @property
    def size(self) -> Norms:
        """(n,) what no score of a user is above, signs aside."""
        return np.array([np.abs(row[self._items]).max(initial=0) for row in self._scores], float)

    def fill(self, items: Rows, tile: Scores) -> None:
        """Copy the scores of some items."""

        def work(first: int, end: int) -> None:
            gather(self._scores[first:end], items, tile[first:end])

        parallel_for(len(tile), work, LEAST_ROWS)

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Look them up."""
        return self._scores[rows, items]


class ProductSource:
    """Inner products of some users, for sums with others.

    Args:
        form: Both sides.
        users: (n,) rows.
        items: (m,) rows of what will be asked for.
    """

    def __init__(self, form: LinearForm, users: Rows, items: Rows) -> None:
        """Take the users' side."""
        self._vectors, self._constants = form.of_users(users)
        self._items = form.item_vectors
        longest = form.item_norms[items].max() if len(items) else 0.0
        self.size, self.error = product_bounds(self._vectors, self._constants, float(longest))

    def fill(self, items: Rows, tile: Scores) -> None:
        """Multiply."""
        np.matmul(self._vectors, self._items[items].T, out=tile)
        tile += self._constants[:, None]

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Multiply in float64."""
        return pair_scores(self._vectors, self._items, self._constants, rows, items)


def product_bounds(vectors: Scores, constants: Scores, longest: float) -> tuple[Norms, Scores]:
    """How large a float32 product with vectors of some length can be, and its error: (n,) each."""
    size = row_norms(vectors) * longest + np.abs(constants)
    # d roundings of a sum in any order, and a few for constants and thresholds.
    error = 1.01 * (vectors.shape[1] + 8) * _ROUNDING * size + 1e-37
    return size, np.minimum(error, np.finfo(np.float32).max).astype(np.float32)


class SumSource:
    """Scores of several sources, each times a number, and a number for each item.

    Args:
        sources: Of the same users.
        factors: What the scores of each are multiplied by.
        offset: (n_items,) to be added, or None.
    """

    def __init__(
        self, sources: Sequence[Source], factors: Sequence[float], offset: Scores | None = None
    ) -> None:
        """Add up what bounds the sum."""
        self._parts = list(zip(sources, map(np.float32, factors), strict=True))
        self._offset = offset
        size, error = (np.zeros(len(sources[0].error)) for _ in range(2))
        for source, factor in self._parts:
            size += abs(factor) * source.size
            error += abs(factor) * source.error
        self.size: Norms = size + (0.0 if offset is None else np.abs(offset).max(initial=0))
        # Both sides of a comparison are rounded at every step.
        steps = 4 * (len(self._parts) + 1)
        self.error: Scores = (1.01 * (error + steps * _ROUNDING * self.size)).astype(np.float32)

    def fill(self, items: Rows, tile: Scores) -> None:
        """Add up tiles."""
        part = np.empty_like(tile)
        tile[:] = 0 if self._offset is None else self._offset[items]
        for source, factor in self._parts:
            source.fill(items, part)
            part *= factor
            tile += part

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Add up pairs."""
        total = np.zeros(len(rows)) if self._offset is None else self._offset[items].astype(float)
        for source, factor in self._parts:
            total += np.float64(factor) * source.pairs(rows, items)
        scores: Scores = total.astype(np.float32)
        return scores


@dataclass(frozen=True, eq=False)
class SumMaker:
    """Makes tiles of sums.

    Attributes:
        scorers: What is added up.
        factors: What the scores of each are multiplied by.
        offset: (n_items,) to be added, or None.
    """

    scorers: Sequence[Scorer]
    factors: Sequence[float]
    offset: Scores | None = None

    @property
    def most_users(self) -> int:
        """As many as all parts can take."""
        return min(_most_users(scorer) for scorer in self.scorers)

    def open(self, users: Rows, items: Rows) -> Source:
        """Return what adds up the parts for these users."""
        sources = [_source_of(scorer, users, items) for scorer in self.scorers]
        return SumSource(sources, self.factors, self.offset)


def sum_maker(
    scorers: Sequence[Scorer], factors: Sequence[float], offset: Scores | None = None
) -> TileMaker | None:
    """Return what makes tiles of a sum, if any of its parts gains by it."""
    if all(maker_of(scorer) is None for scorer in scorers):
        return None
    return SumMaker(scorers, factors, offset)


def _most_users(scorer: Scorer) -> int:
    maker = maker_of(scorer)
    if maker is not None:
        return maker.most_users
    if scorer.linear_form() is not None:
        return 2**31
    return block_length(len(scorer.rankable), _PART_BYTES)


def _source_of(scorer: Scorer, users: Rows, items: Rows) -> Source:
    maker, form = maker_of(scorer), scorer.linear_form()
    if maker is not None:
        return maker.open(users, items)
    if form is not None:
        return ProductSource(form, users, items)
    return BlockSource(np.asarray(scorer.score_block(users), np.float32), items)
