"""CML: collaborative metric learning."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from transcf.io.tensors import Arrays
from transcf.kernels import Array, aligned_zeros
from transcf.kernels.neighborhood import bound_rows
from transcf.kernels.pairwise import HingeRates
from transcf.kernels.rows import multiply_rows, padded, padded_width, unpadded
from transcf.models.alternation import weighted_gram
from transcf.models.base import Recommender, init_from_params
from transcf.models.factors import Factors, HistoryMap, stored_factors
from transcf.models.families import EpochRule, TripleSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun
from transcf.models.triples import PairwiseSolver, rank_weights


@settings(learning_rate=0.1)
class CMLSettings(TripleSettings):
    """Hyper-parameters of CML."""

    _epoch_rule = EpochRule(40, 800, 200)
    epochs: int | None = setting(None, _epoch_rule.meaning, low=1)  # type: ignore[assignment]
    regularization: float = setting(0.0, "L2 weight of the vectors of a triple.", low=0)
    margin: float = setting(1.0, "How much nearer than j the item i should be.", low=0)
    negatives: int = setting(20, "Items drawn to choose the nearest from.", low=1, high=1000)
    rank_weighting: bool = setting(
        True, "Whether violations by many of the drawn items weigh more."
    )
    covariance: float = setting(
        0.0, "Weight of the regularizer against correlated dimensions.", low=0
    )
    bound_after: Literal["step", "epoch"] = setting(
        "step",
        "When vectors are projected into the unit ball: after every step, or after every epoch "
        "(as in TransCF's paper).",
    )


class CML(Recommender[CMLSettings]):
    """Collaborative metric learning: users and items as points in the unit ball.

    With user vectors x_u and item vectors y_i the score is

        s(u, i) = -|x_u - y_i|^2

    It is trained by stochastic gradient descent on triples of a user u, a positive item i and a
    negative item j; vectors are projected into the unit ball. The mean loss of a triple is

        w [margin + |x_u - y_i|^2 - |x_u - y_j|^2]_+ + covariance (|C|_F^2 - |diag C|_2^2) / N
            + regularization / 2 (|x_u|^2 + |y_i|^2 + |y_j|^2)

    where j is the nearest of `negatives` drawn items; w = log(1 + I v / m) / log(1 + I) with v of
    the m drawn items nearer than the margin allows and I items in all, if `rank_weighting` is set
    (w = 1 otherwise); and C is the covariance of all N vectors of users and items. (The paper
    prints |C|_F without the square, which would pull all vectors into one point; the regularizer
    that it refers to has it.) The loss in `history_` is the first term. Items without training
    interactions are never drawn, scored or recommended; users without any count as unknown.

    Attributes (after `fit`):
        user_vectors_: x, (n_users, dim) float32.
        item_vectors_: y, (n_items, dim) float32.

    References:
        Hsieh, Yang, Cui, Lin, Belongie, Estrin: Collaborative Metric Learning. WWW 2017.

    Example:
        >>> from transcf import CML, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = CML(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "CML"
    _divergence_hint: ClassVar[str] = "learning_rate (or covariance)"
    __init__ = init_from_params(CMLSettings)

    #: The learning rate decays, and defaults depend on the data.
    _revision: ClassVar[int] = 2
    _supports_distributed: ClassVar[bool] = True

    def _learn(self, run: TrainingRun) -> FittedScorer:
        return run.run(run.solver(HingeSolver, run.problem()), self._restore)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: CMLSettings) -> FittedScorer:
        vectors = stored_factors(arrays, known, settings.dim)
        fold = HistoryMap(known, *vectors, in_ball=True)
        return Factors(known, self.name, *vectors, fold, geometry="distance")


class HingeSolver(PairwiseSolver[CMLSettings]):
    """Steps on the loss; the slow covariance of all vectors follows at the end of an epoch."""

    def _rates(self, rate: float) -> HingeRates:
        settings, number = self._settings, self._dtype
        return HingeRates(
            learning_rate=number(rate),
            keep=number(1 - rate * settings.regularization),
            margin=number(settings.margin),
            negatives=settings.negatives,
            bounds_steps=settings.bound_after == "step",
        )

    def _prepare(self) -> Array:
        """Return the weight of a step by the number of violations, (negatives + 1,)."""
        n_items = len(self._problem.active_items) if self._settings.rank_weighting else None
        return rank_weights(self._settings.negatives, n_items).astype(self._dtype)

    def _finish(self, users: Array, items: Array, triples: int, rate: float) -> bool:
        if self._settings.covariance:
            known = self._problem.by_user.counts > 0
            active, own = self._comm.all_of(users[known])
            vectors = np.concatenate([active, items])
            step = rate * self._settings.covariance * triples
            vectors -= (step * covariance_slope(vectors)).astype(vectors.dtype)
            moved, items[:] = np.split(vectors, [len(active)])
            users[known] = moved[own]
        for matrix in (users, items):
            bound_rows(matrix, 1.0)
        return True


def covariance_slope(vectors: Array) -> Array:
    """Return the gradient of `(|C|_F^2 - |diag C|_2^2) / N`, C the covariance of N vectors."""
    n = len(vectors)
    centered = vectors - vectors.mean(axis=0, dtype=np.float64)
    # Not by BLAS: its bits depend on the number of its threads.
    width, rows = padded_width(centered.shape[1]), padded(centered)
    between = weighted_gram(rows, width, np.ones(n)) / n
    between[:: width + 1] = 0
    products = aligned_zeros(rows.shape, rows.dtype)
    multiply_rows(rows, width, between, products)
    return unpadded(products, width, centered.shape[1]) * (4 / n**2)
