"""Scorers made from functions, vectors and other scorers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.kernels.products import pair_scores
from transcf.retrieval.forms import LinearForm, UserSide
from transcf.retrieval.scorer import Norms, Scorer, Scores, Source, block_length
from transcf.retrieval.topk import ROUNDING, product_bounds

#: Memory that whole blocks may take where they are parts of a sum; other parts gain by many users.
_PART_BYTES = 256 * 2**20


@dataclass(frozen=True, eq=False)
class BlockView(Scorer):
    """A scorer made from a function.

    Attributes:
        name: Name in errors.
        rankable: (n_columns,) what may be ranked.
        score: From (n,) rows to (n, n_columns) scores.
        sparse: Whether a score of 0 means that there is no relation at all.
    """

    name: str
    rankable: Mask
    score: Callable[[Rows], Scores]
    sparse: bool = False

    def _score_block(self, users: Rows) -> Scores:
        return self.score(users)

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        scores: Scores = self.score(users)[np.arange(len(users)), items]
        return scores


@dataclass(frozen=True, eq=False)
class FormView(Scorer):
    """A scorer made from inner products.

    Attributes:
        name: Name in errors.
        rankable: (n_columns,) what may be ranked.
        form: The vectors.
    """

    name: str
    rankable: Mask
    form: LinearForm

    def linear_form(self) -> LinearForm:
        """Return the vectors."""
        return self.form


class SumView(Scorer):
    """Adds up the scores of other scorers, each times a number, and a number for each item.

    Args:
        name: Name in errors.
        scorers: At least one, with the same rows and items.
        factors: What the scores of each are multiplied by.
        offset: (n_items,) to be added, or None.
    """

    name: str
    rankable: Mask

    def __init__(
        self,
        name: str,
        scorers: Sequence[Scorer],
        factors: Sequence[float],
        offset: Scores | None = None,
    ) -> None:
        self.name, self._scorers, self._factors = name, tuple(scorers), tuple(factors)
        self._offset = offset
        self.rankable = np.logical_and.reduce([scorer.rankable for scorer in scorers])

    def linear_form(self) -> LinearForm | None:
        """Return the vectors of all scorers, one after the other, where all have some."""
        return self._form

    @cached_property
    def _form(self) -> LinearForm | None:
        found = [scorer.linear_form() for scorer in self._scorers]
        forms = [form for form in found if form is not None]
        if len(forms) < len(found):
            return None
        factors, offset = [np.float32(factor) for factor in self._factors], self._offset

        def joined(rows: Rows | slice) -> UserSide:
            sides = [form.of_users(rows) for form in forms]
            vectors = [by * own for by, (own, _) in zip(factors, sides, strict=True)]
            constants = [by * own for by, (_, own) in zip(factors, sides, strict=True)]
            if offset is not None:
                vectors.insert(0, np.ones((len(vectors[0]), 1), np.float32))
            return np.hstack(vectors), np.sum(constants, axis=0, dtype=np.float32)

        items = [form.item_vectors for form in forms]
        return LinearForm(np.hstack(items if offset is None else [offset[:, None], *items]), joined)

    def scores(self, users: Rows, items: Rows | None = None) -> Scores:
        """Score pairs of rows, (n,), or all items for some rows, (n, n_items)."""
        if self._form is not None and self._offset is None:
            return self._form.scores(users, items)
        total: Scores | None = None
        for scorer, factor in zip(self._scorers, self._factors, strict=True):
            scaled: Scores = np.float32(factor) * scorer.scores(users, items)
            total = scaled if total is None else np.add(total, scaled, out=total)
        assert total is not None, "a sum has something to add up"
        if self._offset is not None:
            total += self._offset if items is None else self._offset[items]
        return total

    @property
    def block_users(self) -> int | None:
        """As many users as all scorers can take; None where none of them has tiles."""
        if all(scorer.block_users is None for scorer in self._scorers):
            return None
        return min(map(_block_users, self._scorers))

    def open_block(self, users: Rows, items: Rows) -> Source:
        """Return the sums for some users, to be read in tiles."""
        if self.block_users is None:
            return super().open_block(users, items)
        sources = [_source_of(scorer, users, items) for scorer in self._scorers]
        return SumSource(sources, self._factors, self._offset)


def _block_users(scorer: Scorer) -> int:
    if scorer.block_users is not None:
        return scorer.block_users
    if scorer.linear_form() is not None:
        return 2**31
    return block_length(len(scorer.rankable), _PART_BYTES)


def _source_of(scorer: Scorer, users: Rows, items: Rows) -> Source:
    form = scorer.linear_form() if scorer.block_users is None else None
    return scorer.open_block(users, items) if form is None else ProductSource(form, users, items)


class ProductSource:
    """Inner products of some users, for sums with other scores.

    Args:
        form: Both sides.
        users: (n,) rows.
        items: (m,) rows of the items that may be asked for.
    """

    def __init__(self, form: LinearForm, users: Rows, items: Rows) -> None:
        self._vectors, self._constants = form.of_users(users)
        self._items = form.item_vectors
        longest = form.item_norms[items].max() if len(items) else 0.0
        self.size, self.error = product_bounds(self._vectors, self._constants, float(longest))

    def fill(self, items: Rows, tile: Scores) -> None:
        """Write the products with some item rows: (n, n_items)."""
        np.matmul(self._vectors, self._items[items].T, out=tile)
        tile += self._constants[:, None]

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Return products of pairs in float64: (n,)."""
        return pair_scores(self._vectors, self._items, self._constants, rows, items)


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
        self._parts = list(zip(sources, map(np.float32, factors), strict=True))
        self._offset = offset
        size, error = (np.zeros(len(sources[0].error)) for _ in range(2))
        for source, factor in self._parts:
            size += abs(factor) * source.size
            error += abs(factor) * source.error
        self.size: Norms = size + (0.0 if offset is None else np.abs(offset).max(initial=0))
        # Both sides of a comparison are rounded at every step.
        steps = 4 * (len(self._parts) + 1)
        self.error: Scores = (1.01 * (error + steps * ROUNDING * self.size)).astype(np.float32)

    def fill(self, items: Rows, tile: Scores) -> None:
        """Write the sums for some item rows: (n, n_items)."""
        part = np.empty_like(tile)
        tile[:] = 0 if self._offset is None else self._offset[items]
        for source, factor in self._parts:
            source.fill(items, part)
            part *= factor
            tile += part

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Return sums of pairs: (n,)."""
        total = np.zeros(len(rows)) if self._offset is None else self._offset[items].astype(float)
        for source, factor in self._parts:
            total += np.float64(factor) * source.pairs(rows, items)
        scores: Scores = total.astype(np.float32)
        return scores


def nearest(similarity: Scorer, rows: Rows, k: int) -> tuple[Rows, Scores]:
    """Find the k most similar others of each row; see `top_k` for order and shapes.

    Args:
        similarity: Scores items for items, or users for users.
        rows: (n,) rows whose neighbours are wanted.
        k: Length of the lists.
    """
    n = len(similarity.rankable)
    itself = Csr(np.arange(n + 1, dtype=np.int64), np.arange(n, dtype=np.int32), n)
    found, scores = similarity.top_k(rows, k, seen=itself)
    if isinstance(similarity, BlockView) and similarity.sparse:
        unrelated = scores == 0
        found[unrelated], scores[unrelated] = UNKNOWN, np.nan
    return found, scores
