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


def _said(memory: Buffers, events: slice, shards: slice) -> list[Array]:
    """Look at what some shards of a batch say of items, all as float32.

    Numbers of items travel as they are in memory.
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
        crew: Who works together.
        epoch: The batches, those of other processes' shards empty.
        own: Buffers for what this process works out.
        whole: Buffers for what everybody does.
        counts: Events of each process in each batch, (n_processes, n_batches).
        losses: Out: those of the own shards, (n_batches, SHARDS) float64.
    """
    places, shares = len(own.negatives.heights), crew.shares
    shards = [slice(*shares[w : w + 2]) for w in range(crew.size)]
    n_batches = counts.shape[1]
    for number in range(n_batches):
        run_shards(epoch, *own, losses, number)
        ends = [0, *np.cumsum(counts[:, number]).tolist()]
        parts = [_said(whole, slice(*ends[w : w + 2]), shards[w]) for w in range(crew.size)]
        found = _said(own, slice(0, int(counts[crew.number, number])), shards[crew.number])
        for into, array in zip(parts[crew.number], found, strict=True):
            into[:] = array
        crew.gather(parts)
        join(own.batch, whole.batch, ends[-1], places)
        move_batch(epoch, *whole, losses, number)
        crew.progress = Progress(number + 1, n_batches, "batches")
