"""Leaving out users and items with too few events, while users lie in several places.

Users are counted where they are; the events of items are added up over all partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from transcf.data.filters import nothing_left
from transcf.data.interactions import Mask
from transcf.data.partitioned.executor import Run
from transcf.data.partitioned.manifest import Counts
from transcf.data.partitioned.partitions import Share, tally
from transcf.data.report import Report


@dataclass(frozen=True)
class Remaining:
    """Who and what is left.

    Attributes:
        users: Which users, partition by partition.
        items: Which items, (n_items,).
        counts: Events of each item with users who are left, (n_items,).
    """

    users: tuple[Mask, ...]
    items: Mask
    counts: Counts

    @classmethod
    def of(cls, users: Iterable[Counts], items: Counts) -> Remaining:
        """Begin with all that have events."""
        return cls(tuple(counts > 0 for counts in users), items > 0, items)

    @property
    def n_users(self) -> int:
        """Users that are left."""
        return sum(int(np.count_nonzero(users)) for users in self.users)

    @property
    def n_items(self) -> int:
        """Items that are left."""
        return int(np.count_nonzero(self.items))

    @property
    def n_events(self) -> int:
        """Events that are left."""
        return int(self.counts[self.items].sum())

    def is_as(self, other: Remaining) -> bool:
        """Whether the same users and items are left."""
        pairs = zip(self.users, other.users, strict=True)
        same_users = all(np.array_equal(one, another) for one, another in pairs)
        return same_users and np.array_equal(self.items, other.items)


def by_k_core(
    run: Run, shares: Sequence[Share], least: int, left: Remaining, report: Report
) -> tuple[Remaining, Report]:
    """Leave out by rounds until everybody has enough, as `k_core` does."""
    before, rounds, changed = left, -1, True
    while changed:
        rounds += 1
        fewer = _enough(run, shares, left, least, least)
        changed = not fewer.is_as(left)
        left = fewer
    settings = {"rounds": rounds, "least_users": least, "least_items": least}
    return left, _noted(report, "k-core", before, left, settings)


def by_paper(
    run: Run, shares: Sequence[Share], left: Remaining, report: Report
) -> tuple[Remaining, Report]:
    """Filter in one pass, as `paper_filter` does."""
    fewer = _enough(run, shares, _enough(run, shares, left, 5, 5), 3, 1)
    return fewer, _noted(report, "paper filter", left, fewer, {})


def _enough(
    run: Run, shares: Sequence[Share], left: Remaining, least_users: int, least_items: int
) -> Remaining:
    """Leave out users with too few events, and then items with too few of those who stay."""
    tasks = [
        (share, users, left.items, least_users)
        for share, users in zip(shares, left.users, strict=True)
    ]
    users, counts = list[Mask](), np.zeros_like(left.counts)
    for enough, of_items in run("counting", tally, tasks):
        users.append(enough)
        counts += of_items
    return replace(
        left, users=tuple(users), items=left.items & (counts >= least_items), counts=counts
    )


def _noted(
    report: Report, step: str, before: Remaining, after: Remaining, settings: dict[str, int]
) -> Report:
    """Write down how many were left out."""
    if not after.n_events:
        raise nothing_left(step, before.n_events)
    return report.then(
        step,
        **settings,
        users=before.n_users - after.n_users,
        items=before.n_items - after.n_items,
        interactions=before.n_events - after.n_events,
    )
