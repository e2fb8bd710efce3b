"""Scorers made from parts of a model: people it was not fitted on, items against items."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.retrieval.scorer import LazyForm, LinearForm, Scorer, Scores, TileMaker
from transcf.retrieval.sources import sum_maker
from transcf.retrieval.topk import top_k

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class BlockView:
    """A scorer made from a function.

    Attributes:
        name: What errors call it.
        rankable: (n_columns,) what may be ranked.
        score: From (n,) rows to (n, n_columns) scores.
        sparse: Whether a score of 0 means that there is no relation at all.
    """

    name: str
    rankable: Mask
    score: Callable[[Rows], Scores]
    sparse: bool = False

    def linear_form(self) -> None:
        """Return nothing: what a function computes need not be an inner product."""

    def score_block(self, users: Rows) -> Scores:
        """Score everything for some rows: (n, n_columns)."""
        return self.score(users)

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        scores: Scores = self.score(users)[np.arange(len(users)), items]
        return scores


@dataclass(frozen=True, eq=False)
class FormView:
    """A scorer made from inner products.

    Attributes:
        name: What errors call it.
        rankable: (n_columns,) what may be ranked.
        form: The vectors.
    """

    name: str
    rankable: Mask
    form: LinearForm

    def linear_form(self) -> LinearForm:
        """Return the vectors."""
        return self.form

    def score_block(self, users: Rows) -> Scores:
        """Score everything for some rows: (n, n_columns)."""
        return self.form.score_block(users)

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        return self.form.score_pairs(users, items)


@dataclass(frozen=True, eq=False)
class ShiftedView:
    """A scorer with a number added to the score of each item.

    Attributes:
        scorer: The one without.
        offset: (n_items,) float32.
    """

    scorer: Scorer
    offset: Scores

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.scorer.name

    @property
    def rankable(self) -> Mask:
        """(n_items,) what may be ranked."""
        return self.scorer.rankable

    def linear_form(self) -> LinearForm | None:
        """Return the vectors, one number longer, where the scorer has some."""
        return self._form

    @cached_property
    def _form(self) -> LinearForm | None:
        form = self.scorer.linear_form()
        if form is None:
            return None

        def longer(rows: Rows | slice) -> tuple[Scores, Scores]:
            every = np.arange(len(form.user_constants))[rows] if isinstance(rows, slice) else rows
            vectors, constants = form.of_users(every.astype(np.int32))
            return np.hstack([np.ones((len(vectors), 1), vectors.dtype), vectors]), constants

        return LazyForm(np.hstack([self.offset[:, None], form.item_vectors]), longer)

    def tile_maker(self) -> TileMaker | None:
        """Return what makes tiles, where the scorer has such a thing."""
        return sum_maker([self.scorer], [1.0], self.offset)

    def score_block(self, users: Rows) -> Scores:
        """Score everything for some rows: (n, n_columns)."""
        return self.scorer.score_block(users) + self.offset

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        scores: Scores = self.scorer.score_pairs(users, items) + self.offset[items]
        return scores


@dataclass(frozen=True, eq=False)
class SumView:
    """A scorer that adds up the scores of others, each times a number.

    Attributes:
        name: What errors call it.
        scorers: At least one, with the same rows and items.
        factors: What the scores of each are multiplied by.
    """

    name: str
    scorers: tuple[Scorer, ...]
    factors: tuple[float, ...]

    @property
    def rankable(self) -> Mask:
        """(n_items,) what all of them may rank."""
        rankable: Mask = np.logical_and.reduce([scorer.rankable for scorer in self.scorers])
        return rankable

    def linear_form(self) -> LinearForm | None:
        """Return the vectors of all of them, one after the other, where all have some."""
        return self._form

    @cached_property
    def _form(self) -> LinearForm | None:
        found = [scorer.linear_form() for scorer in self.scorers]
        forms = [form for form in found if form is not None]
        if len(forms) < len(found):
            return None

        def joined(rows: Rows | slice) -> tuple[Scores, Scores]:
            sides = [
                (form.user_vectors[rows], form.user_constants[rows])
                if isinstance(rows, slice)
                else form.of_users(rows)
                for form in forms
            ]
            scaled = [np.float32(factor) * side[0] for factor, side in self._times(sides)]
            constants = [np.float32(factor) * side[1] for factor, side in self._times(sides)]
            return np.hstack(scaled), np.sum(constants, axis=0, dtype=np.float32)

        return LazyForm(np.hstack([form.item_vectors for form in forms]), joined)

    def tile_maker(self) -> TileMaker | None:
        """Return what makes tiles, where any of them has such a thing."""
        return sum_maker(self.scorers, self.factors)

    def score_block(self, users: Rows) -> Scores:
        """Score everything for some rows: (n, n_columns)."""
        if self._form is not None:
            return self._form.score_block(users)
        return self._added(scorer.score_block(users) for scorer in self.scorers)

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        if self._form is not None:
            return self._form.score_pairs(users, items)
        return self._added(scorer.score_pairs(users, items) for scorer in self.scorers)

    def _times(self, values: Iterable[T]) -> Iterable[tuple[float, T]]:
        return zip(self.factors, values, strict=True)

    def _added(self, scores: Iterable[Scores]) -> Scores:
        """Add up in place: no more than two blocks are there at once."""
        total: Scores | None = None
        for factor, block in self._times(scores):
            scaled: Scores = np.float32(factor) * block
            total = scaled if total is None else np.add(total, scaled, out=total)
        assert total is not None, "a sum has something to add up"
        return total


def nearest(similarity: Scorer, rows: Rows, k: int) -> tuple[Rows, Scores]:
    """Find the k most similar others of each row; see `top_k` for order and shapes.

    Args:
        similarity: Scores items against items, or users against users.
        rows: (n,) whose neighbours are wanted.
        k: Length of the lists.
    """
    n = len(similarity.rankable)
    itself = Csr(np.arange(n + 1, dtype=np.int64), np.arange(n, dtype=np.int32), n)
    found, scores = top_k(similarity, rows, k, seen=itself)
    if isinstance(similarity, BlockView) and similarity.sparse:
        unrelated = scores == 0
        found[unrelated], scores[unrelated] = UNKNOWN, np.nan
    return found, scores
