"""Scores of users by the mixture, given their histories and vectors.

Users are those of the training data or new users. Exact top-k for small catalogues: all items are
scored in float32, and candidates within the rounding error of the k-th score are rescored in
float64, so that lists do not depend on which users are scored together.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Mask
from transcf.kernels import Array
from transcf.kernels.mixture_scores import (
    ScoreParams,
    UserQueries,
    read_only,
    score_pairs,
    score_people,
)
from transcf.kernels.rows import padded
from transcf.models.mixture.batch_scorer import squares
from transcf.models.mixture.bounded_search import ROUNDING, find_best
from transcf.retrieval.scorer import Norms, Scores, TileMaker, block_length
from transcf.retrieval.sources import BlockSource
from transcf.retrieval.topk import top_k

if TYPE_CHECKING:
    from transcf.models.mixture.learned import Mixture

#: With fewer items, scoring all of them is as fast as a search by bounds.
_MANY_ITEMS = 20_000


class UserScorer:
    """Scores items for users with a history and a vector each.

    Args:
        learned: The fitted model.
        histories: Of the users.
        homes: a of each, (n, dim) float32.
    """

    def __init__(self, learned: Mixture, histories: Histories, homes: Array) -> None:
        """Set the users."""
        self.learned, self.histories, self.homes = learned, histories, homes

    @property
    def name(self) -> str:
        """Name in errors."""
        return self.learned.name

    @property
    def rankable(self) -> Mask:
        """(n_items,) items that may be ranked."""
        return self.learned.rankable

    def linear_form(self) -> None:
        """Return nothing: a logarithm of a sum is no inner product."""

    def points(self, rows: Rows) -> UserQueries:
        """Return the translated positions of users: a point for each item of the history."""
        learned, histories = self.learned, self.histories.take(rows)
        tau, beta = learned.settings.tau, learned.settings.beta
        own = np.repeat(self.homes[rows], histories.counts, axis=0)
        points = 2 * (np.float32(tau) * learned.history[histories.items] + np.float32(beta) * own)
        offsets = -tau * learned.history_squares[histories.items] - beta * squares(own)
        offsets += learned.log_weights(histories)
        width = learned.item_points.shape[1]
        return UserQueries(
            histories.indptr, padded(points).reshape(-1, width), offsets.astype(np.float32)
        )

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some rows: (n, n_items)."""
        return score_people(self.points(users), self.learned.item_points, self.learned.heights)

    @cached_property
    def _taste(self) -> ScoreParams:
        learned, histories = self.learned, self.histories
        logs = learned.log_weights(histories).astype(np.float64)
        return ScoreParams(
            starts=read_only(histories.indptr),
            past=read_only(histories.items),
            logs=read_only(logs),
            users=read_only(self.homes),
            items=read_only(learned.items),
            history=read_only(learned.history),
            bias=read_only(learned.bias),
            tau=float(learned.settings.tau),
            beta=float(learned.settings.beta),
        )

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula: (n,)."""
        return score_pairs(self._taste, users.astype(np.int32), items.astype(np.int32))

    def rounding(self, users: Rows) -> Norms:
        """Return a bound on the error of scores in float32, relative to those of pairs: (n,)."""
        learned, histories = self.learned, self.histories.take(users)
        tau, beta = learned.settings.tau, learned.settings.beta
        longest, bias = learned.reach
        past = np.sqrt(learned.history_squares[histories.items].max(initial=0))
        faded = np.abs(learned.log_weights(histories)).max(initial=0)
        away = np.sqrt(squares(self.homes[users])) + longest
        size = tau * (past + longest) ** 2 + beta * away**2 + bias + faded
        rounding: Norms = ROUNDING * ((learned.history.shape[1] + 16) * size + histories.counts)
        return rounding

    def best(
        self, users: Rows, k: int, seen: Csr | None, allowed: Mask
    ) -> tuple[Rows, Scores] | None:
        """Find the best k items of some rows; see `FindsBest`."""
        if not self.histories.take(users).counts.all():
            return None
        if len(allowed) < _MANY_ITEMS:
            return top_k(DenseRescorer(self), users, k, seen=seen, allowed=allowed)
        return find_best(self, users, k, seen, allowed)


class DenseRescorer:
    """Scores blocks of users in float32, and pairs in float64."""

    def __init__(self, people: UserScorer) -> None:
        """Set the users."""
        self._people, self.name = people, people.name
        self.rankable: Mask = people.rankable
        self.most_users = block_length(len(self.rankable))

    def linear_form(self) -> None:
        """Return nothing: a logarithm of a sum is no inner product."""

    def tile_maker(self) -> TileMaker:
        """Return itself."""
        return self

    def open(self, users: Rows, items: Rows) -> RescoredBlock:
        """Return the scores of a block of users."""
        return RescoredBlock(self._people, users, items)

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some rows: (n, n_items)."""
        return self._people.score_block(users)

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula: (n,)."""
        return self._people.score_pairs(users, items)


class RescoredBlock(BlockSource):
    """Scores of a block of users in float32, with a bound on their error.

    Args:
        people: The scorer of all users.
        users: (n,) rows.
        items: (m,) rows of the items to rank.
    """

    def __init__(self, people: UserScorer, users: Rows, items: Rows) -> None:
        """Score the block."""
        super().__init__(people.score_block(users), items)
        self._people, self._users = people, users
        self.error = people.rounding(users).astype(np.float32)

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Score pairs by the direct formula: (n,)."""
        return self._people.score_pairs(self._users[rows], items)
