"""Sizes of a log, and the defaults that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from transcf.kernels import Array


class CountedLog(Protocol):
    """A log in memory or in partitions."""

    @property
    def user_counts(self) -> Array:
        """(n_users,) events of each user."""

    @property
    def item_counts(self) -> Array:
        """(n_items,) events of each item."""


@dataclass(frozen=True, eq=False)
class LogSizes:
    """How many events there are of each user and each item; those without any do not count.

    Attributes:
        users: Events of each user, all above 0.
        items: Events of each item, all above 0.

    Example:
        >>> sizes = LogSizes(np.array([3, 1]), np.array([2, 1, 1]))
        >>> sizes.events, sizes.per_user, sizes.density
        (4, 2.0, 0.6666666666666666)
    """

    users: Array
    items: Array

    @classmethod
    def of(cls, log: CountedLog) -> LogSizes:
        """Count the events of a log."""
        return cls.of_counts(log.user_counts, log.item_counts)

    @classmethod
    def of_counts(cls, users: Array, items: Array) -> LogSizes:
        """Leave out users and items without events."""
        return cls(users[users > 0], items[items > 0])

    @property
    def events(self) -> int:
        """Number of events."""
        return int(self.users.sum())

    @property
    def per_user(self) -> float:
        """Mean number of events of a user."""
        return self.events / len(self.users)

    @property
    def density(self) -> float:
        """Share of all pairs of a user and an item that were observed."""
        return self.per_user / len(self.items)

    @property
    def item_of_event(self) -> float:
        """Events of the item of a mean event: the mean over items, weighted by their events."""
        return _mean_of_event(self.items)

    @property
    def item_skew(self) -> float:
        """The same over the events of a mean item; 1 if all items have as many."""
        return float(self.item_of_event / self.items.mean())

    @property
    def largest_singular_value(self) -> float:
        """Estimate for the matrix of events; exact where counts of users and items explain it."""
        return math.sqrt(_mean_of_event(self.users) * self.item_of_event)


class EpochRule(NamedTuple):
    """Epochs by default: the fewer events a user has, the more epochs.

    Attributes:
        least: Fewest epochs.
        per_user: Samples that a mean user should have in all epochs together.
        most: Most epochs.

    Example:
        >>> EpochRule(40, 2500, 500)(LogSizes(np.array([20, 30]), np.array([25, 25])))
        100
    """

    least: int
    per_user: int
    most: int

    def __call__(self, sizes: LogSizes) -> int:
        """Return the number of epochs for a log."""
        return min(self.most, max(self.least, round(self.per_user / sizes.per_user)))

    @property
    def meaning(self) -> str:
        """Describe the parameter `epochs`."""
        return (
            f"Most epochs to train; None takes {self.per_user:,} divided by the mean number of "
            f"events of a user, at least {self.least} and at most {self.most}."
        )


def _mean_of_event(counts: Array) -> float:
    """Return the mean over all events of the count of their user or item."""
    return float(np.square(counts, dtype=np.float64).sum() / counts.sum())
