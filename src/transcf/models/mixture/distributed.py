"""Distributed training of the mixture: every process has the users of some shards, and all items.

A process computes the gradients of its shards of a batch, sends those of items to all processes,
and updates all items by the sum of all gradients in shard order. Items are therefore the same in
all processes, bit for bit as in one process.
"""

from __future__ import annotations

import numpy as np

from transcf.kernels import Array
from transcf.kernels.mixture_batches import join
from transcf.kernels.mixture_epochs import Epoch, move_batch, run_shards
from transcf.models.communicator import Communicator, Progress
from transcf.models.mixture.buffers import Buffers


def _item_gradients(memory: Buffers, events: slice, shards: slice) -> list[Array]:
    """Return views of the gradients of items by some shards of a batch, all as float32.

    Item numbers are sent as the bytes that they are in memory.
    """
    batch, work = memory.batch, memory.work
    by_event = work.known, work.sums, work.target_slopes, work.moved_slopes
    by_shard = work.negative_heights, work.negative_slopes
    said = [*(array[events] for array in by_event), *(array[shards] for array in by_shard)]
    return [batch.items[events].view(np.float32), *said]


def run_together(
    crew: Communicator, epoch: Epoch, own: Buffers, whole: Buffers, counts: Array, losses: Array
) -> None:
    """Take a step on each batch of an epoch, together with other processes.

    Args:
        crew: Connects the processes.
        epoch: The batches; the shards of other processes are empty.
        own: Buffers for the results of this process.
        whole: Buffers for the results of all processes.
        counts: Events of each process in each batch, (n_processes, n_batches).
        losses: Out: losses of the own shards, (n_batches, SHARDS) float64.
    """
    places, shares = len(own.negatives.heights), crew.shares
    shards = [slice(*shares[w : w + 2]) for w in range(crew.world_size)]
    n_batches = counts.shape[1]
    for number in range(n_batches):
        run_shards(epoch, *own, losses, number)
        ends = [0, *np.cumsum(counts[:, number]).tolist()]
        parts = [
            _item_gradients(whole, slice(*ends[w : w + 2]), shards[w])
            for w in range(crew.world_size)
        ]
        found = _item_gradients(own, slice(0, int(counts[crew.rank, number])), shards[crew.rank])
        for into, array in zip(parts[crew.rank], found, strict=True):
            into[:] = array
        crew.gather(parts)
        join(own.batch, whole.batch, ends[-1], places)
        move_batch(epoch, *whole, losses, number)
        crew.progress = Progress(number + 1, n_batches, "batches")
