"""Exact top-k of the mixture for large catalogues, without scoring every item.

A score is c_i - beta |a - b_i|^2 + log sum_k w_k exp(-tau |p_k - b_i|^2), one product for each past
item. The past items lie around their weighted mean g, r_k away from it, so that none is nearer to
b_i than |b_i - g| - r_k: two products for each item, with a and with g, say what its score is at
most. Those with the largest bounds are scored first, then everything whose bound reaches the k-th
best of them. Candidates within the rounding error of the k-th score are then rescored in float64,
so that lists do not depend on which users are scored together.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.kernels import Array
from transcf.kernels.mixture_scores import UserQueries, add_reach, score_people
from transcf.models.mixture.batch_scorer import squares
from transcf.parallel import parallel_for
from transcf.retrieval.scorer import Scores, block_length

if TYPE_CHECKING:
    from transcf.models.mixture.user_scorer import UserScorer

#: Items that are scored first, at least, and for each place of a list.
_FIRST, _FIRST_OF_A_PLACE = 512, 8
#: Distances for which it is worked out what a history brings.
_STEPS = 256
#: Largest rounding of a number, relative to it, four times over.
ROUNDING = 2.0**-22


def find_best(
    people: UserScorer, rows: Rows, k: int, seen: Csr | None, allowed: Mask
) -> tuple[Rows, Scores] | None:
    """Find the best k items of some users.

    Args:
        people: The scorer of all users.
        rows: (n,) users to find lists for; all have a history.
        k: Length of the lists.
        seen: Items of each row that are left out, or None.
        allowed: (n_items,) items to choose from.

    Returns:
        As `top_k`; None where something is not finite.
    """
    items = np.full((len(rows), k), UNKNOWN, dtype=np.int32)
    scores = np.full((len(rows), k), np.nan, dtype=np.float32)
    step = max(1, block_length(2 * len(allowed)))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        block = _Block(people, some, allowed)
        if not block.is_finite:
            return None
        found = (items[start : start + step], scores[start : start + step])
        parallel_for(len(some), partial(block.write, k, seen, *found))
    return items, scores


class _Block:
    """A block of users, and the products of all items with their vectors and mean histories.

    Args:
        people: The scorer of all users.
        rows: (n,) users of the block.
        allowed: (n_items,) items to choose from.
    """

    def __init__(self, people: UserScorer, rows: Rows, allowed: Mask) -> None:
        """Compute the products."""
        learned = people.learned
        self._people, self._rows, self._allowed = people, rows, allowed
        self._points = people.points(rows)
        self._tau, beta = learned.settings.tau, learned.settings.beta
        histories = people.histories.take(rows)
        self._starts, self._past = histories.indptr, learned.history[histories.items]
        self._logs = learned.log_weights(histories)
        homes = people.homes[rows]
        self._middles = np.array([self._middle(n) for n in range(len(rows))], np.float32)
        both = np.concatenate([np.float32(2 * beta) * homes, self._middles])
        products = both @ learned.items.T
        self._own, self._toward = products[: len(rows)], products[len(rows) :]
        self._own += learned.own_heights
        self._own -= (beta * squares(homes)).astype(np.float32)[:, None]
        self._longest, _ = learned.reach
        self._error = people.rounding(rows)
        sound = [np.isfinite(self._points.offsets).all(), np.isfinite(products).all()]
        self.is_finite = all(sound)

    def _middle(self, n: int) -> Array:
        own = slice(self._starts[n], self._starts[n + 1])
        weights = np.exp(self._logs[own] - self._logs[own].max())
        middle: Array = weights @ self._past[own] / weights.sum()
        return middle

    def write(self, k: int, seen: Csr | None, items: Rows, scores: Scores, a: int, b: int) -> None:
        """Write the lists of the users a..b-1."""
        for n in range(a, b):
            hidden = None if seen is None else seen.row(int(self._rows[n]))
            best, values = self._best(n, k, hidden)
            items[n, : len(best)], scores[n, : len(best)] = best, values

    def _best(self, n: int, k: int, hidden: Rows | None) -> tuple[Rows, Scores]:
        bounds, error = self._bounds(n, hidden), float(self._error[n])
        n_items, left = len(bounds), int(np.count_nonzero(bounds != -np.inf))
        k = min(k, left)
        if k == 0:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        first = min(max(_FIRST, _FIRST_OF_A_PLACE * k), left)
        some = np.argpartition(bounds, n_items - first)[n_items - first :]
        scores = self._scores(n, some)
        bounds[some] = -np.inf
        others = np.flatnonzero(bounds >= _kth(scores, k) - 2 * error)
        if len(others):
            some = np.concatenate([some, others])
            scores = np.concatenate([scores, self._scores(n, others)])
        close = some[scores >= _kth(scores, k) - 2 * error].astype(np.int32)
        true = self._people.score_pairs(np.full(len(close), self._rows[n]), close)
        order = np.lexsort((close, -true))[:k]
        return close[order], true[order]

    def _bounds(self, n: int, hidden: Rows | None) -> Scores:
        """Return an upper bound on each score, but for rounding; -inf for items to leave out."""
        bounds: Scores = np.where(self._allowed, self._own[n], np.float32(-np.inf))
        if hidden is not None:
            bounds[hidden] = -np.inf
        own = slice(self._starts[n], self._starts[n + 1])
        middle = self._middles[n].astype(np.float64)
        radii = np.sqrt(np.square(self._past[own] - middle).sum(axis=1))
        longest = self._longest + float(np.sqrt(middle @ middle))
        rounding = ROUNDING * (len(middle) + 16) * longest**2
        per_unit = _STEPS / max(longest, 1e-30)
        gaps = np.maximum(np.arange(_STEPS)[:, None] / per_unit - radii, 0.0)
        terms = np.exp(self._logs[own] - self._tau * np.square(gaps))
        reach = np.log(np.maximum(terms.sum(axis=1), 1e-300)).astype(np.float32)
        squared = float(middle @ middle) - rounding
        learned = self._people.learned
        add_reach(bounds, self._toward[n], learned.item_squares, squared, reach, per_unit)
        return bounds

    def _scores(self, n: int, items: Array) -> Scores:
        """Score some items for a user in float32: (m,)."""
        learned, own = self._people.learned, slice(self._starts[n], self._starts[n + 1])
        one = UserQueries(
            np.array([0, own.stop - own.start]), self._points.points[own], self._points.offsets[own]
        )
        if 2 * len(items) > len(learned.items):  # as quick, and nothing is copied
            scores: Scores = score_people(one, learned.item_points, learned.heights)[0][items]
        else:
            scores = score_people(one, learned.item_points[items], learned.heights[items])[0]
        return scores


def _kth(scores: Scores, k: int) -> float:
    """Return the k-th largest."""
    return float(np.partition(scores, len(scores) - k)[len(scores) - k])
