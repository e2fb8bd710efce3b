"""Which events an epoch of the mixture looks at together, and against which items."""

from __future__ import annotations

import numpy as np

from transcf.data.histories import Histories
from transcf.kernels import Array
from transcf.kernels.mixture_batches import Dealt, Log
from transcf.learning.forms.base import TINY


class Dealer:
    """Deals users into batches of whole histories, anew in every epoch.

    Args:
        histories: Whose; those of one event teach nothing and are left out.
        weights: How much events count as targets, (n_events,) float32 in the same order.
        size: Events of a batch; a longer history has one of its own.
        n_drawn: Negatives of a batch, at most.
        power: Items are drawn in proportion to this power of their popularity.

    Attributes:
        log: What kernels see of it.
        n_drawn: Negatives of a batch.
    """

    def __init__(
        self, histories: Histories, weights: Array, size: int, n_drawn: int, power: float
    ) -> None:
        """Look at lengths and popularity."""
        self._histories = histories
        counts = np.bincount(histories.items, minlength=histories.n_items)
        active = np.flatnonzero(counts).astype(np.int32)
        self.n_drawn = min(n_drawn, len(active))
        self._chances = chances(counts[active], self.n_drawn, power)
        stand_for = np.zeros(len(counts), np.float32)
        stand_for[active] = -np.log(self._chances)
        self.log = Log(histories.indptr, histories.items, weights, active, stand_for)
        self._size = min(size, len(histories.items))
        self._users = np.flatnonzero(histories.counts > 1).astype(np.int32)

    @property
    def most_events(self) -> int:
        """Events of the largest batch there can be."""
        return max(self._size, int(self._histories.counts.max(initial=0)))

    def deal(self, seed: int, epoch: int) -> Dealt:
        """Return the batches of an epoch."""
        generator = np.random.default_rng((seed, epoch))
        users = generator.permutation(self._users)
        ends = np.cumsum(self._histories.counts[users])
        cuts = [0]
        while cuts[-1] < len(users):
            before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
            fitting = int(np.searchsorted(ends, before + self._size, side="right"))
            cuts.append(max(cuts[-1] + 1, fitting))
        order = generator.permutation(len(self.log.active))
        reach = np.cumsum(self._chances[order])
        reach[-1:] = self.n_drawn
        return Dealt(users, np.array(cuts), self.log.active[order], reach, seed, epoch)


def chances(counts: Array, n_drawn: int, power: float) -> Array:
    """Return the chance of each item to be among the negatives of a batch, (n,) float64.

    In proportion to a power of its popularity, at most 1, and they add up to the number drawn.

    Args:
        counts: Events of each item, all of them above 0, (n,).
        n_drawn: How many are drawn, at most all.
        power: 0 draws all alike.

    Example:
        >>> chances(np.array([100, 1, 1, 1, 1]), 3, 0.5).round(2).tolist()
        [1.0, 0.5, 0.5, 0.5, 0.5]
    """
    likely = counts.astype(np.float64) ** power
    is_sure = np.zeros(len(counts), np.bool_)
    while True:
        rest = likely / max(likely[~is_sure].sum(), TINY) * (n_drawn - is_sure.sum())
        found: Array = np.where(is_sure, 1.0, rest)
        if (found <= 1).all():
            return found
        is_sure = found >= 1
