"""The solver of CML: a hinge on squared distances in the unit ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from transcf.kernels import Array, aligned_zeros
from transcf.kernels.neighborhood import bound_rows
from transcf.kernels.pairwise import HingeExtra, HingeRates
from transcf.kernels.rows import multiply_rows, padded, padded_width, unpadded
from transcf.models._gram import weighted_gram
from transcf.models._triples import Problem, rank_weights

from .solver import PairwiseSolver, Start

BoundAfter = Literal["step", "epoch"]


@dataclass(frozen=True)
class HingeLoss:
    """Step size and shape of CML's loss.

    `regularization` and `covariance` are the weights of L2 and of CML's own regularizer,
    `bound_after` says when vectors are brought back into the unit ball.
    """

    learning_rate: float
    regularization: float
    margin: float
    negatives: int
    rank_weighting: bool
    covariance: float
    bound_after: BoundAfter = "step"


class HingeSolver(PairwiseSolver):
    """Takes steps on `w [margin + |x_u - y_i|^2 - |x_u - y_j|^2]_+` and L2 of the vectors involved.

    The covariance of all vectors hardly moves during an epoch: its gradient is taken once at the
    end, for all triples of the epoch together. After that all vectors are in the unit ball.
    """

    def __init__(self, problem: Problem, start: Start, loss: HingeLoss, **layout: Any) -> None:
        """Prepare; `layout` are the other arguments of `PairwiseSolver`."""
        super().__init__(problem, start, **layout)
        self._loss = loss

    def _rates(self, number: type[np.floating[Any]]) -> HingeRates:
        loss = self._loss
        return HingeRates(
            learning_rate=number(loss.learning_rate),
            keep=number(1 - loss.learning_rate * loss.regularization),
            margin=number(loss.margin),
            negatives=loss.negatives,
            bounds_steps=loss.bound_after == "step",
        )

    def _prepare(self, dtype: npt.DTypeLike) -> HingeExtra:
        n_items = len(self._problem.active_items) if self._loss.rank_weighting else None
        return HingeExtra(rank_weights(self._loss.negatives, n_items).astype(dtype))

    def _finish(self, users: Array, items: Array, triples: int) -> None:
        if self._loss.covariance:
            known = np.diff(self._problem.user_indptr) > 0
            vectors = np.concatenate([users[known], items])
            step = self._loss.learning_rate * self._loss.covariance * triples
            vectors -= (step * covariance_slope(vectors)).astype(vectors.dtype)
            users[known], items[:] = np.split(vectors, [int(known.sum())])
        for matrix in (users, items):
            bound_rows(matrix, 1.0)


def covariance_slope(vectors: Array) -> Array:
    """Gradient of `(|C|_F^2 - |diag C|_2^2) / N`, C the covariance of N vectors (N, dim)."""
    n = len(vectors)
    centered = vectors - vectors.mean(axis=0, dtype=np.float64)
    # Not by BLAS: its bits depend on the number of its threads.
    width, rows = padded_width(centered.shape[1]), padded(centered)
    between = weighted_gram(rows, width, np.ones(n)) / n
    between[:: width + 1] = 0
    products = aligned_zeros(rows.shape, rows.dtype)
    multiply_rows(rows, width, between, products)
    return unpadded(products, width, centered.shape[1]) * (4 / n**2)
