"""AoBPR: BPR with adaptive oversampling of the negatives that matter."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from transcf.io.tensors import Arrays
from transcf.kernels.ranked_draws import RankedRates, Rankings, rank_by_factors
from transcf.models.base import Recommender, init_from_params
from transcf.models.bpr import BPRSettings, LogisticSolver, logistic_factors
from transcf.models.fitted import FittedScorer
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun
from transcf.models.training_data import TrainingData
from transcf.models.triples import Problem


@settings()
class AoBPRSettings(BPRSettings):
    """Hyper-parameters of AoBPR."""

    rank_share: float = setting(
        0.5,
        "Scale of the ranks as a share of the items: smaller draws harder negatives.",
        above=0,
        high=10,
    )


class AoBPR(Recommender[AoBPRSettings]):
    """BPR with negatives that the model ranks high.

    Most triples of BPR have no gradient. Score and loss are those of `BPR`; the item j of a triple
    is drawn in three steps: a factor f
    with probability ~ |x_uf| sd_f, sd_f being the standard deviation of y_if over the items; a
    rank r with probability ~ exp(-r / (rank_share I)) among I items; and j is the r-th item by
    y_jf, from the largest if x_uf is positive and from the smallest otherwise. Where the user
    has that item, the next one in the ranking is taken. Rankings are kept for a while, and for
    random parts of the items that fit the cache.

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
    # The decay of the learning rate depends on the number of epochs.
    _resumable_params: ClassVar[tuple[str, ...]] = ("patience",)
    __init__ = init_from_params(AoBPRSettings)

    #: The learning rate decays, and defaults depend on the data.
    _revision: ClassVar[int] = 2

    _supports_distributed: ClassVar[bool] = True

    def _learn(self, run: TrainingRun) -> FittedScorer:
        settings = run.resolved(self.settings)
        problem = run.problem(settings)
        return run.run(run.solver(AdaptiveSolver, problem, settings), settings, self._restore)

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: AoBPRSettings
    ) -> FittedScorer:
        return logistic_factors(self.name, settings, arrays, known)


class AdaptiveSolver(LogisticSolver):
    """The solver of BPR with negatives from the top of rankings by single factors.

    A block has its own rankings. Its items are a random part of all, so a rank in the block counts
    for the same share of all items. The rankings are updated once in I log I triples (I items), as
    in the paper, but at least once per epoch and at most once per round.
    """

    def __init__(self, problem: Problem, settings: AoBPRSettings, **layout: Any) -> None:
        super().__init__(problem, settings, **layout)
        self._rank_share = settings.rank_share
        self._rankings = np.zeros((settings.dim, len(problem.active_items)), np.int32)

    def _rates(self, number: type[np.floating[Any]], rate: float) -> RankedRates:
        share = self._rank_share
        rates = super()._rates(number, rate)._asdict()
        return RankedRates(**rates, rank_share=share, rank_reach=-math.expm1(-1 / share))

    def _cuts(self) -> list[int]:
        n_blocks = len(self._builder.strata.starts) - 1
        n_active = len(self._problem.active_items)
        renewals = max(1, int(self._layout.triples / (n_active * max(1.0, np.log2(n_active)))))
        cuts: list[int] = np.unique(np.linspace(0, n_blocks, renewals + 1).astype(int)).tolist()
        return cuts

    def _prepare(self, dtype: npt.DTypeLike) -> Rankings:
        items = self._rows.items
        rank_by_factors(items, self._dim, self._builder.strata.starts, self._rankings)
        vectors = items.reshape(-1, self._dim)[:, : self._settings.dim]
        return Rankings(self._rankings, vectors.std(axis=0, dtype=np.float64).astype(dtype))
