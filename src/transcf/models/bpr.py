"""BPR: Bayesian personalized ranking."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from transcf.io.tensors import Arrays
from transcf.kernels.pairwise import LogisticRates, NoExtra
from transcf.kernels.ranked_draws import RankedRates, Rankings
from transcf.models.base import Recommender, init_from_params
from transcf.models.factors import Factors, HistoryMap, stored_bias, stored_factors
from transcf.models.families import EpochRule, LogSizes, TripleSettings
from transcf.models.fitted import FittedScorer
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun
from transcf.models.training_data import TrainingData
from transcf.models.triples import PairwiseSolver

#: The default of `bias_regularization` for items that are all equally popular.
_BIAS_REGULARIZATION = 0.1


@settings(learning_rate=0.1)
class BPRSettings(TripleSettings):
    """Hyper-parameters of BPR."""

    _epoch_rule = EpochRule(40, 2500, 500)
    epochs: int | None = setting(None, _epoch_rule.meaning, low=1)  # type: ignore[assignment]
    regularization: float = setting(0.02, "L2 weight of the vectors.", low=0)
    item_bias: bool = setting(True, "Whether items have a bias.")
    bias_regularization: float | None = setting(
        None,
        f"L2 weight of the biases; None takes {_BIAS_REGULARIZATION} divided by the ratio of the "
        "events of the item of a mean event to those of a mean item.",
        low=0,
    )

    def for_log(self, sizes: LogSizes) -> Self:
        """Return the settings with the defaults that depend on the data."""
        weight = self.bias_regularization
        if weight is None:
            weight = _BIAS_REGULARIZATION / sizes.item_skew
        epochs = self.epochs or self._epoch_rule(sizes)
        return replace(self, epochs=epochs, bias_regularization=weight)


class BPR(Recommender[BPRSettings]):
    """Bayesian personalized ranking: matrix factorization that ranks positive items first.

    With user vectors x_u, item vectors y_i and item biases c_i, the score is

        s(u, i) = x_u . y_i + c_i

    (c_i only with `item_bias`). It is trained by stochastic gradient descent on triples of a user
    u, a positive item i and a negative item j, drawn uniformly:

        -ln sigma(s(u, i) - s(u, j)) + regularization / 2 (|x_u|^2 + |y_i|^2 + |y_j|^2)
            + bias_regularization / 2 (c_i^2 + c_j^2)

    The loss in `history_` is the first term. Items without training interactions are never drawn,
    scored or recommended; users without any count as unknown.

    Attributes (after `fit`):
        user_vectors_: x, (n_users, dim) float32.
        item_vectors_: y, (n_items, dim) float32.
        item_bias_: c, (n_items,) float32.

    References:
        Rendle, Freudenthaler, Gantner, Schmidt-Thieme: BPR: Bayesian Personalized Ranking from
        Implicit Feedback. UAI 2009.

    Example:
        >>> from transcf import BPR, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = BPR(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "BPR"
    # The decay of the learning rate depends on the number of epochs.
    _resumable_params: ClassVar[tuple[str, ...]] = ("patience",)
    __init__ = init_from_params(BPRSettings)

    #: The learning rate decays, and defaults depend on the data.
    _revision: ClassVar[int] = 2

    _supports_distributed: ClassVar[bool] = True

    def _learn(self, run: TrainingRun) -> FittedScorer:
        settings = run.resolved(self.settings)
        problem = run.problem(settings)
        return run.run(run.solver(LogisticSolver, problem, settings), settings, self._restore)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: BPRSettings) -> FittedScorer:
        return logistic_factors(self.name, settings, arrays, known)


def logistic_factors(
    name: str, settings: BPRSettings, arrays: Arrays, known: TrainingData
) -> Factors:
    """Return the fitted scorer of BPR and AoBPR."""
    vectors = stored_factors(arrays, known, settings.dim)
    bias = stored_bias(arrays, known) if settings.item_bias else None
    return Factors(known, name, *vectors, HistoryMap(known, *vectors), bias=bias)


class LogisticSolver(PairwiseSolver[BPRSettings]):
    """Steps on `-ln sigma(s(u, i) - s(u, j))` with L2 regularization."""

    def _rates(self, number: type[np.floating[Any]], rate: float) -> LogisticRates | RankedRates:
        settings = self._settings
        bias_rate = rate * settings.item_bias
        assert settings.bias_regularization is not None, "a fit resolves it"
        return LogisticRates(
            learning_rate=number(rate),
            keep=number(1 - rate * settings.regularization),
            bias_rate=number(bias_rate),
            bias_keep=number(1 - bias_rate * settings.bias_regularization),
        )

    def _prepare(self, dtype: npt.DTypeLike) -> NoExtra | Rankings:
        return NoExtra()
