"""Exact top-k: one blocked product, a selection that reads it from cache, a final order.

Scores come in tiles: some users times some columns (items that may be ranked, ascending), small
enough to be read from cache. Tiles of a linear form are float32 products with a bound on their
error, other sources say how far their tiles may be off, and a scorer without tiles gives pieces of
its `scores`, which are exact.

A pair's score depends neither on threads nor on the other users of a request. The last bits of a
product change with its shape, so products only propose candidates, which are scored again in
float64. Scores without tiles are used as they are: their last digits may depend on the block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.errors import EvaluationError
from transcf.kernels import topk as kernels
from transcf.kernels.topk import pair_scores
from transcf.parallel import parallel_for
from transcf.retrieval.scorer import (
    BLOCK_BYTES,
    LinearForm,
    Norms,
    Scorer,
    Scores,
    Source,
    block_length,
    row_norms,
)

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
#: Catalogues of at most so many columns are ranked by numpy: kernels take seconds to compile.
SMALL = 1024
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
    for some in tiles.blocks(len(users), length):
        source = tiles.open(users[some])
        best = BestLists(tiles, source, users[some], length, seen)
        tiles.scan(source, best.look)
        best.finish(items[some, :length], scores[some, :length])
    return items, scores


class Tiles:
    """The tiles of a scorer for some allowed items, by blocks of users."""

    def __init__(self, scorer: Scorer, allowed: Mask) -> None:
        self.columns: Rows = np.flatnonzero(allowed).astype(np.int32)  # the item row of each
        self.n_columns = len(self.columns)
        self.is_small = self.n_columns <= SMALL  # whether numpy ranks the columns
        self.column_of: Rows = self.columns  # of each item row, -1 if it is not allowed
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

    def blocks(self, n_users: int, k: int) -> Iterator[slice]:
        """Cut users into blocks of similar size, and these where lists of k take much memory."""
        longest = block_length(len(self.column_of))
        if self._form is not None:
            longest = PRODUCT_USERS
        elif (users := self._scorer._block_users()) is not None:
            longest = users
        lists = max(1, BLOCK_BYTES // (8 * kernels.capacity_for(k)))
        for part in _even_slices(n_users, longest):
            for start in range(part.start, part.stop, lists):
                yield slice(start, min(start + lists, part.stop))

    def open(self, users: Rows) -> Source:
        """Return the scores of a block of users."""
        if self._form is None:
            return self._scorer._open_block(users, self.columns)
        products = ProductSource(self._form, users, self._longest)
        if not (products.size < np.finfo(np.float32).max / 4).all():
            raise not_finite(self._scorer.name)
        return products

    def scan(self, source: Source, *looks: Look) -> None:
        """Pass the tiles of a block to functions, which may change them; threads share the rows.

        Products come without the constants of users, which do not change the order.
        """
        n = len(source.error)
        for part in self._stretches(n):
            tile = self._tile(n, part.stop - part.start)
            if isinstance(source, ProductSource):
                gathered, rows = self._gathered, self.columns[part]
                items = source.item_vectors[rows] if gathered is None else gathered[part]
                np.matmul(source.vectors, items.T, out=tile)
            else:
                source.fill(self.columns[part], tile)
                # Sums in float64 are finite unless a score is not.
                if not np.isfinite(tile.sum(axis=1, dtype=np.float64)).all():
                    raise not_finite(self._scorer.name)
            parallel_for(n, partial(self._look, looks, tile, part.start), LEAST_ROWS)

    @staticmethod
    def _look(looks: tuple[Look, ...], tile: Scores, column: int, first: int, end: int) -> None:
        for look in looks:
            look(tile[first:end], column, slice(first, end))

    def hide(self, tile: Scores, first: int, users: Rows, listed: Csr) -> None:
        """Set the scores of listed items in a tile, which has a row for each user, to -inf."""
        if self.is_small:
            own = listed.take(users)
            columns = self.column_of[own.indices] - first
            inside = (columns >= 0) & (columns < tile.shape[1])
            tile[own.entry_rows[inside], columns[inside]] = -np.inf
            return
        kernels.hide(
            tile, first, self.columns, self.column_of, users, listed.indptr, listed.indices
        )

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

    @cached_property
    def _gathered(self) -> Scores | None:
        """(n_columns, d) vectors of the columns; None where they take too much memory at once."""
        assert self._form is not None, "only products have vectors"
        vectors = self._form.item_vectors
        if self.n_columns == len(vectors):
            return vectors
        fits = 4 * self.n_columns * vectors.shape[1] <= BLOCK_BYTES
        return vectors[self.columns] if fits else None

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


def _even_slices(total: int, longest: int) -> Iterator[slice]:
    """Cut a range into pieces of nearly the same length."""
    pieces = -(-total // longest)
    for n in range(pieces):
        yield slice(total * n // pieces, total * (n + 1) // pieces)


class BlockSource:
    """All scores of some users, (n, n_items), which are exact, for some item rows."""

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
            some = self._scores[first:end]
            some.take(items, axis=1, out=tile[first:end], mode="clip")

        parallel_for(len(tile), work, LEAST_ROWS)

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Return the scores of pairs: (n,)."""
        return self._scores[rows, items]


class ProductSource:
    """Inner products of users, given by row, with items whose vectors are at most `longest`."""

    def __init__(self, form: LinearForm, users: Rows, longest: float) -> None:
        self.vectors, self.constants = form.of_users(users)
        self.item_vectors = form.item_vectors
        self.size: Norms = row_norms(self.vectors) * longest + np.abs(self.constants)
        # d roundings of a sum in any order, and a few for constants and thresholds.
        error = 1.01 * (self.vectors.shape[1] + 8) * ROUNDING * self.size + 1e-37
        self.error: Scores = np.minimum(error, np.finfo(np.float32).max).astype(np.float32)

    def fill(self, items: Rows, tile: Scores) -> None:
        """Write the products with some item rows: (n, n_items)."""
        np.matmul(self.vectors, self.item_vectors[items].T, out=tile)
        tile += self.constants[:, None]

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Return products of pairs in float64: (n,)."""
        return pair_scores(self.vectors, self.item_vectors, self.constants, rows, items)


class BestLists:
    """The best k items of a block of users so far, without those that are known.

    k is at most the number of columns; with 0, known items are hidden and nothing else is done.
    """

    def __init__(
        self, tiles: Tiles, source: Source, users: Rows, k: int, known: Csr | None
    ) -> None:
        n = len(users)
        self._tiles, self._source, self._k = tiles, source, k
        self._users, self._known = users, known
        #: All scores of a small catalogue; candidates otherwise, see `kernels.topk`.
        width = tiles.n_columns if tiles.is_small else kernels.capacity_for(k)
        self._scores = np.empty((n, width if k else 0), dtype=np.float32)
        self._columns = np.empty((n, 0 if tiles.is_small else width), dtype=np.int32)
        self._counts = np.zeros(n, dtype=np.int64)
        self._thresholds = np.full(n, kernels.LOWEST, dtype=np.float32)

    def look(self, tile: Scores, first: int, rows: slice) -> None:
        """Hide known items in some rows of a tile, and collect what may be among the best."""
        if self._known is not None:
            self._tiles.hide(tile, first, self._users[rows], self._known)
        if self._k == 0:
            return
        if self._tiles.is_small:
            self._scores[rows, first : first + tile.shape[1]] = tile
            return
        own = self._scores[rows], self._columns[rows], self._counts[rows], self._thresholds[rows]
        kernels.collect(tile, first, self._k, self._source.error[rows], *own)

    def finish(self, items: Rows, scores: Scores) -> None:
        """Write the lists, (n, k) each; places beyond the last item stay as they are."""
        if self._k == 0:
            return
        settle = self._select if self._tiles.is_small else self._settle

        def work(first: int, end: int) -> None:
            settle(slice(first, end), items[first:end], scores[first:end])

        parallel_for(len(self._counts), work, LEAST_ROWS)
        crowded = np.flatnonzero(self._counts == kernels.CROWDED).astype(np.int32)
        every = self._tiles.columns
        for part in _even_slices(len(crowded), max(1, block_length(8 * len(every)))):
            some = crowded[part]
            exact = [self._source.pairs(np.full(len(every), row, np.int32), every) for row in some]
            table = np.stack(exact)
            if self._known is not None:
                self._tiles.hide(table, 0, self._users[some], self._known)
            best = _candidates(table, np.zeros(len(some), np.float32), self._k)
            self._write(some, *best, table[best], items, scores)

    def _select(self, rows: slice, items: Rows, scores: Scores) -> None:
        """Write the lists of some rows of a small catalogue."""
        table, error = self._scores[rows], self._source.error[rows]
        owners, columns = _candidates(table, error, self._k)
        if error.any():
            places = owners.astype(np.int32) + np.int32(rows.start)
            found = self._source.pairs(places, self._tiles.columns[columns])
        else:
            found = table[owners, columns]
        self._write(np.arange(len(table)), owners, columns, found, items, scores)

    def _write(
        self,
        rows: npt.NDArray[np.integer[Any]],
        owners: npt.NDArray[np.intp],
        columns: npt.NDArray[np.intp],
        found: Scores,
        items: Rows,
        scores: Scores,
    ) -> None:
        """Order candidates, ascending by owner, and write the best of each owner to its row."""
        order = np.lexsort((columns, -found, owners))
        places = np.arange(len(owners)) - np.searchsorted(owners, owners)
        best = places < self._k
        to = rows[owners[best]], places[best]
        items[to], scores[to] = self._tiles.columns[columns[order][best]], found[order][best]

    def _settle(self, rows: slice, items: Rows, scores: Scores) -> None:
        """Write the lists of some rows; the kernel scores candidates of products again."""
        source, error, k = self._source, self._source.error[rows], self._k
        found = self._scores[rows], self._columns[rows], self._counts[rows]
        every = self._tiles.columns
        if isinstance(source, ProductSource):
            products = source.vectors[rows], source.item_vectors, source.constants[rows]
        else:
            if error.any():
                kernels.prune(k, error, *found)
                kept = np.arange(found[0].shape[1]) < found[2][:, None]
                owners = rows.start + np.nonzero(kept)[0].astype(np.int32)
                found[0][kept] = source.pairs(owners, every[found[1][kept]])
                error = np.zeros_like(error)
            none = np.empty((len(self._tiles.column_of), 0), np.float32)
            products = np.empty((len(error), 0), np.float32), none, error
        kernels.settle(k, error, *products, every, *found, items, scores)


def _candidates(
    table: Scores, error: Scores, k: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return rows and columns of a table of scores that may be among the best k of their row."""
    place = table.shape[1] - k
    kth = np.partition(table, place, axis=1)[:, place]
    rows, columns = np.nonzero(table >= np.maximum(kth - 2 * error, kernels.LOWEST)[:, None])
    return rows, columns
