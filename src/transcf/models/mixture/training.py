"""Epochs of the mixture: softmax over a target and shared negatives, by lazy Adam.

Every event of a history is a target of the others once an epoch. Batches and negatives depend
only on seed and epoch, and sums have a fixed order, so that the same seed gives the same bits for
any number of threads.

In distributed training every process has the users of some shards, and all items. It computes the
gradients of its shards of a batch, sends those of items to all processes, and updates all items by
the sum of all gradients in shard order: bit for bit as in one process.
"""

from __future__ import annotations

import numpy as np

from transcf.data.csr import offsets
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.kernels.mixture import MixtureParams, ScoreConfig
from transcf.kernels.mixture_batches import SHARDS, join
from transcf.kernels.mixture_epochs import MixtureEpoch, StepConfig, run_batches
from transcf.kernels.rows import AdamState, padded, padded_width, step_sizes
from transcf.models.communicator import Communicator, Progress
from transcf.models.factors import NORM_POWERS, first_vectors
from transcf.models.mixture.batches import TINY, BatchSampler, Buffers, Events, Shards
from transcf.models.mixture.settings import MixtureSettings
from transcf.models.training import EpochStats
from transcf.parallel import one_blas_thread

#: Batches between checks for an interrupt.
_AT_ONCE = 100
#: Suffixes of the names of an array and of the moments that Adam keeps of it.
_PARTS = ("", ".means", ".squares")


class MixtureTraining:
    """The trained vectors of the mixture; a `Trainable`.

    A process that has some of the users only is given the `layout` of all, and the communicator.
    """

    def __init__(
        self,
        events: Events,
        settings: MixtureSettings,
        *,
        layout: Shards | None = None,
        comm: Communicator | None = None,
    ) -> None:
        self._comm = comm or Communicator()
        self._settings, self._width = settings, padded_width(settings.dim)
        self._shards = layout or self.layout(events, settings)
        self._sampler = BatchSampler(
            events, self._shards, settings.shared_negatives, settings.negative_power
        )
        n_drawn, bound = self._sampler.n_drawn, NORM_POWERS["norm"]
        has_users, user_rate = settings.has_users, float(settings.user_lr_multiplier)
        tied = settings.tie_item_vectors
        self._step_config = StepConfig(n_drawn, tied, bound, user_rate, has_users)
        histories = events.histories
        longest = int(histories.counts.max(initial=0))
        self._config = score_config(settings, events.timed, longest)
        sizes = (0, n_drawn, histories.n_items, self._width)
        self._memory = Buffers.of(*sizes, has_users=has_users)
        self._whole = self._memory  # of all processes; the same as that of this one if it is alone
        if comm is None:  # else the coordinator sends the vectors
            self.load_tensors(_first_tensors(events, settings))

    @classmethod
    def layout(cls, events: Events, settings: MixtureSettings) -> Shards:
        """Lay out shards and batches for all users."""
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
        return self._stats(float(np.sum(self._comm.all_gather(losses), axis=0).sum()))

    def _run_together(self, epoch: MixtureEpoch, counts: Array, losses: Array) -> None:
        """Take a step on each batch with other processes; `counts` are events, by process."""
        comm, own, whole = self._comm, self._memory, self._whole
        places, n_batches = len(own.negatives.item_offsets), counts.shape[1]
        shards = [slice(*comm.shares[w : w + 2]) for w in range(comm.world_size)]
        for number in range(n_batches):
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
            comm.progress = Progress(number + 1, n_batches, "batches")

    def _stats(self, loss: float) -> EpochStats:
        return EpochStats(loss / max(self._shards.weight, TINY), self._shards.samples)

    def tensors(self) -> Arrays:
        """Return vectors, biases, Adam's running means and the number of steps."""
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
        """Put back what `tensors` returned."""

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
    logs: Array = np.log(np.maximum(1, events.item_counts))
    return (settings.popularity_correction * logs).astype(np.float32)


def score_config(settings: MixtureSettings, timed: bool, longest: int) -> ScoreConfig:
    """Return the constants of the score; without times all places have the same weight."""
    distances = np.maximum(1, np.arange(longest + 1, dtype=np.float64))
    past = (distances ** -(settings.history_decay if timed else 0.0)).astype(np.float32)
    future = past * np.float32(settings.future_weight if timed else 1.0)
    # Kernels are compiled for types: integers would compile them once more.
    return ScoreConfig(float(settings.tau), float(settings.beta), past, future)
