"""Trend: a prior of recent popularity that any model can carry.

An item's score gets `trend * sd * z_i` added: z is the logarithm of the item's recent events,
standardised over the items that can be ranked, and sd how much scores of items differ for a user of
the model as it is. So a trend of 1 has as much to say as the model itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transcf.data.interactions import Interactions
from transcf.errors import ParameterError
from transcf.kernels import Array
from transcf.models.ages import AgeUnit, by_age, counts_in_days
from transcf.models.event_weights import WeightSettings
from transcf.models.fitted import FittedScorer
from transcf.models.item_offsets import WithItemOffsets
from transcf.parallel import use_threads
from transcf.retrieval.scorer import block_length

#: Added to an item's recent events, so that those without any have a logarithm.
_FLOOR = 0.1
#: Users whose scores tell how much scores differ.
_USERS = 256


@dataclass(frozen=True, eq=False)
class Trend:
    """What is added to the scores of a model's items.

    Attributes:
        strength: How much.
        prior: z, (n_items,) float64; 0 for items without training interactions.
    """

    strength: float
    prior: Array

    @classmethod
    def of(cls, log: Interactions, settings: object) -> Trend | None:
        """Look at a log; None where the settings ask for no trend, or know of none.

        Raises:
            ParameterError: A trend is asked for and the log has no timestamps.
        """
        if not isinstance(settings, WeightSettings) or settings.trend == 0:
            return None
        if log.timestamps is None:
            raise ParameterError(
                f"trend={settings.trend!r} needs timestamps and the log has none: leave trend out, "
                "or name their column."
            )
        recent = recent_events(log, settings.trend_half_life, settings.age_in)
        known, logs = log.by_item.counts > 0, np.log(recent + _FLOOR)
        prior = np.zeros(log.n_items)
        spread = logs[known].std()
        if spread > 0:
            prior[known] = (logs[known] - logs[known].mean()) / spread
        return cls(float(settings.trend), prior)

    def add_to(self, learned: FittedScorer) -> FittedScorer:
        """Return what scores with the trend added, in the item bias where there is one."""
        offset = (self.strength * typical_spread(learned) * self.prior).astype(np.float32)
        return learned.with_bias(offset) or WithItemOffsets(learned, offset)


def recent_events(log: Interactions, half_life: float | None, unit: AgeUnit = "auto") -> Array:
    """Events of each item, older ones counting less: (n_items,) float64."""
    usual = 30.0 if counts_in_days(log, unit) else 0.05
    weights = by_age(log, half_life or usual, unit)
    counted: Array = np.bincount(log.item_rows, weights, log.n_items)
    return counted


def typical_spread(learned: FittedScorer) -> float:
    """Return the standard deviation of a user's scores over items, mean over some users.

    By one thread: how many share a matrix product shows in its last digits.
    """
    active = np.flatnonzero(learned.known.active)
    users = active[np.linspace(0, len(active) - 1, min(_USERS, len(active))).astype(np.int64)]
    step, spreads = block_length(len(learned.known.items)), []
    for first in range(0, len(users), step):
        with use_threads(1):
            block = learned.scores(users[first : first + step].astype(np.int32))
        spreads.append(block[:, learned.rankable].std(axis=1, dtype=np.float64))
    return float(np.concatenate(spreads).mean())
