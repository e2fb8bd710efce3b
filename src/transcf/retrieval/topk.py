"""Exact top-k: one blocked product, a selection that reads it from cache, a final order.

Scores come in tiles: some users times some columns, small enough to be read from cache. Columns are
the items that may be ranked, in ascending order. A scorer with a linear form gives tiles of a
float32 matrix product with a bound on their error, and other sources say how far their tiles may be
off; a scorer without tiles gives pieces of its `scores`, which are exact.

The order is that of the scores that are returned, and a pair's score depends on nothing else:
neither on the number of threads nor on the other users of a request. The last bits of a matrix
product change with its shape, so products only propose candidates, which are scored again in
float64. Scores of a scorer without tiles are used as they are: their last digits may depend on the
users of a block.
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
from transcf.kernels import topk as kernels
from transcf.kernels.products import exact_rows, pair_scores, row_norms
from transcf.parallel import parallel_for
from transcf.retrieval.scorer import BLOCK_BYTES, Norms, Scorer, Scores, Source, block_length

#: Processes some rows of a tile: their scores, the tile's first column, which rows they are.
Look: TypeAlias = Callable[[Scores, int, slice], None]

#: Memory of one tile. Between 4 and 31 MB the time hardly differs: narrow tiles pack user vectors
#: more often and cost more for each row.
TILE_BYTES = 21 * 2**20
#: Memory of one tile of few users: what fits into a cache.
FEW_BYTES = 2**20
#: Columns of a product, at least; with fewer, the rest of a tile's work shows.
PRODUCT_COLUMNS = 4096
#: Users of one product; with fewer, the packing of item vectors shows.
PRODUCT_USERS = 1400
#: Columns of a tile that something other than a product makes: a multiple of this, or the rest.
STRETCH = 256
#: Fewer rows than this are not worth a thread.
LEAST_ROWS = 32
#: Largest rounding of a number, relative to it.
ROUNDING = 2.0**-24


def rank_tiles(
    scorer: Scorer, users: Rows, k: int, seen: Csr | None, allowed: Mask
) -> tuple[Rows, Scores]:
    """Find the best k items of each user by looking at all scores; see `Scorer.top_k`."""
    items = np.full((len(users), k), UNKNOWN, dtype=np.int32)
    scores = np.full((len(users), k), np.nan, dtype=np.float32)
    tiles = Tiles(scorer, allowed)
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


@dataclass(frozen=True, eq=False)
class Block:
    """A block of users whose scores are to be ranked.

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
        scorer: Gives the scores.
        allowed: (n_items,) items that may be ranked.

    Attributes:
        columns: (n_columns,) item row of each column.
        column_of: (n_items,) column of each item row, -1 if it is not allowed.
    """

    def __init__(self, scorer: Scorer, allowed: Mask) -> None:
        self.columns: Rows = np.flatnonzero(allowed).astype(np.int32)
        self.n_columns = len(self.columns)
        self.column_of: Rows = self.columns
        if self.n_columns < len(allowed):
            self.column_of = np.full(len(allowed), UNKNOWN, dtype=np.int32)
            self.column_of[self.columns] = np.arange(self.n_columns, dtype=np.int32)
        self._scorer = scorer
        self._form = scorer.linear_form()
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
        elif (users := self._scorer._block_users()) is not None:
            longest = users
        yield from _even_slices(n_users, longest)

    def open(self, users: Rows) -> Block:
        """Prepare a block of users."""
        if self._form is None:
            source = self._scorer._open_block(users, self.columns)
            none = np.zeros(len(users), dtype=np.float32)
            empty = np.empty((len(users), 0), dtype=np.float32)
            return Block(users, source.error, empty, none, source)
        vectors, constants = self._form.of_users(users)
        size, error = product_bounds(vectors, constants, self._longest)
        if not (size < np.finfo(np.float32).max / 4).all():
            raise not_finite(self._scorer.name)
        return Block(users, error, vectors, constants)

    def scan(self, block: Block, look: Look) -> None:
        """Pass the tiles of a block to `look`, which may overwrite them; threads share the rows."""
        for first, tile in self._tiles(block):
            parallel_for(len(tile), partial(_look_at_rows, look, tile, first), LEAST_ROWS)

    def hide(self, tile: Scores, first: int, users: Rows, listed: Csr) -> None:
        """Set the scores of listed items in a tile, which has a row for each user, to -inf."""
        kernels.hide(
            tile, first, self.columns, self.column_of, users, listed.indptr, listed.indices
        )

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
        if self._form is not None or self._scorer._block_users() is None:
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
            len(tile),
            lambda first, end: sound.append(kernels.all_finite(tile[first:end])),
            LEAST_ROWS,
        )
        if not all(sound):
            raise not_finite(self._scorer.name)

    def _tile(self, n_rows: int, width: int) -> Scores:
        if n_rows * width > len(self._buffer):
            self._buffer = np.empty(n_rows * width, dtype=np.float32)
        return self._buffer[: n_rows * width].reshape(n_rows, width)


def not_finite(name: str) -> EvaluationError:
    """Return the error for scores that have no order."""
    return EvaluationError(
        f"{name} gives NaN or infinite scores to items that are to be ranked, and such scores have "
        "no order: check that its training converged."
    )


def _look_at_rows(look: Look, tile: Scores, first_column: int, first: int, end: int) -> None:
    look(tile[first:end], first_column, slice(first, end))


def _even_slices(total: int, longest: int) -> Iterator[slice]:
    """Cut a range into pieces of nearly the same length."""
    pieces = -(-total // longest)
    for n in range(pieces):
        yield slice(total * n // pieces, total * (n + 1) // pieces)


class BlockSource:
    """All scores of some users, which are exact.

    Args:
        scores: (n, n_items) float32.
        items: (m,) rows of the items that may be asked for.
    """

    def __init__(self, scores: Scores, items: Rows) -> None:
        self._scores, self._items = scores, items
        self.error: Scores = np.zeros(len(scores), np.float32)

    @property
    def size(self) -> Norms:
        """(n,) upper bound on the absolute values of a user's scores."""
        return np.array([np.abs(row[self._items]).max(initial=0) for row in self._scores], float)

    def fill(self, items: Rows, tile: Scores) -> None:
        """Copy the scores of some item rows: (n, n_items)."""

        def work(first: int, end: int) -> None:
            kernels.gather(self._scores[first:end], items, tile[first:end])

        parallel_for(len(tile), work, LEAST_ROWS)

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Return the scores of pairs: (n,)."""
        return self._scores[rows, items]


def product_bounds(vectors: Scores, constants: Scores, longest: float) -> tuple[Norms, Scores]:
    """Bound products with vectors of a length at most, and their float32 error: (n,) each."""
    size = row_norms(vectors) * longest + np.abs(constants)
    # d roundings of a sum in any order, and a few for constants and thresholds.
    error = 1.01 * (vectors.shape[1] + 8) * ROUNDING * size + 1e-37
    return size, np.minimum(error, np.finfo(np.float32).max).astype(np.float32)


class BestLists:
    """The best k items of a block of users so far.

    Args:
        tiles: Of the scorer.
        block: The users.
        k: Length of the lists; with 0, known items are hidden and nothing else is done.
        known: Items of each user row that are left out, or None.
    """

    def __init__(self, tiles: Tiles, block: Block, k: int, known: Csr | None) -> None:
        n, capacity = len(block.users), kernels.capacity_for(k)
        self._tiles, self._block, self._k, self._known = tiles, block, k, known
        self._scores = np.empty((n, capacity), dtype=np.float32)
        self._columns = np.empty((n, capacity), dtype=np.int32)
        self._counts = np.zeros(n, dtype=np.int64)
        self._thresholds = np.full(n, kernels.LOWEST, dtype=np.float32)

    def look(self, tile: Scores, first: int, rows: slice) -> None:
        """Hide known items in some rows of a tile, and collect what may be among the best."""
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
