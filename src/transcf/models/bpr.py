"""BPR: Bayesian personalized ranking, and AoBPR: the same with harder negatives."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np

from transcf.io.tensors import Arrays
from transcf.kernels.pairwise import LogisticRates, RankedRates, Rankings, rank_by_factors
from transcf.models.base import Recommender, init_from_params
from transcf.models.factors import Factors, HistoryMap, stored_bias, stored_factors
from transcf.models.families import EpochRule, LogSizes, TripleSettings
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun
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
        found, weight = super().for_log(sizes), self.bias_regularization
        if weight is None:
            weight = _BIAS_REGULARIZATION / sizes.item_skew
        return replace(found, bias_regularization=weight)


class LogisticSolver(PairwiseSolver[BPRSettings]):
    """Steps on `-ln sigma(s(u, i) - s(u, j))` with L2 regularization."""

    def _rates(self, rate: float) -> LogisticRates:
        settings, number = self._settings, self._dtype
        bias_rate = rate * settings.item_bias
        assert settings.bias_regularization is not None, "a fit resolves it"
        return LogisticRates(
            learning_rate=number(rate),
            keep=number(1 - rate * settings.regularization),
            bias_rate=number(bias_rate),
            bias_keep=number(1 - bias_rate * settings.bias_regularization),
        )


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
    __init__ = init_from_params(BPRSettings)

    #: The learning rate decays, and defaults depend on the data.
    _revision: ClassVar[int] = 2
    _supports_distributed: ClassVar[bool] = True
    _solver: ClassVar[type[LogisticSolver]] = LogisticSolver

    def _learn(self, run: TrainingRun) -> FittedScorer:
        return run.run(run.solver(self._solver, run.problem()), self._restore)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: BPRSettings) -> FittedScorer:
        vectors = stored_factors(arrays, known, settings.dim)
        bias = stored_bias(arrays, known) if settings.item_bias else None
        return Factors(known, self.name, *vectors, HistoryMap(known, *vectors), bias=bias)


@settings()
class AoBPRSettings(BPRSettings):
    """Hyper-parameters of AoBPR."""

    rank_share: float = setting(
        0.5,
        "Scale of the ranks as a share of the items: smaller draws harder negatives.",
        above=0,
        high=10,
    )


class AdaptiveSolver(LogisticSolver):
    """The solver of BPR with negatives from the top of rankings by single factors.

    A block of items, a random part of all, has its own rankings. They are updated once in I log I
    triples (I items), as in the paper, but at least once per epoch and at most once per round.
    """

    _settings: AoBPRSettings

    def _rates(self, rate: float) -> RankedRates:
        return RankedRates(*super()._rates(rate))

    def _cuts(self) -> list[int]:
        n_active = len(self._problem.active_items)
        per_update = n_active * max(1.0, np.log2(n_active))
        return self._layout.cuts(max(1, int(self._layout.triples / per_update)))

    def _prepare(self) -> Rankings:
        vectors = self._views()[1]
        rankings = np.zeros(vectors.shape[::-1], np.int32)
        rank_by_factors(self._rows.items, self._dim, self._builder.strata.starts, rankings)
        spread = vectors.std(axis=0, dtype=np.float64).astype(self._dtype)
        share = self._settings.rank_share
        return Rankings(rankings, spread, share, -math.expm1(-1 / share))


class AoBPR(BPR):
    """BPR with negatives that the model ranks high.

    Most triples of BPR have no gradient. Score and loss are those of `BPR`; the item j of a triple
    is drawn in three steps: a factor f with probability ~ |x_uf| sd_f, sd_f being the standard
    deviation of y_if over the items; a rank r with probability ~ exp(-r / (rank_share I)) among I
    items; and j is the r-th item by y_jf, from the largest if x_uf is positive and from the
    smallest otherwise. Where the user has that item, the next one in the ranking is taken. Rankings
    are kept for a while, and for random parts of the items that fit the cache.

    Attributes (after `fit`):
        user_vectors_: x, (n_users, dim) float32.
        item_vectors_: y, (n_items, dim) float32.
        item_bias_: c, (n_items,) float32.

    References:
        Rendle, Freudenthaler: Improving Pairwise Learning for Item Recommendation from Implicit
        Feedback. WSDM 2014.

    Example:
        >>> from transcf import AoBPR, synthesize
        >>> log = synthesize(users=200, items=80, interactions=3000, seed=0)
        >>> model = AoBPR(dim=16, epochs=5).fit(log)
        >>> model.recommend(log.users.series[0], k=3).shape
        (3, 4)
    """

    name = "AoBPR"
    __init__ = init_from_params(AoBPRSettings)
    _solver = AdaptiveSolver
