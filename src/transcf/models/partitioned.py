"""Training from a `PartitionedLog`: the driver holds ids and counts, workers read their users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from transcf.data.csr import Csr
from transcf.data.histories import Histories
from transcf.data.partitioned.log import PartitionedLog, offsets, open_parts
from transcf.errors import UnsupportedError
from transcf.kernels import Array
from transcf.models.event_weights import EVEN, InteractionWeights, WeightSettings, by_place
from transcf.models.training_data import TrainingData
from transcf.models.triples import Problem


@dataclass(frozen=True)
class StoredShard:
    """The users first..end-1 of a partitioned log, as a `LazyShard`.

    Attributes:
        folder: Folder of the log.
        parts: Parts of its split.
        first: First user.
        end: One after the last user.
        build: Reads what a solver learns from, given the log, `first` and `end`.
    """

    folder: Path
    parts: tuple[str, ...]
    first: int
    end: int
    build: Callable[[PartitionedLog, int, int], Any]

    def read(self) -> Any:
        """Return what a solver learns from."""
        return self.build(open_parts(self.folder).only(*self.parts), self.first, self.end)


@dataclass(frozen=True, kw_only=True)
class PartitionedProblem(Problem):
    """The number of interactions of each user and item; `user_indices` is empty.

    Attributes:
        log: The log.
        recency: How much more a user's later events count; 0 where all weigh the same.
    """

    log: PartitionedLog
    recency: float

    @classmethod
    def of_log(cls, log: PartitionedLog, settings: WeightSettings) -> PartitionedProblem:
        """Take the counts of a log.

        Raises:
            UnsupportedError: The settings compare events of different users.
        """
        check_weights(log, settings)
        # Whether recency tells any two events of a user apart, as `InteractionWeights` would find.
        longest = int(log.user_counts.max())
        differs = log.timed and np.exp(settings.event_weights.recency * (1 / longest - 1)) < 1
        none = np.empty(0, np.int32)
        return cls(
            user_indptr=offsets(log.user_counts),
            user_indices=none,
            item_indptr=offsets(log.item_counts),
            item_indices=none,
            log=log,
            recency=settings.event_weights.recency if differs else 0.0,
        )

    def part(self, first: int, end: int) -> StoredShard:
        """Return the users first..end-1 for a process that reads them."""
        build = partial(_read_problem, recency=self.recency)
        return StoredShard(self.log.folder, self.log.parts, first, end, build)


def _read_problem(log: PartitionedLog, first: int, end: int, recency: float) -> Problem:
    """Read the interactions of some users, and weigh them where later ones count more."""
    weights: list[Array] = []
    for part in log.partitions(first, end) if recency else ():
        events = InteractionWeights(part, by_place(part, recency), between_users=False)
        weights.append(events.within_users)
    indptr, items = log.item_lists(first, end)
    return Problem(
        user_indptr=indptr,
        user_indices=items,
        item_indptr=offsets(log.item_counts),
        item_indices=np.empty(0, np.int32),  # training in rounds does not use it
        weights=np.concatenate(weights) if weights else EVEN,
    )


def check_weights(log: PartitionedLog, settings: object) -> None:
    """Refuse settings that compare events of different users, which no process has all of."""
    if not isinstance(settings, WeightSettings):
        return
    given = settings.event_weights
    asked = {
        "half_life": given.half_life is not None and log.timed,
        "confidence": given.confidence != "none",
        "trend": given.trend_by_hand > 0,
    }
    wrong = next((name for name, is_asked in asked.items() if is_asked), None)
    if wrong is not None:
        raise UnsupportedError(
            f"{wrong} compares events of different users, and no process holds all events of a log "
            f"in parts: leave {wrong} out, or fit without a cluster."
        )


class PartitionedTrainingData(TrainingData):
    """Ids and counts of a partitioned log; events are read when they are first used.

    During training, models that score by vectors alone need no more than these.

    Args:
        log: The log.
    """

    def __init__(self, log: PartitionedLog) -> None:
        self.__dict__.update(users=log.users, items=log.items, timed=log.timed, _log=log)
        self.__dict__.update(item_counts=log.item_counts, active=log.user_counts > 0)

    def loaded(self) -> TrainingData:
        """Return the same with all events in memory, as a fitted model keeps it."""
        return TrainingData(self.users, self.items, self.seen, self.histories, self.timed)

    @cached_property
    def seen(self) -> Csr:
        """Items of each user in training, as a set."""
        log: PartitionedLog = self.__dict__["_log"]
        return Csr(*log.item_lists(), log.n_items)

    @cached_property
    def histories(self) -> Histories:
        """The same in the order of their events."""
        log: PartitionedLog = self.__dict__["_log"]
        return Histories(*log.item_lists(in_order=True), log.n_items)

    def facts(self) -> dict[str, Any]:
        """Sizes for reports."""
        return {
            "users": int(np.count_nonzero(self.active)),
            "items": int(np.count_nonzero(self.item_counts)),
            "interactions": int(self.item_counts.sum()),
        }
