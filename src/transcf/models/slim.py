"""SLIM: sparse weights between items, by an elastic net for every item."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from transcf.data.interactions import Interactions
from transcf.kernels.elastic import elastic_weights
from transcf.models._item_weights import ItemWeights
from transcf.models.base import Held
from transcf.models.rules import Number, Rule
from transcf.retrieval.scorer import block_length
from transcf.training.options import FitOptions
from transcf.training.progress import ProgressBar
from transcf.training.threads import kernel_threads

#: A column is done when a sweep over its weights changes none by more than this.
_TOLERANCE = 1e-4
_MOST_SWEEPS = 1000


class SLIM(ItemWeights):
    """Few item-to-item weights that rebuild the interactions, none of them negative.

    Formula: with X (n_users, n_items) the binary training matrix, minimise
    `|X - X W|^2 / 2 + l1 sum(W) + l2 |W|^2 / 2` subject to `W >= 0` and `diag(W) = 0`; then
    `score(u, .) = X_u W`. Every column of W is a problem of its own, solved by coordinate descent
    to a change of 0.0001.

    Takes memory for the interactions and for the weights that are not zero.

    Reference: Ning and Karypis, "SLIM: sparse linear methods for top-N recommender systems" (ICDM
    2011).

    Args:
        l1: Weight of the sum of the weights: items that share no more users than this have none.
        l2: Weight of their squares; larger values spread a weight over similar items.
        n_threads: Threads for fitting; None uses all.

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
    rules: ClassVar[Mapping[str, Rule]] = {
        "l1": Number(low=0),
        "l2": Number(low=0),
        "n_threads": Number(low=1, whole=True, optional=True),
    }

    def __init__(self, *, l1: float = 2.0, l2: float = 200.0, n_threads: int | None = None) -> None:
        """Keep the hyper-parameters."""
        self.l1 = l1
        self.l2 = l2
        self.n_threads = n_threads

    def _learn(self, train: Interactions, validation: Held, options: FitOptions) -> None:
        by_item = (train.by_item.indptr, train.by_item.indices)
        by_user = (train.by_user.indptr, train.by_user.indices)
        step = block_length(train.n_items)
        blocks, solved = [], 0
        bar = ProgressBar(self.name, train.n_items, "items", options.progress)
        with kernel_threads(self.n_threads), bar:
            for first in range(0, train.n_items, step):
                last = min(first + step, train.n_items)
                dense = np.empty((last - first, train.n_items), np.float32)
                done = elastic_weights(
                    first, last, by_item, by_user, float(self.l1), float(self.l2),
                    _TOLERANCE, _MOST_SWEEPS, dense,
                )  # fmt: skip
                blocks.append(sp.csr_array(dense))
                solved += int(done.sum())
                bar.show(last)
        self._adopt_targets(blocks)
        unsolved = train.n_items - solved
        self.report_ |= {"weights": int(self.weights_.nnz), "unsolved": unsolved}
        if unsolved:
            warnings.warn(
                f"SLIM: the weights of {unsolved} of {train.n_items} items are inexact, for they "
                f"still changed after {_MOST_SWEEPS} sweeps: raise l2={self.l2} or l1={self.l1}.",
                stacklevel=3,  # who called fit
            )
