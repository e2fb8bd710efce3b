"""Histories of a partitioned log: each process reads those of its own shards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transcf.data.histories import Histories
from transcf.data.partitioned.log import PartitionedLog, offsets, open_parts
from transcf.errors import UnsupportedError
from transcf.kernels import Array
from transcf.models.mixture.batches import Events
from transcf.models.mixture.settings import MixtureSettings


@dataclass(frozen=True, kw_only=True)
class PartedEvents(Events):
    """How long everybody's history is, and where it lies; `histories` has no items.

    Attributes:
        log: The log.
    """

    log: PartitionedLog

    @classmethod
    def of_log(cls, log: PartitionedLog, settings: MixtureSettings) -> PartedEvents:
        """Take the counts of a log.

        Raises:
            UnsupportedError: Events are to count differently, which goes by the mean of all.
        """
        if settings.event_weights.recency and log.timed:
            raise UnsupportedError(
                "recency weighs events by the mean of all in the mixture, and nobody holds all "
                "events of a log in parts: leave recency out, or fit without a cluster."
            )
        none = np.empty(0, np.int32)
        histories = Histories(offsets(log.user_counts), none, log.n_items)
        even = np.empty(0, np.float32)
        return cls(histories, even, log.item_counts, log.timed, log=log)

    @property
    def taught_weight(self) -> float:
        """How much targets count: all the same."""
        lengths = self.histories.counts
        return float(np.ones(int(lengths[lengths > 1].sum()), np.float32).sum())

    def part(self, first: int, end: int) -> StoredEvents:
        """Name the users first..end-1 for somebody who reads them."""
        return StoredEvents(self.log.folder, self.log.parts, first, end)


@dataclass(frozen=True)
class StoredEvents:
    """The users first..end-1 of a log in parts, for somebody who can read its folder.

    Attributes:
        folder: Where the log lies.
        parts: Which parts of its split.
        first: The first user.
        end: One after the last.
    """

    folder: Path
    parts: tuple[str, ...]
    first: int
    end: int

    def read(self) -> Events:
        """Read the histories, a partition at a time."""
        log = open_parts(self.folder).only(*self.parts)
        indptr, at = offsets(log.user_counts[self.first : self.end]), 0
        items: Array = np.empty(int(indptr[-1]), np.int32)
        for part in log.partitions(self.first, self.end):
            items[at : at + len(part)] = part.histories.items
            at += len(part)
        histories = Histories(indptr, items, log.n_items)
        return Events(histories, np.ones(len(items), np.float32), log.item_counts, log.timed)
