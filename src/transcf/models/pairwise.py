"""Stochastic gradient descent on triples in cache-sized strata.

An epoch is a function of (vectors, seed, epoch number): what is dealt, drawn and summed depends
neither on earlier epochs nor on the number of threads.

Items are dealt into blocks, and a triple takes both of its items from one block. Since the blocks
are dealt anew in every epoch, each pair of items still meets as often as any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from transcf.io.tensors import Arrays
from transcf.kernels import Array, aligned_zeros
from transcf.kernels.pairwise import HingeExtra, HingeRates, LogisticRates, NoExtra
from transcf.kernels.ranked_draws import RankedRates, Rankings
from transcf.kernels.rounds import PackedRows, Rounds, run_rounds
from transcf.kernels.rows import padded_width, unpadded
from transcf.models.communicator import Communicator, sums_of
from transcf.models.families import TripleSettings
from transcf.models.init_vectors import first_vectors
from transcf.models.training import EpochStats
from transcf.models.triples import BLOCK_BYTES, Dealer, Outline, Problem

S = TypeVar("S", bound=TripleSettings)


class PairwiseSolver(ABC, Generic[S]):
    """Trains vectors of users and items in epochs; the loop's `Trainable`.

    A subclass says what a step is (`_rates`), and what else an epoch does.

    Args:
        problem: What to learn from.
        settings: The model's.
        dtype: float32, or float64 to compare with formulas.
        outline: Groups and blocks, where a process has some of the users only.
        crew: Who trains, then.
    """

    def __init__(
        self,
        problem: Problem,
        settings: S,
        dtype: type[np.floating[Any]] = np.float32,
        outline: Outline | None = None,
        crew: Communicator | None = None,
    ) -> None:
        """Make room, and draw the first vectors, unless a crew is going to be given some."""
        self._problem, self._settings = problem, settings
        self._outline, self._crew = (
            outline or self.outline(problem, settings),
            crew or Communicator(),
        )
        self._tensors = _first_tensors(problem, settings, dtype) if crew is None else {}
        sizes = np.maximum(1, np.diff(problem.user_indptr))
        self._samples_per_item = (self._outline.samples / sizes).astype(np.float32)
        self._dim = padded_width(settings.dim)
        self._dealer = Dealer(problem, self._outline)
        n_active = len(problem.active_items)
        self._rows: PackedRows[NoExtra] = PackedRows(
            users=aligned_zeros((problem.n_users * self._dim,), dtype),
            items=aligned_zeros((n_active * self._dim,), dtype),
            bias=np.zeros(n_active, dtype),
            extra=NoExtra(),
        )

    @classmethod
    def outline(cls, problem: Problem, settings: S, block_bytes: int = BLOCK_BYTES) -> Outline:
        """Lay out groups and blocks for all users."""
        samples = problem.samples_of_users(settings.samples_per_user)
        return Outline.of(problem, padded_width(settings.dim), samples, block_bytes)

    def tensors(self) -> Arrays:
        """Return `user_vectors`, `item_vectors` and `item_bias`."""
        return self._tensors

    def load_tensors(self, tensors: Arrays) -> None:
        """Go on from these."""
        # Kernels are compiled anew for what they may not write to.
        self._tensors = {n: np.require(tensor, requirements="W") for n, tensor in tensors.items()}

    def run_epoch(self, number: int) -> EpochStats:
        """Train one epoch; the tensors before it stay as they are."""
        order = self._dealer.deal(self._settings.random_state, number)
        strata = self._dealer.strata
        self._pack(order)
        dtype = self._rows.users.dtype
        rates = self._rates(dtype.type, self._settings.rate_at(number))
        totals = np.zeros((len(strata.visits) - 1, 3))
        for begin, end in pairwise(self._cuts()):
            rows = PackedRows(*self._rows[:3], extra=self._prepare(dtype))
            rounds = Rounds(
                self._settings.random_state, number, begin, end, self._outline.first_group
            )
            run = partial(self._run, rates, rows, totals)
            self._crew.run_rounds(run, rows, strata, rounds)
        loss, triples = sums_of(self._crew.all_of(totals)[0])
        self._unpack(order, triples, self._settings.rate_at(number))
        return EpochStats(loss / max(1, triples), triples)

    def _run(self, rates: Any, rows: PackedRows[Any], totals: Array, rounds: Rounds) -> None:
        strata, samples = self._dealer.strata, self._samples_per_item
        run_rounds(rates, rows, self._dim, strata, samples, rounds, totals)

    # -- what a subclass decides -------------------------------------------------------------

    @abstractmethod
    def _rates(
        self, number: type[np.floating[Any]], rate: float
    ) -> LogisticRates | RankedRates | HingeRates:
        """Return the step sizes of an epoch, as numbers of a type; their class picks the step."""

    def _cuts(self) -> list[int]:
        """Rounds at which to prepare anew, from the first to one after the last."""
        return [0, len(self._dealer.strata.starts) - 1]

    @abstractmethod
    def _prepare(self, dtype: npt.DTypeLike) -> NoExtra | HingeExtra | Rankings:
        """Get ready for the next rounds; return what else their steps look up."""

    def _finish(self, users: Array, items: Array, triples: int, rate: float) -> None:
        """Change the vectors of users and of dealt items once more at the end, in place."""

    # -- packed rows -------------------------------------------------------------------------

    def _pack(self, order: Array) -> None:
        """Copy the vectors into padded rows, items in dealt order."""
        rows, dim = self._rows, self._settings.dim
        rows.users.reshape(-1, self._dim)[:, :dim] = self._tensors["user_vectors"]
        rows.items.reshape(-1, self._dim)[:, :dim] = self._tensors["item_vectors"][order]
        rows.bias[:] = self._tensors["item_bias"][order]

    def _unpack(self, order: Array, triples: int, rate: float) -> None:
        """Copy the vectors out; items never dealt stay as they were."""
        dim = self._settings.dim
        users = unpadded(self._rows.users, self._dim, dim)
        trained = unpadded(self._rows.items, self._dim, dim)
        self._finish(users, trained, triples, rate)
        items, bias = self._tensors["item_vectors"].copy(), self._tensors["item_bias"].copy()
        items[order], bias[order] = trained, self._rows.bias
        self._tensors = {"user_vectors": users, "item_vectors": items, "item_bias": bias}


def _first_tensors(
    problem: Problem, settings: TripleSettings, dtype: type[np.floating[Any]]
) -> Arrays:
    """Draw vectors, as `PairwiseSolver.tensors` returns them."""
    shape = (problem.n_users, problem.n_items)
    generator = np.random.default_rng(settings.random_state)
    users, items = first_vectors(shape, settings.dim, settings.init_scale, generator, dtype)
    bias = np.zeros(problem.n_items, dtype)
    return {"user_vectors": users, "item_vectors": items, "item_bias": bias}
