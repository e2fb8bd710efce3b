"""Parameters that several models share, defaults that depend on the sizes of a log, and memory.

The method `memory_estimate` of settings estimates the memory of a fit. The estimate is a lower
bound, so nothing is refused that would have worked.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np

from transcf.errors import OutOfMemoryError, shown
from transcf.kernels import Array
from transcf.models.event_weights import WeightSettings
from transcf.models.params import setting, settings

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.data.partitioned import PartitionedLog
    from transcf.data.training_data import TrainingData

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
#: Most samples of a user and epoch.
MOST_SAMPLES = 1_000_000


# -- defaults that depend on the data ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LogSizes:
    """Numbers of events of the users and items that have any."""

    users: Array  # events of each user, all above 0
    items: Array  # events of each item, all above 0

    @classmethod
    def of(cls, log: Interactions | PartitionedLog | TrainingData) -> LogSizes:
        """Count the events of a log, or of what a model keeps of it."""
        users, items = log.user_counts, log.item_counts
        return cls(users[users > 0], items[items > 0])

    @property
    def per_user(self) -> float:
        """Mean number of events of a user."""
        return int(self.users.sum()) / len(self.users)

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


def _mean_of_event(counts: Array) -> float:
    """Return the mean over all events of the count of their user or item."""
    return float(np.square(counts, dtype=np.float64).sum() / counts.sum())


class EpochRule(NamedTuple):
    """Epochs by default, so that a mean user has `per_user` samples in all epochs together."""

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


# -- families -----------------------------------------------------------------------------------


@settings()
class IterationSettings:
    """Parameters of models that are trained epoch by epoch."""

    #: The default of `epochs`, where it depends on the log.
    _epoch_rule: ClassVar[EpochRule | None] = None
    #: Parameters that may differ between a run and its resumption.
    _resumable: ClassVar[tuple[str, ...]] = ("epochs", "patience")
    epochs: int = setting(30, "Most epochs to train.", low=1)
    validate_every: int | None = setting(
        None, "Epochs between validations; None validates about ten times.", low=1
    )
    validation_users: int | None = setting(
        1000,
        "Users that a validation in full ranking looks at, always the same ones; None looks at "
        "all. Figures that are reported always look at all.",
        low=1,
    )
    patience: int | None = setting(
        None, "Validations without a new best before stopping; None never stops early.", low=1
    )
    random_state: int = setting(
        0,
        "Seed; the same seed gives the same bits for any number of threads.",
        low=0,
        high=2**63 - 1,
    )

    def for_log(self, sizes: LogSizes) -> Self:
        """Return the settings with the defaults that depend on the data."""
        rule = self._epoch_rule
        return self if rule is None or self.epochs else replace(self, epochs=rule(sizes))


@settings()
class FactorSettings:
    """Parameters of models that learn vectors of users and items by gradient descent."""

    dim: int = setting(64, "Length of the vectors.", low=1, high=4096)
    learning_rate: float = setting(0.05, "Step size.", above=0)
    init_scale: float = setting(0.1, "Standard deviation of the first vectors.", above=0, high=100)

    def memory_estimate(self, users: int, items: int) -> MemoryEstimate:
        """Return the least memory of the vectors."""
        return MemoryEstimate(vectors(users + items, self.dim), f"dim={self.dim}")

    def divergence_hint(self, usual: str) -> str:
        """Return which parameters to lower when training diverges: `init_scale` if it is large."""
        default = type(self).init_scale
        if self.init_scale <= default:
            return usual
        return f"init_scale ({self.init_scale:g}, by default {default:g}) or {usual}"


@settings()
class TripleSettings(FactorSettings, IterationSettings, WeightSettings):
    """Parameters of models that learn from triples: a user, a positive and a negative item."""

    # The decay of the learning rate depends on the number of epochs.
    _resumable: ClassVar[tuple[str, ...]] = ("patience",)
    samples_per_user: int | None = setting(
        None,
        "Triples per user and epoch; None draws as many as the user has items.",
        low=1,
        high=MOST_SAMPLES,
    )
    decay: Literal["linear", "none"] = setting(
        "linear", '"linear" lowers the learning rate evenly over the epochs, "none" keeps it.'
    )

    def rate_at(self, epoch: float) -> float:
        """Return the learning rate of an epoch, counted from 1; linear decay ends at 0."""
        if self.decay == "none":
            return self.learning_rate
        return self.learning_rate * max(0.0, 1 - (epoch - 1) / self.epochs)


@settings(epochs=16)
class LeastSquaresSettings(IterationSettings, WeightSettings):
    """Parameters of models that learn vectors by alternating least squares."""

    dim: int = setting(64, "Length of the vectors.", low=1)

    def memory_estimate(self, users: int, items: int) -> MemoryEstimate:
        """Return the least memory of the vectors and the parts of a Gram matrix."""
        from transcf.models.alternation import GRAM_PARTS

        grams = (GRAM_PARTS + 2) * 4 * self.dim**2
        return MemoryEstimate(vectors(users + items, self.dim) + grams, f"dim={shown(self.dim)}")


@settings()
class NeuralSettings(FactorSettings, IterationSettings, WeightSettings):
    """Parameters of models that are trained with torch, by Adam."""

    device: Device = setting(
        "auto",
        'Where to train: "auto" takes CUDA where there is some. A CPU trains on one thread, so '
        "that the same seed gives the same bits.",
    )


# -- memory -----------------------------------------------------------------------------------


_MEMORY = Path("/proc/meminfo")
#: Memory limits of a container, cgroup versions 2 and 1.
_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@dataclass(frozen=True)
class MemoryEstimate:
    """Least memory of a fit."""

    size: int  # bytes
    what: str  # the parameter that takes it, such as "dim=64"
    remedy: str = "lower dim"  # how to need less


@contextmanager
def check_memory(name: str, settings: Any, users: int, items: int) -> Iterator[None]:
    """Check free memory before a fit, and convert a `MemoryError` during it."""
    estimate = getattr(settings, "memory_estimate", None)
    needed = None if estimate is None else estimate(users, items)
    free = free_memory()
    sizes = f"{users:,} users and {items:,} items"
    if needed is not None and free is not None and needed.size > free:
        raise OutOfMemoryError(
            f"{name} needs {_shown(needed.size)} of memory for {sizes} with {needed.what}, and "
            f"{_shown(free)} are free: {needed.remedy}."
        )
    try:
        yield
    except OutOfMemoryError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(
            f"{name} ran out of memory on {sizes}: use smaller settings, or less data ({error})."
        ) from error


def vectors(count: int, dim: int) -> int:
    """Return the bytes of float32 vectors and of one copy of them."""
    return 2 * 4 * count * dim


def free_memory() -> int | None:
    """Return the bytes that are free for a process, or None if they are not known."""
    found = [limit for path in _LIMITS if (limit := _number(path, r"^(\d+)")) is not None]
    available = _number(_MEMORY, r"MemAvailable:\s+(\d+) kB")
    if available is not None:
        found.append(1024 * available)
    elif hasattr(os, "sysconf"):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found, default=None)


def _number(path: Path, pattern: str) -> int | None:
    """Return the number in a file; None if there is no such file, or it says "max"."""
    try:
        found = re.search(pattern, path.read_text())
    except OSError:
        return None
    return None if found is None else int(found[1])


def _shown(size: int) -> str:
    if size >= 2**60:
        return "more than an EiB"
    return f"{size / 2**30:,.0f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"
