"""Batches of an epoch of the mixture: users, targets, negative items, and their memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from transcf.data.csr import Histories
from transcf.data.interactions import Interactions
from transcf.kernels import Array, aligned_zeros, unlocked
from transcf.kernels.mixture import CHUNK, Negatives, Workspace
from transcf.kernels.mixture_batches import NO_SLOT, SHARDS, Batch, EpochPlan, EventArrays
from transcf.kernels.mixture_context import BAND
from transcf.kernels.rows import padded_width
from transcf.models.communicator import LazyShard
from transcf.models.event_weights import InteractionWeights
from transcf.models.mixture.settings import MixtureSettings

#: Keeps quotients finite where a sum is zero.
TINY = 1e-12
#: Batches that an epoch should have, and the fewest and most events of a batch all the same.
_BATCHES, _BATCH_EVENTS = 150, (64, 1024)


@dataclass(frozen=True)
class Events:
    """Training events, of all users or of some.

    Histories of one event teach nothing. `weights`, (n_events,) float32 in the same order, say how
    much events count as targets. `item_counts`, (n_items,), include events of other users. `timed`
    says whether the order of events is known.
    """

    histories: Histories
    weights: Array
    item_counts: Array
    timed: bool

    @classmethod
    def of(cls, train: Interactions, settings: MixtureSettings) -> Self:
        """Take histories from a log, and the weights of its events from settings."""
        weights = np.ones(len(train), np.float32)
        events = InteractionWeights.of(train, settings.event_weights)
        if not events.is_even:
            weights = events.overall[train.in_order]
        return cls(train.histories, weights, train.by_item.counts, train.timestamps is not None)

    @property
    def user_indptr(self) -> Array:
        """Where the events of users start, (n_users + 1,) int64."""
        return self.histories.indptr

    @property
    def taught_weight(self) -> float:
        """How much targets count: events of users who have more than one."""
        lengths = self.histories.counts
        return float(self.weights[np.repeat(lengths > 1, lengths)].sum())

    def part(self, first: int, end: int) -> Events | LazyShard:
        """Keep the users first..end-1, who are counted from 0 then; items count as before."""
        indptr = self.user_indptr[first : end + 1]
        events = slice(int(indptr[0]), int(indptr[-1]))
        own = Histories(indptr - indptr[0], self.histories.items[events], self.histories.n_items)
        return replace(self, histories=own, weights=self.weights[events])


@dataclass(frozen=True)
class Shards:
    """Users of each shard, and batches; neither depends on threads or processes.

    Neighbouring users belong to a shard, and every batch has about as many events of each shard: a
    process with the users of a shard never needs those of another.

    `groups`, (SHARDS + 1,), says where the users of shards begin, and where those of the last one
    end; a process that has some of the shards sees the others as empty. `samples` are the targets
    of an epoch in all shards, and `weight` is how much they count.
    """

    groups: Array
    n_batches: int
    samples: int
    weight: float

    @classmethod
    def of(cls, events: Events, batch_events: int | None = None) -> Self:
        """Assign all users to shards; `batch_events` is the mean of batches at most."""
        lengths, n_events = events.histories.counts, int(events.user_indptr[-1])
        size = batch_events or int(np.clip(n_events // _BATCHES, *_BATCH_EVENTS))
        users = np.flatnonzero(lengths > 1)
        before = _before(lengths[users])
        cuts = np.searchsorted(before, np.linspace(0, before[-1], SHARDS + 1)[1:-1])
        inside = np.append(users, len(lengths))[cuts]
        return cls(
            groups=np.array([0, *inside, len(lengths)]),
            n_batches=max(1, -(-int(before[-1]) // size)),
            samples=int(before[-1]),
            weight=events.taught_weight,
        )

    @property
    def n_groups(self) -> int:
        """Shards of all processes."""
        return SHARDS

    def part(self, first: int, end: int) -> Self:
        """Keep the shards first..end-1, whose users are counted from 0 then."""
        begin, stop = self.groups[[first, end]]
        return replace(self, groups=np.clip(self.groups, begin, stop) - begin)


class BatchSampler:
    """Assigns users to batches of whole histories, again in every epoch.

    A batch has at most `n_drawn` negatives, drawn in proportion to a power of their popularity.
    """

    def __init__(self, events: Events, shards: Shards, n_drawn: int, power: float) -> None:
        counts, histories = events.item_counts, events.histories
        active = np.flatnonzero(counts).astype(np.int32)
        self.n_drawn = min(n_drawn, len(active))
        self._chances = chances(counts[active], self.n_drawn, power)
        log_counts = np.zeros(len(counts), np.float32)
        log_counts[active] = -np.log(self._chances)
        indptr, items = unlocked(histories.indptr), unlocked(histories.items)
        self.log = EventArrays(indptr, items, unlocked(events.weights), active, log_counts)
        users = np.flatnonzero(histories.counts > 1).astype(np.int32)
        self._lengths, self._n_batches = histories.counts, shards.n_batches
        self._shards = np.split(users, np.searchsorted(users, shards.groups[1:-1]))

    def deal(self, seed: int, epoch: int) -> EpochPlan:
        """Return the batches of an epoch."""
        order = np.random.default_rng((seed, epoch)).permutation(len(self.log.active))
        reach = np.cumsum(self._chances[order])
        reach[-1:] = self.n_drawn
        users, cuts, n_before = [], [], 0
        for number, shard in enumerate(self._shards, start=1):
            users.append(np.random.default_rng((seed, epoch, number)).permutation(shard))
            before = _before(self._lengths[users[-1]])
            starts = np.arange(self._n_batches + 1) * before[-1] / self._n_batches
            cuts.append(n_before + np.searchsorted(before[:-1], starts))
            n_before += len(shard)
        return EpochPlan(
            np.concatenate(users), np.stack(cuts), self.log.active[order], reach, seed, epoch
        )

    def events_of(self, plan: EpochPlan) -> Array:
        """Return how many events batches have, (n_batches,)."""
        before = _before(self._lengths[plan.users])
        counts: Array = np.diff(before[plan.cuts], axis=1).sum(axis=0)
        return counts


def _before(lengths: Array) -> Array:
    """Events of all users before each, and of all, (n + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths)])


def chances(counts: Array, n_drawn: int, power: float) -> Array:
    """Return the chance of each item to be among the negatives of a batch, (n,) float64.

    In proportion to a power of its popularity, at most 1, and they add up to the number drawn.
    """
    likely = counts.astype(np.float64) ** power
    is_sure = np.zeros(len(counts), np.bool_)
    while True:
        rest = likely / max(likely[~is_sure].sum(), TINY) * (n_drawn - is_sure.sum())
        found: Array = np.where(is_sure, 1.0, rest)
        if (found <= 1).all():
            return found
        is_sure = found >= 1


class Buffers(NamedTuple):
    """Memory for the largest batch so far."""

    batch: Batch
    negatives: Negatives
    work: Workspace

    @classmethod
    def of(
        cls, events: int, drawn: int, n_items: int, width: int, *, has_users: bool = True
    ) -> Buffers:
        """Allocate memory for batches of so many events and negatives, rows of `width` numbers."""
        places, events = padded_width(drawn), max(1, events)
        touched, (rows, cells, band) = places + min(events, n_items), (1, 1, CHUNK)
        if not has_users:  # a position for each event
            rows, cells, band = 2, 3, BAND
        batch = Batch(
            **{name: np.zeros(events, np.int32) for name in ("users", "items", "places", "order")},
            starts=np.zeros(events + 1, np.int64),
            shards=np.zeros(SHARDS + 1, np.int64),
            weights=np.zeros(events, np.float32),
            touched=np.zeros(touched, np.int32),
            size=np.zeros(1, np.int64),
            firsts=np.zeros(touched + 1, np.int64),
            place_of=np.full(n_items, NO_SLOT, np.int32),
        )
        numbers = ["offsets", "item_offsets", "sums", "sum_slopes", "target_offset_slopes"]
        numbers += ["rest", "others"]
        vectors = ("targets", "moved_slopes", "target_slopes")
        work = Workspace(
            **{name: _zeros(events) for name in numbers},
            **{name: _zeros(events, width) for name in vectors},
            **{name: _zeros(rows * events, width) for name in ("moved", "scaled")},
            tile=_zeros(cells * events * places),
            pairs=_zeros(events * band),
            negative_slopes=_zeros(SHARDS, places, width),
            negative_offset_slopes=_zeros(SHARDS, places),
        )
        return cls(batch, Negatives(_zeros(places, width), _zeros(places)), work)

    def for_events(self, events: int) -> Buffers:
        """Return memory for a batch: this, or larger empty one."""
        if events <= len(self.batch.items):
            return self
        drawn, width = self.negatives.vectors.shape
        has_users = len(self.work.moved) == len(self.work.targets)
        return self.of(events, drawn, len(self.batch.place_of), width, has_users=has_users)


def _zeros(*shape: int) -> Array:
    return aligned_zeros(shape, np.float32)
