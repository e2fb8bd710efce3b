"""The fast solver: cache-sized strata, stochastic neighbour gradients, O(dim) per triple.

An epoch is a function of (parameters, seed, epoch number) and does not depend on the number of
threads.

The expected step equals the exact gradient with one exception: the step of a user's mean goes to an
item in the block of the sample, so with several blocks it meets the sample's own items too often.
Tests bound the error of the mean step of items by a tenth of its length; steps of users have none.
"""

from itertools import pairwise

import numpy as np

from transcf.kernels import Array, aligned_zeros
from transcf.kernels.neighborhood import ItemPlacement, average_items, push_to_users
from transcf.kernels.rounds import PackedRows, Rounds, run_rounds
from transcf.kernels.rows import copy_rows, padded_width
from transcf.kernels.translation import TransCFRates, TranslationExtra
from transcf.models.communicator import Communicator, sums_of
from transcf.models.factors import NORM_POWERS, constrain_norms
from transcf.models.training import EpochStats
from transcf.models.transcf.parameters import (
    BIAS_RATE,
    Parameters,
    Solver,
    TransCFSettings,
    stats_of,
)
from transcf.models.transcf.score_functions import SCORE_FUNCTIONS
from transcf.models.triples import BLOCK_BYTES, Problem, StratumBuilder, StratumLayout

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
