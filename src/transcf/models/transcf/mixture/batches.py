"""Which events an epoch of the mixture looks at together, and against which items."""

from __future__ import annotations

import numpy as np

from transcf.data.histories import Histories
from transcf.kernels import Array
from transcf.kernels.mixture_batches import Dealt, Log


class Dealer:
    """Deals users into batches of whole histories, anew in every epoch.

    Args:
        histories: Whose; those of one event teach nothing and are left out.
        weights: How much events count as targets, (n_events,) float32 in the same order.
        size: Events of a batch; a longer history has one of its own.

    Attributes:
        log: What kernels see of it.
    """

    def __init__(self, histories: Histories, weights: Array, size: int) -> None:
        """Look at the lengths."""
        self._histories = histories
        active = np.flatnonzero(np.bincount(histories.items, minlength=histories.n_items))
        self.log = Log(histories.indptr, histories.items, weights, active.astype(np.int32))
        self._size = min(size, len(histories.items))
        self._users = np.flatnonzero(histories.counts > 1).astype(np.int32)

    @property
    def most_events(self) -> int:
        """Events of the largest batch there can be."""
        return max(self._size, int(self._histories.counts.max(initial=0)))

    def deal(self, seed: int, epoch: int) -> Dealt:
        """Return the batches of an epoch."""
        users = np.random.default_rng((seed, epoch)).permutation(self._users)
        ends = np.cumsum(self._histories.counts[users])
        cuts = [0]
        while cuts[-1] < len(users):
            before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
            fitting = int(np.searchsorted(ends, before + self._size, side="right"))
            cuts.append(max(cuts[-1] + 1, fitting))
        return Dealt(users, np.array(cuts), seed, epoch)
