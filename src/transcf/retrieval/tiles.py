"""Scores in tiles: some users times a stretch of items, small enough to be read from cache.

Columns are the items that may be ranked, in ascending order; the others are never computed or
looked at. A scorer with a linear form gives tiles of a float32 matrix product together with a
bound on their error, and one that makes tiles by itself (`TileMaker`) says how far they may be off;
any other scorer gives pieces of its `score_block`, which are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.errors import EvaluationError
from transcf.kernels.products import exact_rows, pair_scores
from transcf.kernels.topk import all_finite, hide
from transcf.parallel import parallel_for
from transcf.retrieval.scorer import (
    BLOCK_BYTES,
    LinearForm,
    Scorer,
    Scores,
    Source,
    block_length,
    tile_maker,
)
from transcf.retrieval.sources import LEAST_ROWS, BlockSource, product_bounds

#: Looks through some rows of a tile: their scores, the tile's first column, which rows they are.
Look: TypeAlias = Callable[[Scores, int, slice], None]

#: Memory of one tile. Between 4 and 31 MB the time hardly differs: narrow tiles pack user vectors
#: more often and cost more for each row.
TILE_BYTES = 21 * 2**20
#: Memory of one tile of few users: what fits into a cache, of which other work keeps the rest.
FEW_BYTES = 2**20
#: Columns of a product, at least; with fewer, the rest of a tile's work shows.
PRODUCT_COLUMNS = 4096
#: Users of one product; with fewer, the packing of item vectors shows.
PRODUCT_USERS = 1400
#: Columns of a tile that something other than a product makes: a multiple of this, or the rest.
STRETCH = 256


@dataclass(frozen=True, eq=False)
class Block:
    """A block of users whose scores are about to be looked through.

    Attributes:
        users: (n,) user rows.
        error: (n,) how far a tile's score, without the constant, may be from the true one.
        user_vectors: (n, d), empty rows where the tiles are no products.
        constants: (n,) to be added to a product.
        source: Where the tiles come from; None where they are products.
    """

    users: Rows
    error: Scores
    user_vectors: Scores
    constants: Scores
    source: Source | None = None


class Tiles:
    """The tiles of a scorer, block of users by block of users.

    Args:
        scorer: What gives the scores.
        allowed: (n_items,) items that may be ranked at all.

    Attributes:
        columns: (n_columns,) item row of each column.
        column_of: (n_items,) column of each item row, -1 if it is not allowed.
    """

    def __init__(self, scorer: Scorer, allowed: Mask) -> None:
        """Find out which items take part and how they are scored."""
        self.columns: Rows = np.flatnonzero(allowed).astype(np.int32)
        self.n_columns = len(self.columns)
        self.column_of: Rows = self.columns
        if self.n_columns < len(allowed):
            self.column_of = np.full(len(allowed), UNKNOWN, dtype=np.int32)
            self.column_of[self.columns] = np.arange(self.n_columns, dtype=np.int32)
        self._scorer = scorer
        self._form: LinearForm | None = scorer.linear_form()
        self._maker = tile_maker(scorer) if self._form is None else None
        self._buffer: Scores = np.empty(0, dtype=np.float32)
        self._longest = 0.0
        if self._form is not None and self.n_columns:
            norms = self._form.item_norms
            whole = self.n_columns == len(norms)
            self._longest = float((norms if whole else norms[self.columns]).max())

    @property
    def item_vectors(self) -> Scores:
        """(n_items, d) of the linear form; empty where there is none."""
        if self._form is None:
            return np.empty((len(self.column_of), 0), dtype=np.float32)
        return self._form.item_vectors

    def blocks(self, n_users: int) -> Iterator[slice]:
        """Cut users into blocks of similar size."""
        longest = block_length(len(self.column_of))
        if self._form is not None:
            longest = PRODUCT_USERS
        elif self._maker is not None:
            longest = self._maker.most_users
        yield from _even_slices(n_users, longest)

    def open(self, users: Rows) -> Block:
        """Make a block of users ready."""
        if self._form is None:
            return self._opened(users, self._source(users))
        vectors, constants = self._form.of_users(users)
        size, error = product_bounds(vectors, constants, self._longest)
        if not (size < np.finfo(np.float32).max / 4).all():
            raise self._not_finite()
        return Block(users, error, vectors, constants)

    def _source(self, users: Rows) -> Source:
        if self._maker is not None:
            return self._maker.open(users, self.columns)
        scores = np.asarray(self._scorer.score_block(users), dtype=np.float32)
        return BlockSource(scores, self.columns)

    def _opened(self, users: Rows, source: Source) -> Block:
        n = len(users)
        none = np.zeros(n, dtype=np.float32)
        return Block(users, source.error, np.empty((n, 0), dtype=np.float32), none, source)

    def scan(self, block: Block, look: Look) -> None:
        """Show a block's tiles to `look`, one after the other, rows of a tile side by side.

        A tile may be overwritten, and lasts until the next.
        """
        for first, tile in self._tiles(block):
            parallel_for(len(tile), partial(_look_at_rows, look, tile, first), LEAST_ROWS)

    def hide(self, tile: Scores, first: int, users: Rows, listed: Csr) -> None:
        """Set scores of a tile, a row for each user, to -inf where items are listed for them."""
        hide(tile, first, self.columns, self.column_of, users, listed.indptr, listed.indices)

    def _tiles(self, block: Block) -> Iterator[tuple[int, Scores]]:
        n = len(block.users)
        for part in self._stretches(n):
            tile = self._tile(n, part.stop - part.start)
            if block.source is None:
                self._multiply(block, part, tile)
            else:
                self._fill(block.source, self.columns[part], tile)
            yield part.start, tile

    def _stretches(self, n_users: int) -> Iterator[slice]:
        """Cut the columns such that tiles stay small."""
        longest = max(1, TILE_BYTES // (4 * n_users))
        if self._form is not None:
            longest = min(longest, max(FEW_BYTES // (4 * n_users), PRODUCT_COLUMNS))
        if self._maker is None:
            yield from _even_slices(self.n_columns, longest)
            return
        width = STRETCH * -(-longest // STRETCH)
        for start in range(0, self.n_columns, width):
            yield slice(start, min(start + width, self.n_columns))

    def pairs(self, block: Block, rows: Rows, items: Rows) -> Scores:
        """Return the true scores of rows of the block and allowed items: (n,)."""
        if block.source is not None:
            return block.source.pairs(rows, items)
        return pair_scores(block.user_vectors, self.item_vectors, block.constants, rows, items)

    def exact(self, block: Block, rows: Rows) -> Iterator[tuple[Block, Scores]]:
        """Yield blocks of these rows with their true scores: (n, n_columns)."""
        for part in _even_slices(len(rows), block_length(self.n_columns)):
            some = rows[part]
            vectors, constants = block.user_vectors[some], block.constants[some]
            scores = np.empty((len(some), self.n_columns), dtype=np.float32)
            if block.source is None:
                exact_rows(vectors, self.item_vectors, constants, self.columns, scores)
            else:
                for row, place in enumerate(some):
                    same = np.full(self.n_columns, place, dtype=np.int32)
                    scores[row] = block.source.pairs(same, self.columns)
            none = np.zeros(len(some), dtype=np.float32)
            yield Block(block.users[some], none, vectors, none), scores

    def _multiply(self, block: Block, part: slice, tile: Scores) -> None:
        gathered = self._gathered
        vectors = self.item_vectors[self.columns[part]] if gathered is None else gathered[part]
        np.matmul(block.user_vectors, vectors.T, out=tile)

    @cached_property
    def _gathered(self) -> Scores | None:
        """(n_columns, d) vectors of the columns; None where they take too much memory at once."""
        vectors = self.item_vectors
        if self.n_columns == len(vectors):
            return vectors
        fits = 4 * self.n_columns * vectors.shape[1] <= BLOCK_BYTES
        return vectors[self.columns] if fits else None

    def _fill(self, source: Source, items: Rows, tile: Scores) -> None:
        source.fill(items, tile)
        sound: list[bool] = []
        parallel_for(
            len(tile), lambda first, end: sound.append(all_finite(tile[first:end])), LEAST_ROWS
        )
        if not all(sound):
            raise self._not_finite()

    def _tile(self, n_rows: int, width: int) -> Scores:
        if n_rows * width > len(self._buffer):
            self._buffer = np.empty(n_rows * width, dtype=np.float32)
        return self._buffer[: n_rows * width].reshape(n_rows, width)

    def _not_finite(self) -> EvaluationError:
        return EvaluationError(
            f"{self._scorer.name} gives NaN or infinite scores to items that are to be ranked, "
            "and such scores have no order: check that its training converged."
        )


def _look_at_rows(look: Look, tile: Scores, first_column: int, first: int, end: int) -> None:
    look(tile[first:end], first_column, slice(first, end))


def _even_slices(total: int, longest: int) -> Iterator[slice]:
    """Cut a range into pieces of nearly the same length."""
    pieces = -(-total // longest)
    for n in range(pieces):
        yield slice(total * n // pieces, total * (n + 1) // pieces)
