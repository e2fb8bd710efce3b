"""Weights of events: by position in the history, by age and by rating.

`EventWeights` has the parameters, one object for all models; `InteractionWeights` the weights of a
log. How a model uses the weights is part of the model.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from transcf.data.csr import Histories
from transcf.data.interactions import Interactions
from transcf.errors import DataError, ParameterError
from transcf.kernels import Array
from transcf.models.params import Number, setting, settings

AgeUnit: TypeAlias = Literal["auto", "days", "events"]

#: Units of ages, for documentation.
UNITS = (
    '"days" (integer times count as seconds since 1970); "events", the share of the log\'s events '
    'that came later; "auto" takes days where times are dates, else events'
)
_DAY = 86_400  # seconds
_MICROSECONDS = 1_000_000
#: The newest event may be this many times the span of the others away from them.
_FARTHEST = 10
#: Fewest events with a first and last percentile.
_FEWEST = 100


def counts_in_days(log: Interactions, unit: AgeUnit) -> bool:
    """Whether ages are in days; else they are shares of the log's events."""
    return unit == "days" or (unit == "auto" and log.times_are_dates)


def by_age(log: Interactions, half_life: float, unit: AgeUnit = "auto") -> Array:
    """Return weights that halve with every half-life, 1 for the newest event: (n_events,) float64.

    Without timestamps all are 1. A half-life above 1 that is no number of days raises.
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
        ages = 1 - events_until(times) / max(1, len(times))
    with np.errstate(over="ignore"):  # infinitely old: a weight of 0
        weights: Array = np.exp2(-ages / half_life)
    # A weight of 0 would leave users without a mean weight.
    return np.maximum(weights, np.finfo(np.float32).tiny)


def events_until(times: npt.NDArray[Any]) -> Array:
    """Return the number of events that are not later than each event: (n_events,)."""
    _, place, events = np.unique(times, return_inverse=True, return_counts=True)
    return np.cumsum(events)[place]


def _warn_of_late_events(times: npt.NDArray[Any], day: int) -> None:
    """Warn if one wrong date makes all other events look old."""
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


#: Empty weights: all events count the same.
EVEN: Array = np.empty(0, np.float32)


@settings()
class EventWeights:
    """How much each event counts in training, and how much recent popularity adds to scores.

    Example:
        >>> from transcf import BPR
        >>> BPR(event_weights=EventWeights(half_life=90, age_in="days")).event_weights
        EventWeights(half_life=90, age_in='days')
    """

    recency: float = setting(
        default=0.0,
        meaning="How much more a user's later events count: an event at the share p of the user's "
        "history (1 is the latest) has the weight exp(recency * (p - 1)). Without timestamps all "
        "weigh the same.",
        low=0,
        high=50,
    )
    half_life: float | None = setting(
        default=None,
        meaning="Age at which an event of any user counts half, in days or as a share of the log's "
        "events (`age_in`). None counts all ages alike, and so does a log without timestamps.",
        above=0,
    )
    confidence: Literal["none", "ratings", "log-ratings"] = setting(
        default="none",
        meaning="Weight by rating (or count): none, in proportion to the rating "
        '("ratings") or to the logarithm of 1 + rating ("log-ratings"). All ratings must be '
        "above 0.",
    )
    trend: float | Literal["auto"] | None = setting(
        default="auto",
        meaning="How much recent popularity adds to scores: 1 as much as the model itself. It "
        'needs timestamps. "auto" chooses strength and half-life on validation data, and adds '
        "nothing where they gain nothing or are not given; 0 or None adds nothing.",
        rule=Number(low=0, high=1000, optional=True, words=("auto",)),
    )
    trend_half_life: float | None = setting(
        default=None,
        meaning="Age at which an event counts half for a trend that is set by a number, in days or "
        "as a share of the log's events (`age_in`); None takes 30 days, or 5 % of the events.",
        above=0,
    )
    age_in: AgeUnit = setting(default="auto", meaning=f"Unit of half-lives: {UNITS}.")

    def __repr__(self) -> str:
        """Show the fields that differ from their defaults."""
        values = ((f.name, repr(getattr(self, f.name)), repr(f.default)) for f in fields(self))
        shown = (f"{name}={value}" for name, value, default in values if value != default)
        return f"EventWeights({', '.join(shown)})"

    @property
    def trend_by_hand(self) -> float:
        """The trend that is set by a number; 0 if there is none, or it is chosen by `fit`."""
        return 0.0 if self.trend is None or self.trend == "auto" else float(self.trend)


@settings()
class WeightSettings:
    """The parameter of all models that weigh events."""

    event_weights: EventWeights = setting(
        default=EventWeights(), meaning="How much each event counts, see `transcf.EventWeights`."
    )


@dataclass(frozen=True, eq=False)
class InteractionWeights:
    """Weights of the events of a log, in the order of `log.by_user`; empty if all are equal."""

    log: Interactions
    raw: Array  # (n_events,) float64
    between_users: bool  # whether events of different users have different weights, too

    @classmethod
    def of(cls, log: Interactions, given: EventWeights) -> InteractionWeights:
        """Compute the weights of a log."""
        factors = []
        if log.timestamps is not None and given.recency > 0:
            factors.append(by_place(log, given.recency))
        between = log.timestamps is not None and given.half_life is not None
        if between:
            factors.append(by_age(log, float(given.half_life or 0), given.age_in))
        if given.confidence != "none":
            factors.append(_by_rating(log, given.confidence))
            between = True
        raw = np.prod(factors, axis=0) if factors else np.empty(0)
        # Equal weights are the same as none, to the bit.
        return cls(log, raw if len(raw) and np.ptp(raw) > 0 else np.empty(0), between)

    @property
    def is_even(self) -> bool:
        """Whether all weights are equal."""
        return not len(self.raw)

    @cached_property
    def overall(self) -> Array:
        """(n_events,) float32, 1 on average over the log."""
        return EVEN if self.is_even else (self.raw / self.raw.mean()).astype(np.float32)

    @cached_property
    def of_item_entries(self) -> Array:
        """`overall` in the order of `log.by_item`."""
        if self.is_even:
            return EVEN
        matrix = self.log.by_user.to_scipy(np.float32, self.overall)
        return sp.csc_array(matrix).data  # a counting sort, in linear time

    @cached_property
    def within_users(self) -> Array:
        """(n_events,) float32, 1 on average over each user."""
        if self.is_even:
            return EVEN
        return (self.raw / np.repeat(self._means, self.log.by_user.counts)).astype(np.float32)

    @cached_property
    def of_users(self) -> Array:
        """(n_users,) float64: mean weight of each user's events, 1 on average over the events."""
        if self.is_even or not self.between_users:
            return np.ones(self.log.n_users)
        return np.asarray(self._means / self.raw.mean())

    @property
    def sums_of_users(self) -> Array:
        """(n_users,): sum of each user's weights."""
        log = self.log
        return np.bincount(log.user_rows, None if self.is_even else self.overall, log.n_users)

    @property
    def sums_of_items(self) -> Array:
        """(n_items,): sum of each item's weights."""
        log = self.log
        return np.bincount(log.item_rows, None if self.is_even else self.overall, log.n_items)

    @property
    def _means(self) -> Array:
        means: Array = np.bincount(self.log.user_rows, self.raw, self.log.n_users)
        return means / np.maximum(1, self.log.by_user.counts)


def by_place(log: Interactions, recency: float) -> Array:
    """Return weights by the position in the history of the user: (n_events,)."""
    weights: Array = np.empty(len(log))
    weights[log.in_order] = weights_in_order(log.histories, recency)
    return weights


def weights_in_order(histories: Histories, recency: float) -> Array:
    """Return weights by the position in a history, 1 for the latest event: (n_events,)."""
    lengths = np.repeat(histories.counts, histories.counts)
    return np.exp(recency * (histories.places / lengths - 1))


def _by_rating(log: Interactions, how: Literal["ratings", "log-ratings"]) -> Array:
    if log.ratings is None:
        raise DataError(
            f'confidence="{how}" needs ratings and the log has none: leave confidence out, or name '
            "the column of ratings or counts."
        )
    ratings = log.ratings.astype(np.float64)
    if not (np.isfinite(ratings) & (ratings > 0)).all():
        raise DataError(
            f'confidence="{how}" needs ratings above 0, and the lowest is {ratings.min():g}: raise '
            "min_rating, or leave confidence out."
        )
    return np.log1p(ratings) if how == "log-ratings" else ratings
