"""SequentialRules: how often one item follows another in the histories of users.

Where events have an order, C_ki adds up d^-decay over all users who have item i d places after
item k, d at most `reach`. Without an order, every pair of items of a user counts 1 / (length - 1)
in both directions, and only the largest counts of an item are kept.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from transcf.data.csr import Histories
from transcf.io.tensors import Arrays
from transcf.kernels import Array
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import InteractionWeights, WeightSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.item_weights import ItemWeights, item_blocks, largest, stored_weights
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun

#: Most places between two items that count, and the exponent by which farther ones count less.
REACH, DECAY = 10, 0.5
#: Added to the counts of an item in the denominator of shares: few counts are trusted less.
SMOOTHING = 60.0
#: Counts of an item that are kept where events have no order.
_MOST = 128


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
        return _Rules(known, self.name, stored_weights(arrays, known), settings.history_decay)


class _Rules(ItemWeights):
    """Item weights whose histories count by their distance from the present, if it is known."""

    def __init__(
        self, known: TrainingData, name: str, weights: sp.csr_array, history_decay: float
    ) -> None:
        super().__init__(known, name, weights)
        self._decay = history_decay if known.timed else 0.0

    def history_weights(self, histories: Histories) -> Array:
        """Return how much the items of histories count: (n_events,)."""
        ago = np.repeat(histories.counts, histories.counts) - histories.places + 1
        return ago.astype(np.float64) ** -self._decay


def transition_shares(
    histories: Histories,
    *,
    ordered: bool,
    reach: int = REACH,
    decay: float = DECAY,
    smoothing: float = SMOOTHING,
    weights: Array | None = None,
) -> sp.csr_array:
    """Return T_ki = C_ki / (sum of C_k + smoothing), (n_items, n_items) float64, columns ascending.

    Items at most `reach` places later count d^-decay times the weight of the later event,
    (n_events,), where the order of events is known (`ordered`).
    """
    given = np.ones(len(histories.items)) if weights is None else weights.astype(np.float64)
    if ordered:
        counts, sums = _following(histories, reach, decay, given)
    else:
        counts, sums = _together(histories, given)
    counts.data /= np.repeat(sums + smoothing, np.diff(counts.indptr))
    return counts


def _following(
    histories: Histories, reach: int, decay: float, weights: Array
) -> tuple[sp.csr_array, Array]:
    """Count items that follow others within `reach` places: the counts, and their sums."""
    items, n_items = histories.items, histories.n_items
    owners = np.repeat(np.arange(len(histories)), histories.counts)
    counts = sp.csr_array((n_items, n_items), dtype=np.float64)
    for distance in range(1, min(reach, int(histories.counts.max(initial=1)) - 1) + 1):
        same = owners[:-distance] == owners[distance:]
        values = distance**-decay * weights[distance:][same]
        pairs = (items[:-distance][same], items[distance:][same])
        counts = counts + sp.coo_array((values, pairs), shape=(n_items, n_items)).tocsr()
    counts.sort_indices()
    return counts, np.asarray(counts.sum(axis=1))


def _together(histories: Histories, weights: Array) -> tuple[sp.csr_array, Array]:
    """Count pairs of items of the same users: the largest counts of each item, and all sums."""
    users, n_items = histories.matrix, histories.n_items
    others = np.maximum(histories.counts - 1, 1)
    values = weights[histories.by_item] / np.repeat(others, histories.counts)
    targets = users.to_scipy(np.float64, values)
    past = sp.csr_array(users.to_scipy(np.float64).T)
    kept, sums = [], np.zeros(n_items)
    for first, last in item_blocks(histories):
        block = sp.csr_array(past[first:last] @ targets)
        block.setdiag(0, first)
        block.eliminate_zeros()
        block.sort_indices()
        sums[first:last] = np.asarray(block.sum(axis=1))
        block.data[~largest(block.data, block.indptr, _MOST)] = 0
        block.eliminate_zeros()
        kept.append(block)
    return sp.csr_array(sp.vstack(kept)), sums
