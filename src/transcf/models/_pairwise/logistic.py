"""The solvers of BPR and AoBPR: a logistic loss, with negatives drawn evenly or by rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from transcf.kernels.pairwise import LogisticRates, NoExtra
from transcf.kernels.ranked_draws import RankedRates, Rankings, rank_by_factors
from transcf.models._triples import Problem

from .solver import PairwiseSolver, Start


@dataclass(frozen=True)
class LogisticLoss:
    """Step size and L2 weights; without `item_bias` biases stay at zero."""

    learning_rate: float
    regularization: float
    item_bias: bool
    bias_regularization: float


class LogisticSolver(PairwiseSolver):
    """Takes steps on `-ln sigma(s(u, i) - s(u, j))` and L2 of all numbers involved."""

    def __init__(self, problem: Problem, start: Start, loss: LogisticLoss, **layout: Any) -> None:
        """Prepare; `layout` are the other arguments of `PairwiseSolver`."""
        super().__init__(problem, start, **layout)
        self._loss = loss

    def _rates(self, number: type[np.floating[Any]]) -> LogisticRates | RankedRates:
        loss = self._loss
        rate, bias_rate = loss.learning_rate, loss.learning_rate * loss.item_bias
        keep, bias_keep = 1 - rate * loss.regularization, 1 - bias_rate * loss.bias_regularization
        return LogisticRates(
            learning_rate=number(rate),
            keep=number(keep),
            bias_rate=number(bias_rate),
            bias_keep=number(bias_keep),
        )

    def _prepare(self, dtype: npt.DTypeLike) -> NoExtra | Rankings:
        return NoExtra()


class AdaptiveSolver(LogisticSolver):
    """The same with negatives from the top of rankings by single factors.

    A block has its own rankings. Its items are a random part of all, so that a rank in the block
    stands for the same share of all items. The rankings are renewed once in I log I triples (I
    items), as in the paper, but at least once per epoch and at most once per round.
    """

    def __init__(
        self, problem: Problem, start: Start, loss: LogisticLoss, rank_share: float, **layout: Any
    ) -> None:
        """Prepare; `rank_share` is the scale of the ranks as a share of the items."""
        super().__init__(problem, start, loss, **layout)
        self._rank_share = rank_share
        self._rankings = np.zeros((start.dim, len(problem.active_items)), np.int32)

    def _rates(self, number: type[np.floating[Any]]) -> RankedRates:
        share = self._rank_share
        rates = super()._rates(number)._asdict()
        return RankedRates(**rates, rank_share=share, rank_reach=-math.expm1(-1 / share))

    def _cuts(self) -> list[int]:
        n_blocks = len(self._dealer.strata.starts) - 1
        n_active = len(self._problem.active_items)
        renewals = max(1, int(self._triples / (n_active * max(1.0, np.log2(n_active)))))
        cuts: list[int] = np.unique(np.linspace(0, n_blocks, renewals + 1).astype(int)).tolist()
        return cuts

    def _prepare(self, dtype: npt.DTypeLike) -> Rankings:
        items = self._rows.items
        rank_by_factors(items, self._dim, self._dealer.strata.starts, self._rankings)
        vectors = items.reshape(-1, self._dim)[:, : self._start.dim]
        return Rankings(self._rankings, vectors.std(axis=0, dtype=np.float64).astype(dtype))
