"""Batches of the mixture of which every process has some shards.

A process has the users of its shards, and all items. It works its shards of a batch out, sends what
they say of items to everybody, and moves all items by what everybody says, added up in the order of
the shards: so items are the same everywhere, to the bit that one process would have.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from transcf.kernels import Array
from transcf.kernels.mixture_batches import join
from transcf.kernels.mixture_epochs import Epoch, move_batch, run_shards
from transcf.learning.crew import Crew, Progress
from transcf.models.transcf.mixture.memory import Memory


class _Said(NamedTuple):
    """What shards say of items: views of a memory, or of a message that holds one after the other.

    Attributes:
        items: Of the events, (n_events,) int32.
        known: (n_events,); this and the following as in `kernels.mixture.Work`.
        sums: (n_events,).
        target_slopes: (n_events, width).
        moved_slopes: (n_events, width).
        negative_heights: (n_shards, n_places).
        negative_slopes: (n_shards, n_places, width).
    """

    items: Array
    known: Array
    sums: Array
    target_slopes: Array
    moved_slopes: Array
    negative_heights: Array
    negative_slopes: Array

    @classmethod
    def within(cls, memory: Memory, events: slice, shards: slice) -> _Said:
        """Look at some events and shards of a batch."""
        batch, work = memory.batch, memory.work
        by_event = batch.items, work.known, work.sums, work.target_slopes, work.moved_slopes
        by_shard = work.negative_heights, work.negative_slopes
        return cls(*(a[events] for a in by_event), *(a[shards] for a in by_shard))

    def packed(self) -> Array:
        """Return a message, (n,) float32; numbers of items travel as they are in memory."""
        return np.concatenate([array.reshape(-1).view(np.float32) for array in self])

    def unpack(self, message: Array) -> None:
        """Take over what `packed` made of arrays of the same shapes."""
        at = 0
        for array in self:
            flat = array.reshape(-1).view(np.float32)
            flat[:] = message[at : at + len(flat)]
            at += len(flat)


def run_together(
    crew: Crew, epoch: Epoch, own: Memory, whole: Memory, counts: Array, losses: Array
) -> None:
    """Take a step on each batch of an epoch, together with other processes.

    Args:
        crew: Who works together.
        epoch: The batches, those of other processes' shards empty.
        own: Memory for what this process works out.
        whole: Memory for what everybody does.
        counts: Events of each process in each batch, (n_processes, n_batches).
        losses: Out: those of the own shards, (n_batches, SHARDS) float64.
    """
    places, shares = len(own.negatives.heights), crew.shares
    shards = [slice(*shares[w : w + 2]) for w in range(crew.size)]
    n_batches = counts.shape[1]
    for number in range(n_batches):
        run_shards(epoch, *own, losses, number)
        ends = [0, *np.cumsum(counts[:, number]).tolist()]
        said = _Said.within(own, slice(0, int(counts[crew.number, number])), shards[crew.number])
        for w, message in enumerate(crew.from_all(said.packed())):
            _Said.within(whole, slice(*ends[w : w + 2]), shards[w]).unpack(message)
        join(own.batch, whole.batch, ends[-1], places)
        move_batch(epoch, *whole, losses, number)
        crew.progress = Progress(number + 1, n_batches, "batches")
