"""How much each event counts: by its place in the history, by its age, and by its rating.

One mechanism for all models; where a model uses the weights is part of the model. The newest event
of everybody weighs most, and where nothing is set all events weigh the same.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.sparse as sp

from transcf.data.histories import Histories
from transcf.data.interactions import Interactions
from transcf.errors import DataError
from transcf.kernels import Array
from transcf.models.ages import UNITS, AgeUnit, by_age
from transcf.models.settings import setting, settings

#: Weights of events that all count the same.
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
    trend: float = setting(
        default=0.0,
        meaning="How much recent popularity adds to scores: 1 as much as the model itself. It "
        "needs timestamps.",
        low=0,
        high=1000,
    )
    trend_half_life: float | None = setting(
        default=None,
        meaning="Age at which an event counts half for the trend, in days or as a share of the "
        "log's events (`age_in`); None takes 30 days, or 5 % of the events.",
        above=0,
    )
    age_in: AgeUnit = setting(default="auto", meaning=f"Unit of half-lives: {UNITS}.")

    def __repr__(self) -> str:
        """Show the fields that differ from their defaults."""
        values = ((f.name, repr(getattr(self, f.name)), repr(f.default)) for f in fields(self))
        shown = (f"{name}={value}" for name, value, default in values if value != default)
        return f"EventWeights({', '.join(shown)})"

    @property
    def uses_times(self) -> bool:
        """Whether anything depends on the times of events.

        Example:
            >>> EventWeights().uses_times, EventWeights(trend=1.0).uses_times
            (False, True)
        """
        return self.recency > 0 or self.half_life is not None or self.trend > 0


@settings()
class WeightSettings:
    """The parameter of all models that weigh events."""

    event_weights: EventWeights = setting(
        default=EventWeights(), meaning="How much each event counts, see `transcf.EventWeights`."
    )

    @property
    def uses_times(self) -> bool:
        """Whether anything depends on the times of events."""
        return self.event_weights.uses_times


@dataclass(frozen=True, eq=False)
class InteractionWeights:
    """Weights of a log's events.

    Attributes:
        log: The events.
        raw: (n_events,) float64 in the order of `log.by_user`; empty where all weigh the same.
        between_users: Whether they compare events of different users; else only those of one.
    """

    log: Interactions
    raw: Array
    between_users: bool

    @classmethod
    def of(cls, log: Interactions, given: EventWeights) -> InteractionWeights:
        """Weigh the events of a log.

        Raises:
            DataError: Confidence is to come from ratings that are not there or not positive.

        Example:
            >>> from transcf import synthesize
            >>> weights = InteractionWeights.of(synthesize(), EventWeights(recency=2.0))
            >>> float(weights.raw.max())
            1.0
        """
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
        # Weights that are all equal are none: what is learned is the same to the bit.
        return cls(log, raw if len(raw) and np.ptp(raw) > 0 else np.empty(0), between)

    @property
    def is_even(self) -> bool:
        """Whether all events weigh the same."""
        return not len(self.raw)

    @cached_property
    def overall(self) -> Array:
        """(n_events,) float32, 1 on average over the log; empty where all weigh the same."""
        if self.is_even:
            return EVEN
        scaled: Array = (self.raw / self.raw.mean()).astype(np.float32)
        return scaled

    @cached_property
    def of_item_entries(self) -> Array:
        """The same in the order of `log.by_item`."""
        if self.is_even:
            return EVEN
        matrix = self.log.by_user.to_scipy(np.float32, self.overall)
        entries: Array = sp.csc_array(matrix).data  # columns are counted out, in linear time
        return entries

    @cached_property
    def within_users(self) -> Array:
        """(n_events,) float32, 1 on average over each user; empty where all weigh the same."""
        if self.is_even:
            return EVEN
        scaled: Array = self.raw / np.repeat(self._means, self.log.by_user.counts)
        return scaled.astype(np.float32)

    @cached_property
    def of_users(self) -> Array:
        """(n_users,) float64: how much users count, 1 on average over the events.

        All alike unless weights compare events of different users.
        """
        if self.is_even or not self.between_users:
            return np.ones(self.log.n_users)
        scaled: Array = self._means / self.raw.mean()
        return scaled

    @property
    def sums_of_users(self) -> Array:
        """(n_users,): the sum of each user's `overall`; numbers of events where all weigh alike."""
        if self.is_even:
            return self.log.by_user.counts
        return np.bincount(self.log.user_rows, self.overall, self.log.n_users)

    @property
    def sums_of_items(self) -> Array:
        """(n_items,): the same for items."""
        if self.is_even:
            return self.log.by_item.counts
        return np.bincount(self.log.item_rows, self.overall, self.log.n_items)

    @property
    def _means(self) -> Array:
        counts = self.log.by_user.counts
        means: Array = np.bincount(self.log.user_rows, self.raw, self.log.n_users)
        means /= np.maximum(1, counts)
        return means


def by_place(log: Interactions, recency: float) -> Array:
    """Weights of a log's events by their place in the history of their user: (n_events,)."""
    weights: Array = np.empty(len(log))
    weights[log.in_order] = weights_in_order(log.histories, recency)
    return weights


def weights_in_order(histories: Histories, recency: float) -> Array:
    """Weights of events by their place in a history, the latest having 1: (n_events,)."""
    lengths = np.repeat(histories.counts, histories.counts)
    weights: Array = np.exp(recency * (histories.places / lengths - 1))
    return weights


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
