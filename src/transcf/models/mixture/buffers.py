"""Buffers that the batches of the mixture share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from transcf.kernels import Array, aligned_zeros
from transcf.kernels.mixture import CHUNK, Negatives, Workspace
from transcf.kernels.mixture_batches import NO_SLOT, SHARDS, Batch
from transcf.kernels.rows import padded_width


class Buffers(NamedTuple):
    """Buffers for the largest batch so far."""

    batch: Batch
    negatives: Negatives
    work: Workspace

    @classmethod
    def of(cls, events: int, drawn: int, n_items: int, width: int) -> Buffers:
        """Allocate buffers.

        Args:
            events: Of the largest batch.
            drawn: Negatives of a batch.
            n_items: Items in all.
            width: Numbers of a padded row.
        """
        places = padded_width(drawn)
        negatives = Negatives(_zeros(places, width), _zeros(places))
        touched = places + min(events, n_items)
        return cls(_batch(events, touched, n_items), negatives, _work(events, places, width))

    def for_events(self, events: int) -> Buffers:
        """Return buffers for a batch: these, or larger empty ones."""
        if events <= len(self.batch.items):
            return self
        drawn, width = self.negatives.vectors.shape
        return self.of(events, drawn, len(self.batch.place_of), width)


def _zeros(*shape: int) -> Array:
    return aligned_zeros(shape, np.float32)


def _batch(events: int, touched: int, n_items: int) -> Batch:
    return Batch(
        users=np.zeros(events, np.int32),
        starts=np.zeros(events + 1, np.int64),
        shards=np.zeros(SHARDS + 1, np.int64),
        items=np.zeros(events, np.int32),
        weights=np.zeros(events, np.float32),
        places=np.zeros(events, np.int32),
        touched=np.zeros(touched, np.int32),
        size=np.zeros(1, np.int64),
        firsts=np.zeros(touched + 1, np.int64),
        order=np.zeros(events, np.int32),
        place_of=np.full(n_items, NO_SLOT, np.int32),
    )


def _work(events: int, places: int, width: int) -> Workspace:
    return Workspace(
        moved=_zeros(events, width),
        offsets=_zeros(events),
        targets=_zeros(events, width),
        item_offsets=_zeros(events),
        tile=_zeros(events * places),
        pairs=_zeros(events * CHUNK),
        sums=_zeros(events),
        shares=_zeros(events),
        known=_zeros(events),
        rest=_zeros(events),
        others=_zeros(events),
        moved_slopes=_zeros(events, width),
        target_slopes=_zeros(events, width),
        scaled=_zeros(events, width),
        negative_slopes=_zeros(SHARDS, places, width),
        negative_offset_slopes=_zeros(SHARDS, places),
    )
