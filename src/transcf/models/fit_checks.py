"""Checks around a fit: free memory before it, and warnings about a poor result after it.

Settings with a method `room` estimate the memory of a fit. The estimate is a lower bound, so
nothing is refused that would have worked.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from transcf.errors import EvaluationError, FitWarning, OutOfMemoryError

if TYPE_CHECKING:
    from transcf.models.fitted import FittedScorer
    from transcf.models.training import TrainingRun

_MEMORY = Path("/proc/meminfo")
#: Memory limits of a container, cgroup versions 2 and 1.
_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
#: Vectors have collapsed where the median norm is below this, or below this share of the largest.
_SMALLEST_NORM, _SMALLEST_SHARE = 1e-3, 1e-2
#: Users that models without epochs are validated on.
_USERS = 1000


# -- memory ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryEstimate:
    """Least memory of a fit.

    Attributes:
        size: Bytes.
        what: What takes them, such as "dim=64".
        remedy: How to need less.
    """

    size: int
    what: str
    remedy: str = "lower dim"


@runtime_checkable
class EstimatesMemory(Protocol):
    """Settings that estimate the memory of a fit."""

    def room(self, users: int, items: int) -> MemoryEstimate:
        """Return the least memory for so many users and items."""


@contextmanager
def check_memory(name: str, settings: object, users: int, items: int) -> Iterator[None]:
    """Check free memory before a fit, and convert a `MemoryError` during it.

    Args: as for `check_free_memory`.

    Raises:
        OutOfMemoryError: There is too little memory.
    """
    check_free_memory(name, settings, users, items)
    try:
        yield
    except OutOfMemoryError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(
            f"{name} ran out of memory on {users:,} users and {items:,} items: use smaller "
            f"settings, or less data ({error})."
        ) from error


def check_free_memory(name: str, settings: object, users: int, items: int) -> None:
    """Raise an `OutOfMemoryError` if a fit cannot fit into the memory that is free.

    Args:
        name: Name of the model for the error.
        settings: Its settings; those without `room` are not checked.
        users: Number of users.
        items: Number of items.
    """
    if not isinstance(settings, EstimatesMemory):
        return
    needed, free = settings.room(users, items), free_memory()
    if free is not None and needed.size > free:
        raise OutOfMemoryError(
            f"{name} needs {_shown(needed.size)} of memory for {users:,} users and {items:,} items "
            f"with {needed.what}, and {_shown(free)} are free: {needed.remedy}."
        )


def vectors(count: int, dim: int) -> int:
    """Return the bytes of float32 vectors and of one copy of them."""
    return 2 * 4 * count * dim


def free_memory() -> int | None:
    """Return the bytes that are free for a process, or None if they are not known."""
    found = [limit for limit in map(_limit, _LIMITS) if limit is not None]
    try:
        available = re.search(r"MemAvailable:\s+(\d+) kB", _MEMORY.read_text())
    except OSError:
        available = None
    if available is not None:
        found.append(1024 * int(available[1]))
    elif hasattr(os, "sysconf"):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found, default=None)


def _limit(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # there is no such file, or it says "max"
        return None


def _shown(size: int) -> str:
    if size >= 2**60:
        return "more than an EiB"
    return f"{size / 2**30:,.0f} GiB" if size >= 2**30 else f"{size / 2**20:,.0f} MiB"


# -- results -----------------------------------------------------------------------------------


def warn_of_poor_fit(learned: FittedScorer, run: TrainingRun, stacklevel: int) -> None:
    """Warn of collapsed vectors, and of a model that ranks below popularity on validation data.

    Args:
        learned: The fitted scorer.
        run: The fit that it comes from.
        stacklevel: As for `warnings.warn`, counted from the caller.
    """
    for problem in (_collapse(learned), _below_popularity(learned, run)):
        if problem:
            warnings.warn(problem, FitWarning, stacklevel=stacklevel + 1)


def _collapse(learned: FittedScorer) -> str:
    known, attributes = learned.known, learned.attributes()
    sides = {"user": known.active, "item": known.item_counts > 0}
    for side, has_events in sides.items():
        vectors = attributes.get(f"{side}_vectors")
        if vectors is None:
            continue
        norms = np.linalg.norm(vectors[has_events], axis=1)
        median, largest = float(np.median(norms)), float(norms.max())
        if median < max(_SMALLEST_NORM, _SMALLEST_SHARE * largest):
            return (
                f"{learned.name}: the {side} vectors have collapsed (median norm {median:.2g}, "
                f"largest {largest:.2g}), so that rankings are arbitrary: lower regularization, or "
                "leave it at its default."
            )
    return ""


def _below_popularity(learned: FittedScorer, run: TrainingRun) -> str:
    if run.validation is None:
        return ""
    from transcf.data.interactions import Interactions
    from transcf.data.partitioned import PartitionedLog
    from transcf.evaluation.validation import Validation, as_validation
    from transcf.models.trend import trend_of
    from transcf.retrieval.scorer import BlockView

    if not isinstance(run.validation, Interactions | PartitionedLog | Validation):
        return ""  # models that do not validate take anything
    known = learned.known
    scores = known.item_counts.astype(np.float32)
    popularity = BlockView(
        "popularity", known.rankable, lambda users: np.tile(scores, (len(users), 1))
    )
    try:
        judge = run.judge or as_validation(run.log, run.validation, _USERS).sampled(_USERS)
        floor = judge(popularity)
        is_recorded = run.ending is not None and trend_of(learned) is None
        figure = run.best_metric if is_recorded else judge(learned)
    except EvaluationError:  # there are no users to evaluate
        return ""
    if figure is None or figure >= floor:
        return ""
    return (
        f"{learned.name} ranks below popularity on the validation data ({judge.metric} "
        f"{figure:.4f}, popularity {floor:.4f}): change its parameters, or use another model."
    )
