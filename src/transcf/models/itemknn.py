"""ItemKNN: items that share users with what a user already has."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from transcf.io.tensors import Arrays
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import InteractionWeights
from transcf.models.families import LogSizes
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.item_weights import (
    ItemWeights,
    ItemWeightSettings,
    by_history,
    item_blocks,
    largest,
    stored_weights,
)
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun

#: The default of `shrinkage` as a share of the events of the item of a mean event.
_SHRINKAGE_SHARE = 0.5


@settings()
class ItemKNNSettings(ItemWeightSettings):
    """Hyper-parameters of ItemKNN."""

    n_neighbors: int = setting(100, "Neighbours kept for each item.", low=1)
    shrinkage: float | None = setting(
        None,
        "Added to the denominator; larger values trust rare items less. None takes "
        f"{_SHRINKAGE_SHARE:g} times the number of events that the item of a mean event has.",
        low=0,
    )

    def for_log(self, sizes: LogSizes) -> Self:
        """Return the settings with the defaults that depend on the data."""
        if self.shrinkage is not None:
            return self
        return replace(self, shrinkage=_SHRINKAGE_SHARE * sizes.item_of_event)


class ItemKNN(Recommender[ItemKNNSettings]):
    """Cosine similarity between items, the nearest neighbours of each kept.

    Formula: with N_i the users of item i in training,
    `s_ij = |N_i and N_j| / (sqrt(|N_i| |N_j|) + shrinkage)`, kept for the `n_neighbors` items j
    that are most similar to i (equal ones: the smaller item id) and never for j = i; then
    `score(u, i) = sum of s_ij over the items j of u`. Where events have weights, users of i count
    by those in `|N_i and N_j|`; norms stay as they are, and a scored history is weighted by
    place alone (`recency`, or `history_recency`).

    Reference: Sarwar, Karypis, Konstan and Riedl, "Item-based collaborative filtering
    recommendation algorithms" (WWW 2001); Deshpande and Karypis, "Item-based top-N
    recommendation algorithms" (TOIS 2004).

    Attributes (after `fit`):
        weights_: (n_items, n_items) sparse float32; `weights_[j, i] = s_ij`.

    Example:
        >>> import polars as pl
        >>> from transcf import ItemKNN, read_interactions
        >>> log = read_interactions(pl.DataFrame(
        ...     {"user": ["ann", "ann", "bob", "cid"], "item": ["x", "y", "x", "z"]}))
        >>> ItemKNN().fit(log).recommend("bob", k=1)["item_id"].item()
        'y'
    """

    name = "itemknn"
    __init__ = init_from_params(ItemKNNSettings)

    #: The default of `shrinkage` depends on the data.
    _revision: ClassVar[int] = 2

    def _learn(self, run: TrainingRun) -> FittedScorer:
        settings = run.settings
        events = InteractionWeights.of(run.train, settings.event_weights)
        by_item = run.train.by_item.to_scipy(values=events.of_item_entries)
        by_user = run.train.by_user.to_scipy()
        norms = np.sqrt(run.known.item_counts)
        blocks = []
        for first, last in item_blocks(run.known.histories):
            shared = sp.csr_array(by_item[first:last] @ by_user)
            shared.sort_indices()
            blocks.append(_nearest(settings, shared, norms, first))
        return self._with_weights(by_history(blocks), run.known, settings)

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: ItemKNNSettings
    ) -> FittedScorer:
        return self._with_weights(stored_weights(arrays, known), known, settings)

    def _with_weights(
        self, weights: sp.csr_array, known: TrainingData, settings: ItemKNNSettings
    ) -> FittedScorer:
        # Row i of the likeness: the neighbours kept for item i.
        likeness = sp.csr_array(weights.T)
        return ItemWeights(known, self.name, weights, settings.scored_recency, likeness)


def _nearest(
    settings: ItemKNNSettings, shared: sp.csr_array, norms: npt.NDArray[np.float64], first: int
) -> sp.csr_array:
    """Turn a block of co-occurrence counts, rows from item `first` on, into neighbours."""
    assert settings.shrinkage is not None, "a fit resolves it"
    lengths = np.diff(shared.indptr)
    rows = first + np.repeat(np.arange(len(lengths)), lengths)
    similarity = shared.data / (norms[rows] * norms[shared.indices] + settings.shrinkage)
    similarity[rows == shared.indices] = 0.0
    similarity[~largest(similarity, shared.indptr, settings.n_neighbors)] = 0.0
    shared.data = similarity.astype(np.float32)
    shared.eliminate_zeros()
    return shared
