"""Histories of a partitioned log: each process reads those of its own shards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transcf.data.histories import Histories
from transcf.data.partitioned.log import PartitionedLog, offsets
from transcf.errors import UnsupportedError
from transcf.models.mixture.batches import Events
from transcf.models.mixture.settings import MixtureSettings
from transcf.models.partitioned import StoredShard


@dataclass(frozen=True, kw_only=True)
class PartitionedEvents(Events):
    """The length of each user's history; `histories` has no items.

    Attributes:
        log: The log.
    """

    log: PartitionedLog

    @classmethod
    def of_log(cls, log: PartitionedLog, settings: MixtureSettings) -> PartitionedEvents:
        """Take the counts of a log.

        Raises:
            UnsupportedError: Events have different weights, which depend on the mean of all.
        """
        if settings.event_weights.recency and log.timed:
            raise UnsupportedError(
                "recency weighs events by the mean of all in the mixture, and no process holds all "
                "events of a log in parts: leave recency out, or fit without a cluster."
            )
        histories = Histories(offsets(log.user_counts), np.empty(0, np.int32), log.n_items)
        return cls(histories, np.empty(0, np.float32), log.item_counts, log.timed, log=log)

    @property
    def taught_weight(self) -> float:
        """Sum of the weights of all targets, each of which is 1."""
        lengths = self.histories.counts
        return float(np.ones(int(lengths[lengths > 1].sum()), np.float32).sum())

    def part(self, first: int, end: int) -> StoredShard:
        """Return the users first..end-1 for a process that reads them."""
        return StoredShard(self.log.folder, self.log.parts, first, end, _read_events)


def _read_events(log: PartitionedLog, first: int, end: int) -> Events:
    indptr, items = log.item_lists(first, end, in_order=True)
    histories = Histories(indptr, items, log.n_items)
    return Events(histories, np.ones(len(items), np.float32), log.item_counts, log.timed)
