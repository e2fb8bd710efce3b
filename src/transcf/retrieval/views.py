"""Scorers made from parts of a model: people it was not fitted on, items against items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.retrieval.scorer import LazyForm, LinearForm, Scorer, Scores
from transcf.retrieval.topk import top_k


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

    def score_block(self, users: Rows) -> Scores:
        """Score everything for some rows: (n, n_columns)."""
        return self.scorer.score_block(users) + self.offset

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        scores: Scores = self.scorer.score_pairs(users, items) + self.offset[items]
        return scores


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
