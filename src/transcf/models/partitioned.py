"""Training from a `PartitionedLog`: workers read the events of their users themselves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from transcf.data.csr import Csr, Histories, offsets
from transcf.data.partitioned import PartitionedLog
from transcf.errors import UnsupportedError
from transcf.kernels import Array
from transcf.models.communicator import LazyShard
from transcf.models.event_weights import EVEN, InteractionWeights, WeightSettings, by_place
from transcf.models.fitted import TrainingData
from transcf.models.mixture.training import Events, MixtureSettings
from transcf.models.triples import Problem


@dataclass(frozen=True, kw_only=True)
class PartitionedProblem(Problem):
    """The number of interactions of each user and item; `by_user` has no items."""

    log: PartitionedLog
    recency: float  # how much more a user's later events count; 0 where all weigh the same

    @classmethod
    def of_log(cls, log: PartitionedLog, settings: WeightSettings) -> PartitionedProblem:
        """Take the counts of a log."""
        # Whether recency tells any two events of a user apart, as `InteractionWeights` would find.
        longest = int(log.user_counts.max())
        differs = log.timed and np.exp(settings.event_weights.recency * (1 / longest - 1)) < 1
        by_user = Csr(offsets(log.user_counts), np.empty(0, np.int32), log.n_items)
        recency = settings.event_weights.recency if differs else 0.0
        return cls(by_user, log.item_counts, log=log, recency=recency)

    def part(self, first: int, end: int) -> LazyShard:
        """Return a function that reads the users first..end-1."""
        return partial(_read_problem, self.log, first, end, self.recency)


def _read_problem(log: PartitionedLog, first: int, end: int, recency: float) -> Problem:
    """Read the interactions of some users, and weigh them where later ones count more."""
    weights: list[Array] = []
    for part in log.partitions(first, end) if recency else ():
        events = InteractionWeights(part, by_place(part, recency), between_users=False)
        weights.append(events.within_users)
    by_user = Csr(*log.item_lists(first, end), log.n_items)
    return Problem(by_user, log.item_counts, np.concatenate(weights) if weights else EVEN)


def read_training_data(log: PartitionedLog, settings: object) -> TrainingData:
    """Return what a fitted model keeps of a log, 8 bytes per event.

    Weights that compare events of different users, which no process has all of, are refused.
    """
    if isinstance(settings, WeightSettings):
        given = settings.event_weights
        asked = {
            "half_life": given.half_life is not None and log.timed,
            "confidence": given.confidence != "none",
            "trend": given.trend_by_hand > 0,
        }
        if wrong := [name for name, is_asked in asked.items() if is_asked]:
            raise UnsupportedError(
                f"{wrong[0]} compares events of different users, and no process holds all events "
                f"of a log in parts: leave {wrong[0]} out, or fit without a cluster."
            )
    indptr, seen = log.item_lists()
    _, in_order = log.item_lists(in_order=True)
    histories = Histories(indptr, in_order, log.n_items)
    return TrainingData(log.users, log.items, Csr(indptr, seen, log.n_items), histories, log.timed)


@dataclass(frozen=True, kw_only=True)
class PartitionedEvents(Events):
    """What the mixture learns from: the length of each user's history; `histories` has no items."""

    log: PartitionedLog

    @classmethod
    def of_log(cls, log: PartitionedLog, settings: MixtureSettings) -> PartitionedEvents:
        """Take the counts of a log."""
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

    def part(self, first: int, end: int) -> LazyShard:
        """Return a function that reads the users first..end-1."""
        return partial(_read_events, self.log, first, end)


def _read_events(log: PartitionedLog, first: int, end: int) -> Events:
    indptr, items = log.item_lists(first, end, in_order=True)
    histories = Histories(indptr, items, log.n_items)
    return Events(histories, np.ones(len(items), np.float32), log.item_counts, log.timed)
