"""SLIM: sparse weights between items, by an elastic net for every item."""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from transcf.io.tensors import Arrays
from transcf.kernels.elastic import elastic_weights
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import InteractionWeights
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.item_weights import ItemWeights, ItemWeightSettings, by_history, stored_weights
from transcf.models.params import setting, settings
from transcf.models.progress import ProgressBar
from transcf.models.training import TrainingRun
from transcf.retrieval.scorer import block_length

#: A column is done when a sweep over its weights changes none by more than this.
_TOLERANCE = 1e-4
_MOST_SWEEPS = 1000


@settings()
class SLIMSettings(ItemWeightSettings):
    """Hyper-parameters of SLIM."""

    l1: float = setting(
        0.5,
        "Weight of the sum of the weights: items that share no more users than this have none.",
        low=0,
    )
    l2: float = setting(
        100.0, "Weight of their squares; larger values spread a weight over similar items.", low=0
    )


class SLIM(Recommender[SLIMSettings]):
    """Sparse, non-negative item-to-item weights that reconstruct the interactions.

    Formula: with X (n_users, n_items) the binary training matrix, minimise
    `|X - X W|^2 / 2 + l1 sum(W) + l2 |W|^2 / 2` subject to `W >= 0` and `diag(W) = 0`; then
    `score(u, .) = X_u W`. Every column of W is a problem of its own, solved by coordinate descent
    to a change of 0.0001. Where events have weights, the target X becomes Y, the same matrix with
    weights in place of ones; a scored history is weighted by place alone (`recency`, or
    `history_recency`).

    Takes memory for the interactions and for the weights that are not zero.

    Reference: Ning and Karypis, "SLIM: sparse linear methods for top-N recommender systems" (ICDM
    2011).

    Attributes (after `fit`):
        weights_: (n_items, n_items) sparse float32, W above.
        report_: Among others `weights`, how many are not zero, and `unsolved`, the columns whose
            weights still changed by more after 1000 sweeps; a warning says so if there are some.

    Example:
        >>> import polars as pl
        >>> from transcf import SLIM, read_interactions
        >>> log = read_interactions(pl.DataFrame(
        ...     {"user": ["ann", "ann", "bob", "cid"], "item": ["x", "y", "x", "z"]}))
        >>> SLIM(l1=0.1).fit(log).recommend("bob", k=1)["item_id"].item()
        'y'
    """

    name = "SLIM"
    __init__ = init_from_params(SLIMSettings)

    #: Defaults are smaller.
    _revision: ClassVar[int] = 2

    def _learn(self, run: TrainingRun) -> FittedScorer:
        train, settings = run.train, self.settings
        events = InteractionWeights.of(train, settings.event_weights)
        by_item = (train.by_item.indptr, train.by_item.indices)
        by_user = (train.by_user.indptr, train.by_user.indices)
        step = block_length(train.n_items)
        blocks, solved = [], 0
        with ProgressBar(self.name, train.n_items, "items", run.options.progress) as bar:
            for first in range(0, train.n_items, step):
                last = min(first + step, train.n_items)
                dense = np.empty((last - first, train.n_items), np.float32)
                done = np.zeros(last - first, np.bool_)
                elastic_weights(
                    first, last, by_item, by_user, events.of_item_entries, float(settings.l1),
                    float(settings.l2), _TOLERANCE, _MOST_SWEEPS, dense, done,
                )  # fmt: skip
                blocks.append(sp.csr_array(dense))
                solved += int(done.sum())
                bar.show(last)
        weights, unsolved = by_history(blocks), train.n_items - solved
        run.report |= {"weights": int(weights.nnz), "unsolved": unsolved}
        if unsolved:
            warnings.warn(
                f"SLIM: the weights of {unsolved} of {train.n_items} items are inexact, for they "
                f"still changed after {_MOST_SWEEPS} sweeps: raise l2={settings.l2} or "
                f"l1={settings.l1}.",
                stacklevel=4,  # who called fit
            )
        return ItemWeights(run.known, self.name, weights, settings.scored_recency)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: SLIMSettings) -> FittedScorer:
        return ItemWeights(known, self.name, stored_weights(arrays, known), settings.scored_recency)
