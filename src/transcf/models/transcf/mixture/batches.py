"""Which events an epoch of the mixture looks at together, and against which items."""

from __future__ import annotations

import numpy as np

from transcf.data.histories import Histories
from transcf.kernels import Array
from transcf.kernels.mixture_batches import SHARDS, Dealt, Log
from transcf.learning.forms.base import TINY


class Dealer:
    """Deals users into batches of whole histories, anew in every epoch.

    Neighbouring users belong to a shard, and every batch has about as many events of each shard: so
    whoever has the users of a shard never needs those of another.

    Args:
        histories: Whose; those of one event teach nothing and are left out.
        weights: How much events count as targets, (n_events,) float32 in the same order.
        size: Events of a batch on average, at most.
        n_drawn: Negatives of a batch, at most.
        power: Items are drawn in proportion to this power of their popularity.

    Attributes:
        log: What kernels see of it.
        n_drawn: Negatives of a batch.
        shards: Rows of the users of each shard.
    """

    def __init__(
        self, histories: Histories, weights: Array, size: int, n_drawn: int, power: float
    ) -> None:
        """Look at lengths and popularity."""
        counts = np.bincount(histories.items, minlength=histories.n_items)
        active = np.flatnonzero(counts).astype(np.int32)
        self.n_drawn = min(n_drawn, len(active))
        self._chances = chances(counts[active], self.n_drawn, power)
        stand_for = np.zeros(len(counts), np.float32)
        stand_for[active] = -np.log(self._chances)
        self.log = Log(histories.indptr, histories.items, weights, active, stand_for)
        users = np.flatnonzero(histories.counts > 1).astype(np.int32)
        self._lengths, before = histories.counts, _before(histories.counts[users])
        self._n_batches = max(1, -(-int(before[-1]) // size))
        cuts = np.searchsorted(before, np.linspace(0, before[-1], SHARDS + 1)[1:-1])
        self.shards = np.split(users, cuts)

    def deal(self, seed: int, epoch: int) -> Dealt:
        """Return the batches of an epoch."""
        order = np.random.default_rng((seed, epoch)).permutation(len(self.log.active))
        reach = np.cumsum(self._chances[order])
        reach[-1:] = self.n_drawn
        users, cuts, n_before = [], [], 0
        for number, shard in enumerate(self.shards, start=1):
            users.append(np.random.default_rng((seed, epoch, number)).permutation(shard))
            before = _before(self._lengths[users[-1]])
            starts = np.arange(self._n_batches + 1) * before[-1] / self._n_batches
            cuts.append(n_before + np.searchsorted(before[:-1], starts))
            n_before += len(shard)
        return Dealt(
            np.concatenate(users), np.stack(cuts), self.log.active[order], reach, seed, epoch
        )

    def most_events(self, dealt: Dealt) -> int:
        """Return the events of the largest batch."""
        before = _before(self._lengths[dealt.users])
        return int(np.diff(before[dealt.cuts], axis=1).sum(axis=0).max())


def users_of(dealt: Dealt, number: int) -> Array:
    """Return the rows of the users of a batch, (n,) int32."""
    shards = [slice(*cuts[number : number + 2]) for cuts in dealt.cuts]
    return np.concatenate([dealt.users[shard] for shard in shards])


def _before(lengths: Array) -> Array:
    """Events of all users before each, and of all, (n + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths)])


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
