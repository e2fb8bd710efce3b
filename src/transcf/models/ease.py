"""EASE: a linear item-to-item model in closed form."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from transcf.data.interactions import Interactions
from transcf.errors import ParameterError
from transcf.io.tensors import Arrays
from transcf.kernels.lapack import invert_lower
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import InteractionWeights
from transcf.models.families import MemoryEstimate
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.item_weights import ItemWeights, ItemWeightSettings, stored_weights
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun
from transcf.retrieval.scorer import Scores, block_length

#: Items that are worked on at once, so that their columns stay in the cache.
_COLUMNS = 128
#: More events than this share of all pairs of items, 1 in so many, are worth a dense product.
_DENSER = 10


@settings()
class EASESettings(ItemWeightSettings):
    """Hyper-parameters of EASE."""

    regularization: float = setting(300.0, "L2 weight; larger for sparser data.", above=0)
    precision: Literal["float32", "float64"] = setting(
        "float64",
        "Arithmetic of the inversion; float32 halves memory and time, and loses digits where the "
        "regularization is small against the most popular items.",
    )

    def memory_estimate(self, users: int, items: int) -> MemoryEstimate:
        """Return the memory of the matrix and of the weights."""
        size = items**2 * (np.dtype(self.precision).itemsize + 4)
        return MemoryEstimate(
            size, f"precision={self.precision!r}", "filter rare items, or use ItemKNN"
        )


class EASE(Recommender[EASESettings]):
    """Linear item-to-item weights that best reconstruct the interactions, in closed form.

    Formula: with X (n_users, n_items) the binary training matrix, minimise
    `|X - X B|^2 + regularization |B|^2` subject to `diag(B) = 0`. With
    `P = (X'X + regularization I)^-1` the solution is `B_ij = -P_ij / P_jj` off the diagonal, and
    `score(u, .) = X_u B`.

    Where events have weights (Y the same matrix with weights in place of ones), targets are
    weighted and inputs are not: minimise `|Y - X B|^2 + ...`, so that
    `B = P C - P diag(P C) / diag(P)` with `C = X'Y`. A scored history is weighted by place
    alone (`recency`, or `history_recency`): its ages would say little about what comes next.

    Needs a dense (n_items, n_items) matrix: 12 bytes per cell while fitting in float64 (8 in
    float32), 4 bytes afterwards.

    Reference: Steck, "Embarrassingly shallow autoencoders for sparse data" (WWW 2019).

    Attributes (after `fit`):
        weights_: (n_items, n_items) float32, B above.

    Example:
        >>> import polars as pl
        >>> from transcf import EASE, read_interactions
        >>> log = read_interactions(pl.DataFrame(
        ...     {"user": ["ann", "ann", "bob", "cid"], "item": ["x", "y", "x", "z"]}))
        >>> EASE(regularization=1.0).fit(log).recommend("bob", k=1)["item_id"].item()
        'y'
    """

    name = "ease"
    __init__ = init_from_params(EASESettings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        train, dtype = run.train, np.dtype(self.settings.precision)
        events = InteractionWeights.of(train, self.settings.event_weights)
        gram = _gram(train, dtype)
        gram.flat[:: train.n_items + 1] += self.settings.regularization
        weights = None
        # The lower triangle of columns is the upper one of our rows, without a copy.
        if invert_lower(gram.T):
            _mirror(gram)
            weights = _weights(gram) if events.is_even else _weighted(gram, train, events)
        if weights is None or not np.isfinite(weights.sum(axis=1)).all():
            raise ParameterError(
                f"EASE cannot use regularization={self.settings.regularization!r} on these data "
                f"(the matrix has no inverse in {self.settings.precision}): choose a value nearer "
                "to the default, or precision='float64'."
            )
        return ItemWeights(run.known, self.name, weights, self.settings.scored_recency)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: EASESettings) -> FittedScorer:
        return ItemWeights(known, self.name, stored_weights(arrays, known), settings.scored_recency)


def _gram(train: Interactions, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return X'X, filled block by block so that no sparse product is held whole."""
    by_item, by_user = train.by_item.to_scipy(dtype), train.by_user.to_scipy(dtype)
    gram = np.empty((train.n_items, train.n_items), dtype=dtype)
    step = block_length(train.n_items)
    for first in range(0, train.n_items, step):
        block = sp.csr_array(by_item[first : first + step] @ by_user)
        block.toarray(out=gram[first : first + step])
    return gram


def _weighted(inverse: npt.NDArray[Any], train: Interactions, events: InteractionWeights) -> Scores:
    """Turn P, (n, n), into B for weighted targets, in float32."""
    n_items, dtype = len(inverse), inverse.dtype
    by_user = train.by_user.to_scipy(dtype)
    targets = train.by_item.to_scipy(dtype, events.of_item_entries)
    # P C = (Y'X P)': by way of the users that is two sparse products, unless events are so many
    # that C has few empty cells; a dense product does about ten times the arithmetic in a second.
    shared = (targets @ by_user).toarray() if _DENSER * len(train) > n_items**2 else None
    weights = np.empty((n_items, n_items), dtype=np.float32)
    for first in range(0, n_items, _COLUMNS):
        block = slice(first, first + _COLUMNS)
        columns = np.ascontiguousarray(inverse[:, block])
        product = targets @ (by_user @ columns) if shared is None else shared @ columns
        weights[block] = product.T
    ratio = weights.diagonal() / inverse.diagonal()
    for first in range(0, n_items, _COLUMNS):
        block = slice(first, first + _COLUMNS)
        weights[block] -= inverse[block] * ratio
    np.fill_diagonal(weights, 0.0)
    return weights


def _weights(inverse: npt.NDArray[Any]) -> Scores:
    """Turn P, (n, n), into B in float32."""
    n_items, diagonal = len(inverse), inverse.diagonal().copy()
    weights = np.empty((n_items, n_items), dtype=np.float32)
    for first in range(0, n_items, _COLUMNS):
        block = slice(first, first + _COLUMNS)
        weights[block] = inverse[block] / -diagonal
    np.fill_diagonal(weights, 0.0)
    return weights


def _mirror(upper: npt.NDArray[Any]) -> None:
    """Copy the upper triangle of a matrix to the lower one, in place."""
    for first in range(0, len(upper), _COLUMNS):
        last = first + _COLUMNS
        square = upper[first:last, first:last]
        below = np.tril(np.ones(square.shape, dtype=bool), -1)
        square[below] = square.T[below]
        upper[last:, first:last] = upper[first:last, last:].T
