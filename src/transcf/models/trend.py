"""Trend: a prior of recent popularity that any model can add to its scores.

An item's score gets `trend * sd * z_i` added: z is the logarithm of the item's recent events,
standardised over the items that can be ranked, and sd the standard deviation of the model's scores
over items, so a trend of 1 has as much weight as the model itself. `WithItemOffsets` adds it to
models without an item bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.errors import ParameterError
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.models.event_weights import AgeUnit, WeightSettings, by_age, counts_in_days
from transcf.models.explain import Contributions, Remarks
from transcf.models.fitted import FittedScorer
from transcf.models.training_data import TrainingData
from transcf.parallel import use_threads
from transcf.retrieval.scorer import Scorer, Scores, Source, block_length

if TYPE_CHECKING:
    from transcf.retrieval.forms import LinearForm
    from transcf.retrieval.sums import SumForm
    from transcf.retrieval.views import SumView

#: Added to an item's recent events, so that those without any have a logarithm.
_FLOOR = 0.1
#: Users whose scores are used to estimate the standard deviation.
_USERS = 256
#: Name of the offsets in files.
_OFFSETS = "item_offsets"


@dataclass(frozen=True, eq=False)
class Trend:
    """What is added to the scores of items.

    Attributes:
        strength: The parameter `trend`.
        prior: z, (n_items,) float64; 0 for items without training interactions.
    """

    strength: float
    prior: Array

    @classmethod
    def of(cls, log: Interactions, settings: object) -> Trend | None:
        """Compute the prior of a log; None if the settings have no trend.

        Raises:
            ParameterError: There is a trend and the log has no timestamps.
        """
        if not isinstance(settings, WeightSettings) or settings.event_weights.trend == 0:
            return None
        given = settings.event_weights
        if log.timestamps is None:
            raise ParameterError(
                f"trend={given.trend!r} needs timestamps and the log has none: leave trend out, "
                "or name their column."
            )
        recent = recent_events(log, given.trend_half_life, given.age_in)
        known, logs = log.by_item.counts > 0, np.log(recent + _FLOOR)
        prior = np.zeros(log.n_items)
        spread = logs[known].std()
        if spread > 0:
            prior[known] = (logs[known] - logs[known].mean()) / spread
        return cls(float(given.trend), prior)

    def add_to(self, learned: FittedScorer) -> FittedScorer:
        """Return a scorer with the trend added, in the item bias if there is one."""
        offset = (self.strength * typical_spread(learned) * self.prior).astype(np.float32)
        return learned.with_bias(offset) or WithItemOffsets(learned, offset)


def recent_events(log: Interactions, half_life: float | None, unit: AgeUnit = "auto") -> Array:
    """Return the weighted number of events of each item, older ones counting less: (n_items,)."""
    usual = 30.0 if counts_in_days(log, unit) else 0.05
    weights = by_age(log, half_life or usual, unit)
    counted: Array = np.bincount(log.item_rows, weights, log.n_items)
    return counted


def typical_spread(learned: FittedScorer) -> float:
    """Return the standard deviation of a user's scores over items, averaged over some users.

    One thread computes it: the last digits of a matrix product depend on the number of threads.
    """
    active = np.flatnonzero(learned.known.active)
    users = active[np.linspace(0, len(active) - 1, min(_USERS, len(active))).astype(np.int64)]
    step, spreads = block_length(len(learned.known.items)), []
    for first in range(0, len(users), step):
        with use_threads(1):
            block = learned.scores(users[first : first + step].astype(np.int32))
        spreads.append(block[:, learned.rankable].std(axis=1, dtype=np.float64))
    return float(np.concatenate(spreads).mean())


class WithItemOffsets(FittedScorer):
    """`score(u, i) = inner score + offset_i`; everything else is that of the inner scorer.

    Args:
        inner: The scorer without offsets.
        offset: (n_items,) float32.
    """

    def __init__(self, inner: FittedScorer, offset: Scores) -> None:
        super().__init__(inner.known, inner.name)
        self.inner, self.offset = inner, offset

    def _shifted(self, scorer: Scorer) -> SumView:
        from transcf.retrieval.views import SumView

        return SumView(scorer.name, [scorer], [1.0], self.offset)

    @cached_property
    def _view(self) -> SumView:
        return self._shifted(self.inner)

    def arrays(self) -> Arrays:
        """Return the arrays of the inner scorer and the offsets."""
        return self.inner.arrays() | {_OFFSETS: self.offset}

    def stored_arrays(self) -> Arrays:
        """Return the stored arrays of the inner scorer and the offsets."""
        return self.inner.stored_arrays() | {_OFFSETS: self.offset}

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the inner scorer and the offsets."""
        return self.inner.attributes() | {_OFFSETS: self.offset}

    def linear_form(self) -> LinearForm | None:
        """Return the score as inner products, if the inner one is."""
        return self._view.linear_form()

    def sum_form(self) -> SumForm | None:
        """Return the score as a logarithm of a sum, if the inner one is."""
        form = self.inner.sum_form()
        return None if form is None else form.shifted(self.offset)

    def _score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        return self._view.scores(users)

    @property
    def block_users(self) -> int | None:
        """Most users of a block whose scores are computed in tiles."""
        return self._view.block_users

    def open_block(self, users: Rows, items: Rows) -> Source:
        """Return the scores of some users, to be read in tiles."""
        return self._view.open_block(users, items)

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        return self._view.scores(users, items)

    def fold_in(self, histories: Histories) -> Scorer:
        """Score new users by their items."""
        return self._shifted(self.inner.fold_in(histories))

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        """Score new users after some steps of training."""
        return self._shifted(self.inner.fold_in_with_sgd(histories, steps))

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Return those of the inner scorer; the offset is part of the rest."""
        found = self.inner.contributions(history, item)
        if found.rest is None:
            return found
        return replace(found, rest=found.rest + float(self.offset[item]))

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        """Return those of the inner scorer, and one about the offset."""
        found, added = self.inner.remarks(user, history, item, top), float(self.offset[item])
        words = f"Recent popularity changes the score by {added:+.3g}, whoever is asked."
        return Remarks((*found.words, words), found.facts | {"trend": added})

    def position(self, user: int | None, history: Rows) -> Scores | None:
        """Return the position of a user."""
        return self.inner.position(user, history)

    def translated_position(self, user: int | None, history: Rows, items: Rows) -> Scores | None:
        """Return the translated positions of a user."""
        return self.inner.translated_position(user, history, items)

    def ways(self, user: int | None, history: Rows, item: int) -> tuple[Scores, Scores] | None:
        """Return the translated position and the weight of each past item."""
        return self.inner.ways(user, history, item)

    def item_similarity(self) -> Scorer:
        """Return a scorer of items against items."""
        return self.inner.item_similarity()

    def user_similarity(self) -> Scorer:
        """Return a scorer of users against users."""
        return self.inner.user_similarity()


def restored(
    arrays: Arrays, known: TrainingData, restore: Callable[[Arrays], FittedScorer]
) -> FittedScorer:
    """Make a fitted scorer from the arrays of a folder, with offsets if it has some.

    Args:
        arrays: Those of the folder.
        known: The training data.
        restore: Makes the scorer from the arrays of the model itself.

    Raises:
        ValueError: The offsets are not one number for each item.
    """
    if _OFFSETS not in arrays:
        return restore(arrays)
    offset = checked(arrays, _OFFSETS, np.float32, (len(known.items),))
    own = {name: array for name, array in arrays.items() if name != _OFFSETS}
    return WithItemOffsets(restore(own), offset)
