"""Scores of many users by the mixture: terms between two items are computed once for all users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transcf.data.ids import Rows
from transcf.data.interactions import Mask
from transcf.kernels import Array
from transcf.kernels.mixture_table import STRIP, Items, Past, Taken, add_log_sums
from transcf.kernels.rows import padded
from transcf.retrieval.scorer import Norms, Scorer, Scores, Source, TileMaker

if TYPE_CHECKING:
    from transcf.models.mixture.learned import Mixture

#: Users who share a table of terms.
_PEOPLE = 2**16
#: Events for each row of a table below which it does not pay.
_EVENTS_OF_A_ROW = 3
#: Exponents below minus this would vanish in float32.
_LARGEST_EXPONENT = 80


def scorer_of_many(learned: Mixture, users: Rows) -> Scorer:
    """Return the fastest scorer of these users; scores are those of `learned` but for rounding.

    Args:
        learned: The fitted model.
        users: All users that will be scored, (n,).
    """
    histories, tau = learned.known.histories.take(users), learned.settings.tau
    n_past = len(np.unique(histories.items))
    chunks = -(-len(users) // _PEOPLE)
    too_few = len(histories.items) < _EVENTS_OF_A_ROW * max(1, n_past * chunks)
    if too_few or not histories.counts.all():
        return learned
    farthest = sum(np.sqrt(squares(points).max()) for points in (learned.history, learned.items))
    if not tau * farthest**2 <= _LARGEST_EXPONENT:
        return learned
    return BatchScorer(learned)


class BatchScorer:
    """Scores many users at once, each of whom has a history."""

    most_users = _PEOPLE

    def __init__(self, learned: Mixture) -> None:
        """Set the model."""
        self._learned = learned

    @property
    def name(self) -> str:
        """Name in errors."""
        return self._learned.name

    @property
    def rankable(self) -> Mask:
        """(n_items,) items that may be ranked."""
        return self._learned.rankable

    def linear_form(self) -> None:
        """Return nothing: a logarithm of a sum is no inner product."""

    def tile_maker(self) -> TileMaker:
        """Return itself."""
        return self

    def open(self, users: Rows, items: Rows) -> Source:
        """Return what scores these users in tiles."""
        return PairTermTable(self._learned, users, items)

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        items = np.arange(len(self.rankable), dtype=np.int32)
        scores = np.empty((len(users), len(items)), np.float32)
        self.open(users, items).fill(items, scores)
        return scores

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows by the direct formula: (n,)."""
        return self._learned.score_pairs(users, items)


class PairTermTable:
    """Terms between past items and all items, computed a strip of items at a time.

    Args:
        learned: The fitted model.
        users: (n,) rows.
        items: (m,) rows of the items to rank.
    """

    def __init__(self, learned: Mixture, users: Rows, items: Rows) -> None:
        """Prepare what does not depend on the strip."""
        self._learned, self._users = learned, users
        histories, (tau, beta) = learned.known.histories.take(users), _steepness(learned)
        past, places = np.unique(histories.items, return_inverse=True)
        a, p = learned.users[users], learned.history[past]
        width = learned.item_points.shape[1]
        self._homes = padded(np.float32(2 * beta) * a).reshape(-1, width)
        self._past = Past(
            padded(np.float32(2 * tau) * p).reshape(-1, width),
            (-tau * squares(p)).astype(np.float32),
        )
        log_weights = learned.log_weights(histories)
        self._taken = Taken(
            histories.indptr,
            places.astype(np.int32),
            np.exp(log_weights).astype(np.float32),
            (-beta * squares(a)).astype(np.float32),
        )
        self.size, self.error = self._bounds(a, p, items, -log_weights.min(initial=0))

    def _bounds(self, a: Array, p: Array, items: Rows, faded: float) -> tuple[Norms, Scores]:
        """Return bounds on the size of scores and on their rounding error: (n,) each."""
        learned, (tau, beta) = self._learned, _steepness(self._learned)
        longest = np.sqrt(squares(learned.items[items]).max(initial=0))
        bias = np.abs(learned.bias[items]).max(initial=0)
        near = tau * (np.sqrt(squares(p).max(initial=0)) + longest) ** 2
        home = beta * (np.sqrt(squares(a)) + longest) ** 2
        counts = np.diff(self._taken.starts)
        size = near + home + bias + faded + np.log(counts)
        # Two products of d terms, whose roundings an exponential turns into relative ones; those of
        # the exponential and of adding up a history; and the logarithm's.
        steps = self._homes.shape[1] + 16
        error = 1.01 * 2.0**-24 * (steps * size + counts + 16)
        return size, error.astype(np.float32)

    def fill(self, items: Rows, tile: Scores) -> None:
        """Write the scores of all of them for some item rows: (n, n_items)."""
        learned, (tau, beta) = self._learned, _steepness(self._learned)
        b = learned.items[items]
        room, lengths = (0, -len(items) % STRIP), squares(b)
        points = np.pad(padded(b).reshape(len(b), -1), (room, (0, 0)))
        heights = np.pad(learned.bias[items] - beta * lengths, room).astype(np.float32)
        offsets = np.pad(-tau * lengths, room).astype(np.float32)
        np.matmul(self._homes, points[: len(items)].T, out=tile)
        add_log_sums(self._taken, self._past, Items(points, offsets, heights), tile)

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Score pairs by the direct formula: (n,)."""
        return self._learned.score_pairs(self._users[rows], items)


def _steepness(learned: Mixture) -> tuple[float, float]:
    """How fast scores fall with the distance from past items, and from the user's own point."""
    return learned.settings.tau, learned.settings.beta


def squares(vectors: Array) -> Array:
    """Squared lengths of vectors, (n,) float64."""
    squares: Array = np.square(vectors, dtype=np.float64).sum(axis=1)
    return squares
