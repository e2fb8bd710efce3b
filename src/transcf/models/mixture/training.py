# ruff: noqa: D102  (methods of the base class are documented there)
"""Hyper-parameters of the mixture, and its epochs: softmax over a target and shared negatives.

Every event of a history is a target of the others once an epoch. Steps are those of lazy Adam.
Batches and negatives depend only on seed and epoch, and sums have a fixed order, so that the same
seed gives the same bits for any number of threads.

In distributed training every process has the users of some shards, and all items. It computes the
gradients of its shards of a batch, sends those of items to all processes, and updates all items by
the sum of all gradients in shard order: bit for bit as in one process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np

from transcf.data.csr import Histories, offsets
from transcf.data.interactions import Interactions
from transcf.io.tensors import Arrays
from transcf.kernels import Array, aligned_zeros, unlocked
from transcf.kernels.mixture import CHUNK, MixtureParams, Negatives, ScoreConfig, Workspace
from transcf.kernels.mixture_batches import NO_SLOT, SHARDS, Batch, EpochPlan, EventArrays, join
from transcf.kernels.mixture_context import BAND
from transcf.kernels.mixture_epochs import MixtureEpoch, StepConfig, run_batches
from transcf.kernels.rows import AdamState, padded, padded_width, step_sizes
from transcf.models.communicator import Communicator
from transcf.models.event_weights import InteractionWeights, WeightSettings
from transcf.models.factors import NORM_POWERS, first_vectors
from transcf.models.families import FactorSettings, IterationSettings, MemoryEstimate, vectors
from transcf.models.params import Number, setting, settings
from transcf.models.training import EpochStats
from transcf.parallel import one_blas_thread

#: Keeps quotients finite where a sum is zero.
TINY = 1e-12
#: Batches that an epoch should have, and the fewest and most events of a batch all the same.
_BATCHES, _BATCH_EVENTS = 150, (64, 1024)
#: Batches between checks for an interrupt.
_AT_ONCE = 100
#: Suffixes of the names of an array and of the moments that Adam keeps of it.
_PARTS = ("", ".means", ".squares")
#: Events of the user of a mean event for which vectors of users are worse than means of contexts.
#: Beauty, where they are, has 16; MovieTweetings, where they are as good, 34; ml-latest-small 394.
FEW_EVENTS = 25


@settings(epochs=20, learning_rate=0.01, init_scale=0.03)
class MixtureSettings(FactorSettings, IterationSettings, WeightSettings):
    """Hyper-parameters of `TransCFMixture`."""

    # The decay of the learning rate depends on the number of epochs.
    _resumable: ClassVar[tuple[str, ...]] = ("patience",)
    tau: float = setting(
        4.0, "Weight of the squared distance from the items of the history.", low=0, high=10
    )
    beta: float = setting(
        2.0, "Weight of the squared distance from the user's own vector.", low=0, high=10
    )
    user_vectors: Literal["auto", "learned", "context"] = setting(
        "auto",
        'Where users are: "learned" trains a vector for each user; "context" takes the mean of the '
        "vectors of the last items of the history, weighted by the inverse of their distance, and "
        'needs times; "auto" takes "context" where events have times and the user of a mean event '
        f"has at most {FEW_EVENTS} events.",
    )
    history_decay: float = setting(
        1.5,
        "Exponent by which older items of a history lose weight, where events have times: the item "
        "d places before the target has the weight d^-history_decay.",
        low=0,
        high=50,
    )
    future_weight: float = setting(
        0.5,
        "Weight in training of events after the target, relative to events before it, where events "
        "have times.",
        low=0,
        high=1,
    )
    tie_item_vectors: bool = setting(
        False,
        "Whether items have one vector each; else items of a history and recommended items have "
        "vectors of their own.",
    )
    shared_negatives: int = setting(1000, "Negative items that all events of a batch share.", low=1)
    negative_power: float = setting(
        0.5,
        "Negatives are drawn in proportion to this power of their popularity, and weighted by the "
        "inverse of their probability; 0 draws uniformly.",
        low=0,
        high=1,
    )
    popularity_correction: float = setting(
        0.0,
        "Share of popularity that scores leave out: this number times the logarithm of an item's "
        "event count is added in training and left out of scores.",
        low=0,
        high=2,
    )
    user_lr_multiplier: float = setting(
        5.0,
        "Step size of user vectors, as a multiple of the learning rate. A user is updated once per "
        "epoch, an item in every batch that contains or draws it.",
        above=0,
    )
    batch_events: int | None = setting(
        None,
        "Events per batch, at least one whole history; None takes 1,024, and fewer where there are "
        "few events.",
        low=1,
    )
    transitions: float | Literal["auto"] = setting(
        "auto",
        "How much counts of items that follow others add to scores: 1 as much as the vectors. "
        '"auto" chooses 0, 0.5, 1, 2, 4 or 8 on validation data with the fitted vectors, 0 where '
        "the gain is not significant or there are none.",
        rule=Number(low=0, high=1000, words=("auto",)),
    )

    @property
    def has_users(self) -> bool:
        return self.user_vectors != "context"

    def memory_estimate(self, users: int, items: int) -> MemoryEstimate:
        """Return the least memory of the vectors and of Adam's two moments of each."""
        rows = (1 if self.tie_item_vectors else 2) * items
        rows += users if self.user_vectors == "learned" else 0
        return replace(super().memory_estimate(users, items), size=3 * vectors(rows, self.dim))

    def rate_at(self, epoch: float) -> float:
        """Return the learning rate of an epoch, counted from 1; it decays linearly to 0."""
        return self.learning_rate * max(0.0, 1 - (epoch - 1) / self.epochs)


@dataclass(frozen=True)
class Events:
    """Training events, of all users or of some. Histories of one event teach nothing."""

    histories: Histories
    weights: Array  # how much events count as targets, (n_events,) float32 in the same order
    item_counts: Array  # (n_items,), events of other users included
    timed: bool  # whether the order of events is known

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

    def part(self, first: int, end: int) -> Events:
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
    """

    #: Where the users of shards begin, and those of the last one end, (SHARDS + 1,). A process that
    #: has some of the shards sees the others as empty.
    groups: Array
    n_batches: int
    samples: int  # targets of an epoch in all shards
    weight: float  # how much they count
    n_groups: ClassVar[int] = SHARDS

    @classmethod
    def of(cls, events: Events, batch_events: int | None = None) -> Self:
        """Assign all users to shards; `batch_events` is the mean of batches at most."""
        lengths, n_events = events.histories.counts, int(events.user_indptr[-1])
        size = batch_events or int(np.clip(n_events // _BATCHES, *_BATCH_EVENTS))
        users = np.flatnonzero(lengths > 1)
        before = offsets(lengths[users])
        cuts = np.searchsorted(before, np.linspace(0, before[-1], SHARDS + 1)[1:-1])
        inside = np.append(users, len(lengths))[cuts]
        return cls(
            groups=np.array([0, *inside, len(lengths)]),
            n_batches=max(1, -(-int(before[-1]) // size)),
            samples=int(before[-1]),
            weight=events.taught_weight,
        )

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
            before = offsets(self._lengths[users[-1]])
            starts = np.arange(self._n_batches + 1) * before[-1] / self._n_batches
            cuts.append(n_before + np.searchsorted(before[:-1], starts))
            n_before += len(shard)
        return EpochPlan(
            np.concatenate(users), np.stack(cuts), self.log.active[order], reach, seed, epoch
        )

    def events_of(self, plan: EpochPlan) -> Array:
        """Return how many events batches have, (n_batches,)."""
        before = offsets(self._lengths[plan.users])
        return np.diff(before[plan.cuts], axis=1).sum(axis=0)


def chances(counts: Array, n_drawn: int, power: float) -> Array:
    """Return the chance of each item to be among the negatives of a batch, (n,) float64.

    In proportion to a power of its popularity, at most 1, and they add up to the number drawn.
    """
    likely = counts.astype(np.float64) ** power
    is_sure = np.zeros(len(counts), np.bool_)
    while True:
        rest = likely / max(likely[~is_sure].sum(), TINY) * (n_drawn - is_sure.sum())
        found = np.where(is_sure, 1.0, rest)
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


# -- epochs --------------------------------------------------------------------------------


class MixtureTraining:
    """The trained vectors of the mixture; a `Trainable`.

    A process that has some of the users only is given the `layout` of all, and the communicator.
    """

    def __init__(
        self, events: Events, settings: MixtureSettings, *, layout: Shards | None = None,
        comm: Communicator | None = None,
    ) -> None:  # fmt: skip
        self._comm = comm or Communicator()
        self._settings, self._width = settings, padded_width(settings.dim)
        self._shards = layout or self.layout(events, settings)
        self._sampler = BatchSampler(
            events, self._shards, settings.shared_negatives, settings.negative_power
        )
        n_drawn, histories = self._sampler.n_drawn, events.histories
        self._step_config = StepConfig(
            n_drawn, settings.tie_item_vectors, NORM_POWERS["norm"],
            float(settings.user_lr_multiplier), settings.has_users,
        )  # fmt: skip
        longest = int(histories.counts.max(initial=0))
        self._config = score_config(settings, events.timed, longest)
        self._memory = Buffers.of(
            0, n_drawn, histories.n_items, self._width, has_users=settings.has_users
        )
        self._whole = self._memory  # of all processes; the same as that of this one if it is alone
        if comm is None:  # else the coordinator sends the vectors
            self.load_tensors(_first_tensors(events, settings))

    @classmethod
    def layout(cls, events: Events, settings: MixtureSettings) -> Shards:
        return Shards.of(events, settings.batch_events)

    def run_epoch(self, number: int) -> EpochStats:
        """Let every event be a target once."""
        plan = self._sampler.deal(self._settings.random_state, number)
        batches = self._shards.n_batches
        rates = [self._settings.rate_at(number + place / batches) for place in range(batches)]
        sizes = step_sizes(np.array(rates), self._steps + np.arange(1, batches + 1))
        epoch = MixtureEpoch(
            self._config, self._step_config, self._sampler.log, plan, sizes, self._params
        )
        losses = np.zeros((batches, SHARDS))
        counts = np.stack(self._comm.all_gather(self._sampler.events_of(plan)))
        self._memory = self._memory.for_events(int(counts[self._comm.rank].max()))
        with one_blas_thread():
            if self._comm.world_size == 1:
                for first in range(0, batches, _AT_ONCE):
                    run_batches(epoch, *self._memory, losses, first, min(first + _AT_ONCE, batches))
            else:
                self._whole = self._whole.for_events(int(counts.sum(axis=0).max()))
                self._run_together(epoch, counts, losses)
        self._steps += batches
        # A shard belongs to one process; it is zero in the losses of the others.
        loss = float(np.sum(self._comm.all_gather(losses), axis=0).sum())
        return EpochStats(loss / max(self._shards.weight, TINY), self._shards.samples)

    def _run_together(self, epoch: MixtureEpoch, counts: Array, losses: Array) -> None:
        """Take a step on each batch with other processes; `counts` are events, by process."""
        comm, own, whole = self._comm, self._memory, self._whole
        places = len(own.negatives.item_offsets)
        shards = [slice(*comm.shares[w : w + 2]) for w in range(comm.world_size)]
        for number in range(counts.shape[1]):
            run_batches(epoch, *own, losses, number, number + 1, half=0)
            mine = _item_gradients(own, slice(0, counts[comm.rank, number]), shards[comm.rank])
            ends = offsets(counts[:, number]).tolist()
            parts = [
                _item_gradients(whole, slice(*ends[w : w + 2]), shards[w])
                for w in range(comm.world_size)
            ]
            sizes = [sum(array.size for array in arrays) for arrays in parts]
            sent = np.concatenate([array.reshape(-1) for array in mine])
            for arrays, values in zip(parts, comm.all_gather(sent, sizes), strict=True):
                cuts = np.cumsum([array.size for array in arrays])[:-1]
                for array, some in zip(arrays, np.split(values, cuts), strict=True):
                    array[...] = some.reshape(array.shape)
            join(own.batch, whole.batch, ends[-1], places)
            run_batches(epoch, *whole, losses, number, number + 1, half=1)

    def tensors(self) -> Arrays:
        found: Arrays = {"steps": self._steps}
        users, items, history, bias = self._params
        vectors = {"user_vectors": users} if self._settings.has_users else {}
        vectors["item_vectors"] = items
        if not self._settings.tie_item_vectors:
            vectors["history_vectors"] = history
        for part, values in zip(_PARTS, bias, strict=True):
            found[f"item_bias{part}"] = values
        for name, moving in vectors.items():
            for part, values in zip(_PARTS, moving, strict=True):
                found[name + part] = values[:, : self._settings.dim]
        # Ray stores the arrays of a worker before they change; copies would need memory.
        keep = np.copy if self._comm.world_size == 1 else np.ascontiguousarray
        return {name: keep(array) for name, array in found.items()}

    def load_tensors(self, tensors: Arrays) -> None:

        def moving(name: str) -> AdamState:
            parts = [tensors[name + part] for part in _PARTS]
            return AdamState(*(padded(part).reshape(-1, self._width) for part in parts))

        items = moving("item_vectors")
        empty = AdamState(*(part[:0] for part in items))
        users = moving("user_vectors") if self._settings.has_users else empty
        history = items if self._settings.tie_item_vectors else moving("history_vectors")
        bias = AdamState(*(tensors[f"item_bias{part}"].copy() for part in _PARTS))
        self._params = MixtureParams(users, items, history, bias)
        self._steps = tensors["steps"].copy()


def _item_gradients(memory: Buffers, events: slice, shards: slice) -> list[Array]:
    """Return views of the gradients of items by some shards; numbers of items as their bytes."""
    batch, work = memory.batch, memory.work
    by_event = work.target_offset_slopes, work.sums, work.target_slopes, work.moved_slopes
    by_shard = work.negative_offset_slopes, work.negative_slopes
    said = [*(array[events] for array in by_event), *(array[shards] for array in by_shard)]
    return [batch.items[events].view(np.float32), *said]


def _first_tensors(events: Events, settings: MixtureSettings) -> Arrays:
    """Draw vectors, as `MixtureTraining.tensors` returns them."""
    sizes = {"user_vectors": len(events.histories), "item_vectors": events.histories.n_items}
    generator = np.random.default_rng(settings.random_state)
    drawn = first_vectors([*sizes.values()], settings.dim, settings.init_scale, generator)
    tensors = dict(zip(sizes, drawn, strict=True))
    if not settings.has_users:
        del tensors["user_vectors"]
    if not settings.tie_item_vectors:  # both start equal, so that co-occurring items are near
        tensors["history_vectors"] = tensors["item_vectors"]
    tensors["item_bias"] = training_bias(events, settings)
    empty = {name + part: 0 * tensors[name] for name in tensors for part in _PARTS[1:]}
    return tensors | empty | {"steps": np.zeros(1, np.int64)}


def training_bias(events: Events, settings: MixtureSettings) -> Array:
    """Return what is part of biases in training and left out of scores, (n_items,) float32."""
    logs = np.log(np.maximum(1, events.item_counts))
    return (settings.popularity_correction * logs).astype(np.float32)


def score_config(settings: MixtureSettings, timed: bool, longest: int) -> ScoreConfig:
    """Return the constants of the score; without times all places have the same weight."""
    distances = np.maximum(1, np.arange(longest + 1, dtype=np.float64))
    past = (distances ** -(settings.history_decay if timed else 0.0)).astype(np.float32)
    future = past * np.float32(settings.future_weight if timed else 1.0)
    # Kernels are compiled for types: integers would compile them once more.
    return ScoreConfig(float(settings.tau), float(settings.beta), past, future)
