"""Which events an epoch of the mixture looks at together, and against which items."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from transcf.data.histories import Histories
from transcf.kernels import Array
from transcf.kernels.mixture import Batch

#: Parts of a batch that threads may work on; part of what is computed, whoever does it.
SHARDS = 4


class Dealer:
    """Deals users into batches of whole histories, anew in every epoch.

    Args:
        histories: Whose; those of one event teach nothing and are left out.
        weights: How much events count as targets, (n_events,) float32 in the same order.
        size: Events of a batch; a longer history has one of its own.
    """

    def __init__(self, histories: Histories, weights: Array, size: int) -> None:
        """Look at the lengths."""
        self._histories, self._weights = histories, weights
        self._size = min(size, len(histories.items))
        self._users = np.flatnonzero(histories.counts > 1).astype(np.int32)

    @property
    def most_events(self) -> int:
        """Events of the largest batch there can be."""
        return max(self._size, int(self._histories.counts.max(initial=0)))

    def deal(self, generator: np.random.Generator) -> list[Array]:
        """Return the user rows of each batch of an epoch."""
        users = generator.permutation(self._users)
        ends = np.cumsum(self._histories.counts[users])
        cuts = [0]
        while cuts[-1] < len(users):
            before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
            fitting = int(np.searchsorted(ends, before + self._size, side="right"))
            cuts.append(max(cuts[-1] + 1, fitting))
        return [users[first:end] for first, end in pairwise(cuts)]

    def batch(self, users: Array) -> Batch:
        """Return the events of some users, cut into shards of about the same size."""
        counts = self._histories.counts[users]
        starts = np.concatenate([[0], np.cumsum(counts)])
        events = np.repeat(self._histories.indptr[users] - starts[:-1], counts)
        events += np.arange(starts[-1])
        cuts = np.searchsorted(starts, np.linspace(0, starts[-1], SHARDS + 1))
        cuts[-1] = len(users)
        items, weights = self._histories.items[events], self._weights[events]
        return Batch(users, starts, cuts, items, weights)
