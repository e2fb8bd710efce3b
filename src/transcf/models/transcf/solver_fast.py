"""Hyper-parameters of TransCF, what it learns, and its fast solver.

The fast solver trains in cache-sized strata with stochastic neighbour gradients, O(dim) per triple.
An epoch is a function of (parameters, seed, epoch number) and does not depend on the number of
threads.

The expected step equals the exact gradient with one exception: the step of a user's mean goes to an
item in the block of the sample, so with several blocks it meets the sample's own items too often.
Tests bound the error of the mean step of items by a tenth of its length; steps of users have none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.io.tensors import Arrays
from transcf.kernels import Array, aligned_zeros
from transcf.kernels.neighborhood import ItemPlacement, average_items, push_to_users, row_means
from transcf.kernels.rounds import PackedRows, Rounds, run_rounds
from transcf.kernels.rows import copy_rows, padded_width
from transcf.kernels.translation import TransCFRates, TranslationExtra
from transcf.models.communicator import Communicator, sums_of
from transcf.models.event_weights import EventWeights
from transcf.models.factors import NORM_POWERS, NormConstraint, constrain_norms, first_vectors
from transcf.models.families import TripleSettings
from transcf.models.params import setting, settings
from transcf.models.training import EpochStats
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.models.triples import BLOCK_BYTES, Problem, StratumBuilder, StratumLayout, rank_weights

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
        words=tuple(SCORE_FUNCTIONS),
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
        "Updates of the neighbourhood means per epoch (fast solver); fewer where they would take "
        "longer than the training between them.",
        low=1,
    )
    norm_constraint: NormConstraint = setting(
        "norm",
        "Vectors are projected into the unit ball after each epoch, those of users after each "
        "visit, and within an epoch any vector that is ten times as long. "
        '"norm" divides by the norm, "squared" by the squared norm (as printed in the paper), '
        '"none" does not constrain them.',
    )
    solver: Literal["fast", "exact"] = setting(
        "fast", '"exact" takes mini-batches with gradients through all neighbours.'
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


@dataclass(frozen=True)
class Parameters:
    """The learned arrays: users (n_users, dim), items (n_items, dim), item_bias (n_items,)."""

    users: Array
    items: Array
    item_bias: Array

    def neighborhoods(self, by_user: Csr, by_item: Csr) -> tuple[Array, Array]:
        """Return q, (n_users, dim), and n, (n_items, dim)."""
        q = row_means(by_user.indptr, by_user.indices, self.items)
        n = row_means(by_item.indptr, by_item.indices, self.users)
        return q, n


def first_parameters(
    problem: Problem, settings: TransCFSettings, dtype: npt.DTypeLike = np.float32
) -> Parameters:
    """Draw normal vectors of standard deviation `init_scale`; biases are 0."""
    sizes = (problem.n_users, problem.n_items)
    generator = np.random.default_rng(settings.random_state)
    users, items = first_vectors(sizes, settings.dim, settings.init_scale, generator, dtype)
    return Parameters(users, items, np.zeros(problem.n_items, dtype))


class Solver(ABC):
    """Trains TransCF in epochs; a subclass defines an epoch.

    Args:
        problem: Training data.
        settings: Hyper-parameters.
        drawn: Whether to draw first vectors; otherwise `load_tensors` has to be called first.
    """

    def __init__(self, problem: Problem, settings: TransCFSettings, drawn: bool = True) -> None:
        self.problem, self.settings = problem, settings
        if drawn:
            self._parameters = first_parameters(problem, settings)

    @abstractmethod
    def epoch(self, parameters: Parameters, number: int) -> tuple[Parameters, EpochStats]:
        """Train one epoch from `parameters`, which are not changed.

        Args:
            parameters: Where to start, float32 or float64.
            number: Number of the epoch, which keys its random numbers.

        Returns:
            The parameters after the epoch, within the norm constraint, and its statistics.
        """

    def run_epoch(self, number: int) -> EpochStats:
        """Train one epoch."""
        self._parameters, stats = self.epoch(self._parameters, number)
        return stats

    def tensors(self) -> Arrays:
        """Return `user_vectors`, `item_vectors` and `item_bias`."""
        learned = self._parameters
        return {
            "user_vectors": learned.users,
            "item_vectors": learned.items,
            "item_bias": learned.item_bias,
        }

    def load_tensors(self, tensors: Arrays) -> None:
        """Continue from these tensors."""
        names = ("user_vectors", "item_vectors", "item_bias")
        # Kernels would be compiled again for read-only arrays.
        found = (np.require(tensors[name], requirements="W") for name in names)
        self._parameters = Parameters(*found)


def stats_of(loss: float, triples: int, finite: bool) -> EpochStats:
    """Return the mean loss of a triple, NaN if any number is not finite."""
    return EpochStats(loss / max(1, triples) if finite else float("nan"), triples)


#: Items that are copied out at once.
_ROWS = 4096


class FastSolver(Solver):
    """Trains TransCF and its ablations; epochs share its memory.

    `layout` and `comm` are given if a process has some of the users only.
    """

    def __init__(
        self,
        problem: Problem,
        settings: TransCFSettings,
        *,
        layout: StratumLayout | None = None,
        comm: Communicator | None = None,
    ) -> None:
        super().__init__(problem, settings, drawn=comm is None)
        self._dim = padded_width(settings.dim)
        self._layout = layout or self.layout(problem, settings)
        self._comm = comm or Communicator()
        self._builder = StratumBuilder(problem, self._layout)
        self._strata = self._builder.strata
        self._rows: PackedRows[TranslationExtra] | None = None

    @classmethod
    def layout(
        cls, problem: Problem, settings: TransCFSettings, block_bytes: int = BLOCK_BYTES
    ) -> StratumLayout:
        """Lay out groups and blocks for all users."""
        samples = problem.samples_of_users(settings.samples_per_user)
        return StratumLayout.of(problem, 3 * padded_width(settings.dim), samples, block_bytes)

    @property
    def _renewals(self) -> int:
        """Updates of the neighbourhood means per epoch.

        An update costs about as much as reading two candidates per interaction, and should not take
        longer than the training between two updates.
        """
        triples, nnz = self._layout.triples, self._layout.interactions
        affordable = triples * (1 + self.settings.negatives) / (2 * max(1, nnz))
        return min(self.settings.neighborhood_updates, max(1, int(affordable)))

    def epoch(self, parameters: Parameters, number: int) -> tuple[Parameters, EpochStats]:
        """Train one epoch in strata."""
        order = self._builder.deal(self.settings.random_state, number)
        places = np.zeros(self.problem.n_items, np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        rows = self._pack(parameters, order)
        totals = self._train(rows, order, places, number)
        return self._unpack(rows, parameters, order, totals)

    def _pack(self, parameters: Parameters, order: Array) -> PackedRows[TranslationExtra]:
        """Copy the parameters into packed rows, items in block order."""
        dtype, dim = parameters.users.dtype, self.settings.dim
        if self._rows is None or self._rows.users.dtype != dtype:
            n_groups = len(self._strata.groups) - 1
            self._rows = PackedRows(
                users=aligned_zeros((self.problem.n_users * 2 * self._dim,), dtype),
                items=aligned_zeros((len(order) * 3 * self._dim,), dtype),
                bias=np.zeros(len(order), dtype),
                extra=TranslationExtra(
                    pending=aligned_zeros((n_groups, self._dim), dtype),
                    rank_weights=self.settings.rank_weights(len(order)).astype(dtype),
                    kept=np.empty(0, dtype),
                    steps=aligned_zeros((0,), dtype),
                ),
            )
        rows = self._rows
        copy_rows(rows.users.reshape(-1, 2, self._dim)[:, 0, :dim], parameters.users)
        copy_rows(rows.items.reshape(-1, 3, self._dim)[:, 0, :dim], parameters.items, order)
        rows.bias[:] = parameters.item_bias[order]
        return rows

    def _train(
        self,
        rows: PackedRows[TranslationExtra],
        order: Array,
        places: Array,
        number: int,
    ) -> Array:
        """Run all rounds with updates of the neighbourhoods in between; returns all totals."""
        problem, settings, dim, strata = self.problem, self.settings, self._dim, self._strata
        items = ItemPlacement(problem.user_indptr, problem.user_indices, places)
        dtype = rows.users.dtype
        rates = self._rates(dtype, number)
        user_share, item_share = (
            (1 / np.maximum(1, np.diff(indptr))).astype(dtype)
            for indptr in (problem.user_indptr, problem.item_indptr)
        )
        user_samples = (self._layout.samples * user_share).astype(np.float32)
        item_share = item_share[order]
        n_blocks = len(strata.starts) - 1
        totals = np.zeros((len(strata.visits) - 1, 3))
        cuts = np.unique(np.linspace(0, n_blocks, self._renewals + 1).astype(np.int64))

        def run(some: Rounds) -> None:
            run_rounds(rates, rows, dim, strata, user_samples, some, totals)

        for begin, end in pairwise(cuts.tolist()):
            average_items(rows.users, rows.items, dim, items, user_share)
            self._comm.average_users(rows, dim, strata, item_share)
            rounds = Rounds(settings.random_state, number, begin, end, self._layout.first_group)
            self._comm.run_rounds(run, rows, strata, rounds)
            push_to_users(rows.users, rows.items, dim, items, item_share, rates.bound)
        return self._comm.all_of(totals)[0]

    def _rates(self, dtype: np.dtype[np.floating], epoch: int) -> TransCFRates:
        settings, number = self.settings, dtype.type
        rate = settings.rate_at(epoch)
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

    def _unpack(
        self, rows: PackedRows[TranslationExtra], before: Parameters, order: Array, totals: Array
    ) -> tuple[Parameters, EpochStats]:
        """Copy the vectors out within the norm constraint; items never dealt do not change."""
        dim = self.settings.dim
        users = np.empty_like(before.users)
        copy_rows(users, rows.users.reshape(-1, 2, self._dim)[:, 0, :dim])
        finite = constrain_norms(users, self.settings.norm_constraint) and bool(
            np.isfinite(rows.bias).all()
        )
        items, bias = before.items.copy(), before.item_bias.copy()
        trained = rows.items.reshape(-1, 3, self._dim)[:, 0, :dim]
        for first in range(0, len(order), _ROWS):  # in chunks, to save memory
            some = trained[first : first + _ROWS].copy()
            finite &= constrain_norms(some, self.settings.norm_constraint)
            items[order[first : first + _ROWS]] = some
        bias[order] = rows.bias
        loss, triples = sums_of(totals)
        return Parameters(users, items, bias), stats_of(loss, triples, finite)
