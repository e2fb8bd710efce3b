"""The solver of CML: a hinge on squared distances in the unit ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from transcf.kernels import Array
from transcf.kernels.neighborhood import bound_rows
from transcf.kernels.pairwise import Hinge
from transcf.models._triples import Problem, rank_weights

from .solver import PairwiseSolver, Start


@dataclass(frozen=True)
class Metric:
    """Step size and shape of CML's loss; `covariance` is the weight of its regularizer."""

    learning_rate: float
    margin: float
    negatives: int
    rank_weighting: bool
    covariance: float


class HingeSolver(PairwiseSolver):
    """Takes steps on `w [margin + |x_u - y_i|^2 - |x_u - y_j|^2]_+`.

    At the end of an epoch the vectors are brought into the unit ball, as in TransCF's paper.
    The covariance of all vectors hardly moves during an epoch: its gradient is taken once, before
    that, for all triples of the epoch together.
    """

    def __init__(self, problem: Problem, start: Start, loss: Metric, **layout: Any) -> None:
        """Prepare; `layout` are the other arguments of `PairwiseSolver`."""
        super().__init__(problem, start, **layout)
        self._loss = loss

    def _rates(self, number: type[np.floating[Any]]) -> Hinge:
        loss = self._loss
        return Hinge(number(loss.learning_rate), number(loss.margin), loss.negatives)

    def _prepare(self) -> Array:
        n_items = len(self._problem.active_items) if self._loss.rank_weighting else None
        return rank_weights(self._loss.negatives, n_items)

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
    between = centered.T @ centered / n
    np.fill_diagonal(between, 0)
    slope: Array = centered @ between * (4 / n**2)
    return slope
