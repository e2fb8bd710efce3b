"""People whom the mixture scores: users as learned, or newcomers, by their histories and places."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Mask
from transcf.kernels import Array
from transcf.kernels.mixture_scores import People, Taste, read_only, score_pairs, score_people
from transcf.kernels.rows import padded
from transcf.models.mixture.best import ROUNDING, find_best
from transcf.models.mixture.few import FewItems
from transcf.models.mixture.table import squares
from transcf.retrieval.scorer import Norms, Scores
from transcf.retrieval.topk import top_k

if TYPE_CHECKING:
    from transcf.models.mixture.learned import Mixture

#: With fewer items, scoring all of them is as quick as looking for the best by bounds.
_MANY_ITEMS = 20_000


class Placed:
    """A scorer of people who have a history and a place each.

    Args:
        learned: What scores them.
        histories: Of the people.
        homes: a of each, (n, dim) float32.
    """

    def __init__(self, learned: Mixture, histories: Histories, homes: Array) -> None:
        """Keep them."""
        self.learned, self.histories, self.homes = learned, histories, homes

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.learned.name

    @property
    def rankable(self) -> Mask:
        """(n_items,) what may be ranked."""
        return self.learned.rankable

    def linear_form(self) -> None:
        """Return nothing: a logarithm of a sum is no inner product."""

    def points(self, rows: Rows) -> People:
        """Where people are moved to: a point for each item of their histories."""
        learned, histories = self.learned, self.histories.take(rows)
        tau, beta = learned.settings.tau, learned.settings.beta
        own = np.repeat(self.homes[rows], histories.counts, axis=0)
        points = 2 * (np.float32(tau) * learned.history[histories.items] + np.float32(beta) * own)
        offsets = -tau * learned.history_squares[histories.items] - beta * squares(own)
        offsets += learned.log_weights(histories)
        width = learned.item_points.shape[1]
        return People(
            histories.indptr, padded(points).reshape(-1, width), offsets.astype(np.float32)
        )

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some rows: (n, n_items)."""
        return score_people(self.points(users), self.learned.item_points, self.learned.heights)

    @cached_property
    def _taste(self) -> Taste:
        learned, histories = self.learned, self.histories
        logs = learned.log_weights(histories).astype(np.float64)
        return Taste(
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
        """How far scores in float32 may be from those of pairs: (n,)."""
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
            return top_k(FewItems(self), users, k, seen=seen, allowed=allowed)
        return find_best(self, users, k, seen, allowed)
