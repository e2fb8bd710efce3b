"""SequentialRules: items that follow what a user already has."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Histories
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import InteractionWeights, WeightSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.item_weights import ItemWeights, stored_sparse
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun
from transcf.models.transition_counts import DECAY, REACH, SMOOTHING, transition_shares


@settings()
class SequentialRulesSettings(WeightSettings):
    """Hyper-parameters of SequentialRules."""

    steps: int = setting(REACH, "Most places between two items of a history that count.", low=1)
    distance_decay: float = setting(
        DECAY, "An item d places after another one counts d^-distance_decay.", low=0, high=50
    )
    smoothing: float = setting(
        SMOOTHING, "Added to the counts of an item; larger values trust rare items less.", low=0
    )
    history_decay: float = setting(
        1.5,
        "Exponent by which older items of a scored history count less: the item d places ago has "
        "the weight d^-history_decay.",
        low=0,
        high=50,
    )

    @property
    def uses_times(self) -> bool:
        """Whether times of events matter."""
        return True


class SequentialRules(Recommender[SequentialRulesSettings]):
    """Counts of items that follow others in the histories of users.

    Formula: C_ki adds up d^-distance_decay over all users who have item i d places after item k, d
    at most `steps`; `score(u, i) = sum_k w_k C_ki / (sum_j C_kj + smoothing)` over the items k of
    u, with w_k = d^-history_decay for the item d places ago. Where events have weights, C_ki counts
    by those of the later event. Without times every pair of items of a user counts
    1 / (length - 1) in both directions, the 128 largest counts of an item are kept, and all items
    of a history count the same.

    The published model scores by the newest item alone, with a decay of 1 and without smoothing:
    `SequentialRules(distance_decay=1, history_decay=50, smoothing=0)`.

    Attributes (after `fit`):
        weights_: (n_items, n_items) sparse float32; `weights_[k, i] = C_ki / (C_k + smoothing)`.

    Reference: Ludewig and Jannach, "Evaluation of session-based recommendation algorithms" (UMUAI
    2018).

    Example:
        >>> import polars as pl
        >>> from transcf import SequentialRules, read_interactions
        >>> log = read_interactions(pl.DataFrame({
        ...     "user": ["ann", "ann", "bob", "cid"],
        ...     "item": ["x", "y", "x", "z"],
        ...     "timestamp": [1, 2, 3, 4]}))
        >>> SequentialRules().fit(log).recommend("bob", k=1)["item_id"].item()
        'y'
    """

    name = "sequential-rules"
    __init__ = init_from_params(SequentialRulesSettings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        settings = self.settings
        events = InteractionWeights.of(run.train, settings.event_weights)
        shares = transition_shares(
            run.known.histories,
            ordered=run.known.timed,
            reach=settings.steps,
            decay=settings.distance_decay,
            smoothing=settings.smoothing,
            weights=None if events.is_even else events.overall[run.train.in_order],
        )
        return _Rules(run.known, self.name, shares.astype(np.float32), settings.history_decay)

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: SequentialRulesSettings
    ) -> FittedScorer:
        return _Rules(known, self.name, stored_sparse(arrays, known), settings.history_decay)


class _Rules(ItemWeights):
    """Item weights whose histories count by their distance from the present.

    Args:
        known: The training data.
        name: Name of the model.
        weights: (n_items, n_items) float32, from past items to scored ones.
        history_decay: The item d places ago counts d^-history_decay, if the order is known.
    """

    def __init__(
        self, known: TrainingData, name: str, weights: sp.csr_array, history_decay: float
    ) -> None:
        super().__init__(known, name, weights)
        self._decay = history_decay if known.timed else 0.0

    def history_weights(self, histories: Histories) -> Array:
        """Return how much the items of histories count: (n_events,)."""
        ago = np.repeat(histories.counts, histories.counts) - histories.places + 1
        weights: Array = ago.astype(np.float64) ** -self._decay
        return weights
