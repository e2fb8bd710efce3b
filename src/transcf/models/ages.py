"""How old events are, and how much that takes from them."""

from __future__ import annotations

import warnings
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.interactions import Interactions
from transcf.errors import ParameterError
from transcf.kernels import Array

AgeUnit: TypeAlias = Literal["auto", "days", "events"]

#: What a unit of age is, for documentation.
UNITS = (
    '"days" (integer times count as seconds since 1970); "events", the share of the log\'s events '
    'that came later; "auto" takes days where times are dates, else events'
)
_DAY = 86_400  # seconds
_MICROSECONDS = 1_000_000
#: The newest event may be so many times as far from the rest as the rest is long.
_FARTHEST = 10
#: Fewer events than this have no first and last hundredth.
_FEWEST = 100


def counts_in_days(log: Interactions, unit: AgeUnit) -> bool:
    """Whether ages of a log's events are in days; else they are shares of its events."""
    return unit == "days" or (unit == "auto" and log.times_are_dates)


def by_age(log: Interactions, half_life: float, unit: AgeUnit = "auto") -> Array:
    """Weights of events that halve with every half-life, the newest having 1: (n_events,) float64.

    Args:
        log: Events; without timestamps all weigh the same.
        half_life: Age at which an event counts half, in days or as a share of the log's events.
        unit: Which of the two.

    Raises:
        ParameterError: A half-life of more than all events; days were meant.

    Example:
        >>> from transcf import synthesize
        >>> float(by_age(synthesize(), half_life=0.1).max())
        1.0
    """
    times = log.timestamps
    if times is None:
        return np.ones(len(log))
    if counts_in_days(log, unit):
        second = _MICROSECONDS if log.times_are_dates else 1
        _warn_of_late_events(times, _DAY * second)
        # Unsigned: a difference of two int64 may be larger than the largest int64.
        behind = (times.max() - times).view(np.uint64) if len(times) else np.zeros(0)
        ages = behind / (_DAY * second)
    else:
        if half_life > 1:
            raise ParameterError(
                f"half_life={half_life:g} counts in shares of the log's events here, as its times "
                'are no dates: give a share such as 0.1, or say age_in="days".'
            )
        _, place, events = np.unique(times, return_inverse=True, return_counts=True)
        ages = 1 - np.cumsum(events)[place] / max(1, len(times))
    with np.errstate(over="ignore"):  # infinitely old: a weight of 0
        weights: Array = np.exp2(-ages / half_life)
    # What is too old to count at all would leave users whose weights have no mean.
    return np.maximum(weights, np.finfo(np.float32).tiny)


def _warn_of_late_events(times: npt.NDArray[Any], day: int) -> None:
    """Warn if one wrong date makes everything else look old: days count from the newest event."""
    if len(times) < _FEWEST:
        return
    low, high = map(int, np.percentile(times, (1, 99), method="nearest"))
    beyond = (int(times.max()) - high) / day
    if beyond > _FARTHEST * (high - low) / day:
        warnings.warn(
            f"The newest event is {beyond:,.0f} days later than 99 % of the events, which are "
            f"within {(high - low) / day:,.0f} days; ages count from it, so that a wrong date "
            'makes all others look old: leave it out, or say age_in="events".',
            stacklevel=2,
        )
