"""Triples of a log in parts: whoever trains in rounds reads the interactions of its own users."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transcf.data.partitioned.log import PartitionedLog, offsets, open_parts
from transcf.errors import UnsupportedError
from transcf.kernels import Array
from transcf.models.event_weights import EVEN, InteractionWeights, WeightSettings, by_place
from transcf.models.triples import Problem


@dataclass(frozen=True, kw_only=True)
class PartitionedProblem(Problem):
    """How many interactions everybody has, and where they lie; `user_indices` is empty.

    Attributes:
        log: The log.
        recency: How much more a user's later events count; 0 where all weigh the same.
    """

    log: PartitionedLog
    recency: float

    @classmethod
    def of_log(cls, log: PartitionedLog, settings: WeightSettings) -> PartitionedProblem:
        """Take the counts of a log; weights of events come from settings.

        Raises:
            UnsupportedError: Weights are asked for that compare events of different users.
        """
        check_weights(log, settings)
        recency = settings.event_weights.recency
        return cls(
            user_indptr=offsets(log.user_counts),
            user_indices=np.empty(0, np.int32),
            item_indptr=offsets(log.item_counts),
            item_indices=np.empty(0, np.int32),
            log=log,
            recency=recency if log.timed and _differ(log, recency) else 0.0,
        )

    def part(self, first: int, end: int) -> StoredProblem:
        """Name the users first..end-1 for somebody who reads them."""
        return StoredProblem(self.log.folder, self.log.parts, first, end, self.recency)


@dataclass(frozen=True)
class StoredProblem:
    """The users first..end-1 of a log in parts, for somebody who can read its folder.

    Attributes:
        folder: Where the log lies.
        parts: Which parts of its split.
        first: The first user.
        end: One after the last.
        recency: As for `PartitionedProblem`.
    """

    folder: Path
    parts: tuple[str, ...]
    first: int
    end: int
    recency: float

    def read(self) -> Problem:
        """Read the interactions, a partition at a time."""
        log = open_parts(self.folder).only(*self.parts)
        indptr, at = offsets(log.user_counts[self.first : self.end]), 0
        items: Array = np.empty(int(indptr[-1]), np.int32)
        weights: Array = np.empty(len(items) if self.recency else 0, np.float32)
        for part in log.partitions(self.first, self.end):
            some = slice(at, at + len(part))
            items[some] = part.item_rows
            if self.recency:
                raw = by_place(part, self.recency)
                weights[some] = InteractionWeights(part, raw, between_users=False).within_users
            at = some.stop
        return Problem(
            user_indptr=indptr,
            user_indices=items,
            item_indptr=offsets(log.item_counts),
            item_indices=np.empty(0, np.int32),  # nobody who trains in rounds looks at it
            weights=weights if self.recency else EVEN,
        )


def check_weights(log: PartitionedLog, settings: object) -> None:
    """Refuse settings that compare events of different users: nobody sees all of them."""
    if not isinstance(settings, WeightSettings):
        return
    given = settings.event_weights
    asked = {
        "half_life": given.half_life is not None and log.timed,
        "confidence": given.confidence != "none",
        "trend": given.trend > 0,
    }
    wrong = next((name for name, is_asked in asked.items() if is_asked), None)
    if wrong is not None:
        raise UnsupportedError(
            f"{wrong} compares events of different users, and nobody holds all events of a log in "
            f"parts: leave {wrong} out, or fit without a cluster."
        )


def _differ(log: PartitionedLog, recency: float) -> bool:
    """Whether recency tells any two events of a user apart, like `InteractionWeights`."""
    longest = int(log.user_counts.max())
    return bool(np.exp(recency * (1 / longest - 1)) < 1)
