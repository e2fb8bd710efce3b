"""Hyper-parameters of TransCF, and its solver.

It trains in cache-sized strata with stochastic neighbour gradients, O(dim) per triple.
An epoch is a function of (parameters, seed, epoch number) and does not depend on the number of
threads.

The expected step equals the exact gradient with one exception: the step of a user's mean goes to an
item in the block of the sample, so with several blocks it meets the sample's own items too often.
Tests bound the error of the mean step of items by a tenth of its length; steps of users have none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transcf.kernels import Array, aligned_zeros
from transcf.kernels.neighborhood import ItemPlacement, average_items, push_to_users
from transcf.kernels.translation import TransCFRates, TranslationExtra
from transcf.models.communicator import Communicator
from transcf.models.event_weights import EventWeights
from transcf.models.factors import NORM_POWERS, NormConstraint, constrain_norms
from transcf.models.families import TripleSettings
from transcf.models.params import Choice, setting, settings
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.models.triples import PairwiseSolver, Problem, StratumLayout, rank_weights

#: Weight of the squared biases of a triple in the loss, if items have biases.
BIAS_DECAY = 0.01
#: Step size of biases, relative to the learning rate: a bias moves in every triple of its item.
BIAS_RATE = 0.2


@settings()
class ObjectiveSettings:
    """Hyper-parameters of the published loss."""

    margin: float = setting(1.0, "Margin of the hinge loss.", low=0)
    reg_distance: float = setting(
        0.05, "Weight of the distance between users and their items in the loss.", low=0
    )
    reg_neighborhood: float = setting(
        0.2, "Weight of the distance between vectors and their neighbourhoods in the loss.", low=0
    )


@settings(init_scale=0.01, event_weights=EventWeights(recency=4.0))
class TransCFSettings(TripleSettings, ObjectiveSettings):
    """Hyper-parameters of TransCF; learning rate and regularizers are per triple."""

    variant: str = setting(
        "translation",
        "The score: "
        + " ".join(f'"{name}": {kind.__doc__}' for name, kind in SCORE_FUNCTIONS.items()),
        rule=Choice(tuple(SCORE_FUNCTIONS)),
    )
    tie_neighbors: bool = setting(
        False, "Whether the neighbourhood term also moves the neighbours, as in the paper."
    )
    negatives: int = setting(
        20, "Negative items drawn per triple, of which the hardest is used.", low=1, high=1000
    )
    rank_weighting: bool = setting(
        True, "Whether triples with more violating negatives have a larger weight."
    )
    item_bias: bool = setting(True, "Whether items have a bias.")
    neighborhood_updates: int = setting(
        4,
        "Updates of the neighbourhood means per epoch; fewer where they would take longer than "
        "the training between them.",
        low=1,
    )
    norm_constraint: NormConstraint = setting(
        "norm",
        "Vectors are projected into the unit ball after each epoch, those of users after each "
        "visit, and within an epoch any vector that is ten times as long. "
        '"norm" divides by the norm, "squared" by the squared norm (as printed in the paper), '
        '"none" does not constrain them.',
    )

    @property
    def title(self) -> str:
        """Name of the model in tables."""
        return SCORE_FUNCTIONS[self.variant].title

    @property
    def bias_decay(self) -> float:
        """Weight of squared biases in the loss."""
        return BIAS_DECAY

    def rank_weights(self, n_items: int) -> Array:
        """Return the weight of the hinge by the number of violations among the negatives."""
        return rank_weights(self.negatives, n_items if self.rank_weighting else None)


class TransCFSolver(PairwiseSolver[TransCFSettings]):
    """Trains TransCF and its ablations; the rows are [a | q] of users and [b | n | m] of items."""

    _user_vectors, _item_vectors = 2, 3

    def __init__(
        self, problem: Problem, settings: TransCFSettings,
        dtype: type[np.floating[Any]] = np.float32, layout: StratumLayout | None = None,
        comm: Communicator | None = None,
    ) -> None:  # fmt: skip
        super().__init__(problem, settings, dtype, layout, comm)
        self._user_share, self._item_share = (
            (1 / np.maximum(1, counts)).astype(dtype)
            for counts in (problem.by_user.counts, problem.item_counts)
        )
        # Nearly that of the base class: rounded like the shares, on which stored results depend.
        self._samples_per_item = (self._layout.samples * self._user_share).astype(np.float32)
        weights = settings.rank_weights(len(problem.active_items)).astype(dtype)
        self._extra = TranslationExtra(
            pending=aligned_zeros((self._layout.n_groups, self._dim), dtype), rank_weights=weights
        )

    def _rates(self, rate: float) -> TransCFRates:
        settings, number = self._settings, self._dtype
        tie = 2 * rate * settings.reg_neighborhood
        return SCORE_FUNCTIONS[settings.variant].rates(
            learning_rate=number(rate),
            margin=number(settings.margin),
            reg_distance=number(settings.reg_distance),
            reg_neighborhood=number(settings.reg_neighborhood),
            tie=number(tie),
            tie_back=number(tie if settings.tie_neighbors else 0),
            bias_rate=number(BIAS_RATE * rate),
            bias_decay=number(settings.bias_decay),
            negatives=settings.negatives,
            item_bias=settings.item_bias,
            bound=NORM_POWERS[settings.norm_constraint],
        )

    def _cuts(self) -> list[int]:
        # An update costs about as much as reading two candidates per interaction, and should not
        # take longer than the training between two updates.
        layout, settings = self._layout, self._settings
        affordable = layout.triples * (1 + settings.negatives) / (2 * max(1, layout.interactions))
        return layout.cuts(min(settings.neighborhood_updates, max(1, int(affordable))))

    def _pack(self, order: Array) -> None:
        super()._pack(order)
        places = np.zeros(self._problem.n_items, np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        by_user = self._problem.by_user
        self._placement = ItemPlacement(by_user.indptr, by_user.indices, places)
        self._placed_share = self._item_share[order]

    def _prepare(self) -> TranslationExtra:
        """Set q to the mean of each user's items, and n to the mean of each item's users."""
        rows, dim = self._rows, self._dim
        average_items(rows.users, rows.items, dim, self._placement, self._user_share)
        self._comm.average_users(rows, dim, self._builder.strata, self._placed_share)
        return self._extra

    def _settle(self, rates: TransCFRates) -> None:
        """Move users by the steps that the neighbourhoods of their items collected."""
        rows, placement, share = self._rows, self._placement, self._placed_share
        push_to_users(rows.users, rows.items, self._dim, placement, share, rates.bound)

    def _finish(self, users: Array, items: Array, triples: int, rate: float) -> bool:
        how = self._settings.norm_constraint
        return constrain_norms(users, how) and constrain_norms(items, how)
