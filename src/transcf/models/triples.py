# ruff: noqa: D102  (methods of the base class are documented there)
"""Stochastic gradient descent on triples (u, i, j): a user, a positive and a negative item.

`Problem` holds the interactions, `StratumLayout` the groups of users and blocks of items.
`StratumBuilder` sorts the interactions into the strata of an epoch, and `PairwiseSolver` trains.
Items are assigned to blocks that fit into a cache, and both items of a triple come from one block.
Blocks are drawn again in every epoch, so each pair of items meets as often as any other.

What a step does depends on the class of what `PairwiseSolver._rates` returns. The kernel of a step
is registered for that class with `visit_for` (`kernels/rounds.py`): `kernels/translation.py` for
TransCF, `kernels/pairwise.py` for BPR, AoBPR and CML.

An epoch is a function of (vectors, seed, epoch number): what is drawn and summed depends neither on
earlier epochs nor on the number of threads.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.interactions import Interactions
from transcf.io.tensors import Arrays
from transcf.kernels import Array, aligned_zeros
from transcf.kernels.ahead import Job, compile_ahead, is_first_use
from transcf.kernels.rounds import PackedRows, Rounds, run_rounds, take_part
from transcf.kernels.rows import copy_rows, padded_width
from transcf.kernels.sampling import Strata, count_strata, deal_items, fill_strata, locate
from transcf.models.communicator import Communicator
from transcf.models.event_weights import EVEN, EventWeights, InteractionWeights
from transcf.models.factors import first_vectors
from transcf.models.families import TripleSettings
from transcf.models.training import EpochStats

BLOCK_BYTES = 320 * 1024  # a block of item rows stays in a core's L2 cache, with room to spare
SMALLEST_BLOCK = 64  # items, so that negatives stay varied
STRATUM_TRIPLES = 4000  # enough work to pay for loading a block into the cache
FEWEST_BLOCKS = 8  # unless they would be too small
FEWEST_GROUPS, MOST_GROUPS = 16, 64  # many small shares of a round keep all threads busy


@dataclass(frozen=True)
class Problem:
    """Training interactions."""

    by_user: Csr  # items of each user
    item_counts: Array  # (n_items,) interactions of each item, including those of other shards
    #: (nnz,) relative frequencies of drawing an interaction of a user, 1 on average over the user;
    #: empty if all are equal
    weights: Array = field(default_factory=lambda: EVEN)
    #: (n_users,) relative frequencies of drawing a user, 1 on average; empty if all are equal
    users: Array = field(default_factory=lambda: EVEN)

    @classmethod
    def of(cls, log: Interactions, event_weights: EventWeights) -> Self:
        """Take the interactions of a log, and compute the weights of its events."""
        found = InteractionWeights.of(log, event_weights)
        users = found.of_users if found.between_users else EVEN
        return cls(log.by_user, log.by_item.counts, found.within_users, users)

    def part(self, first: int, end: int) -> Problem:
        """Return the users first..end-1, renumbered from 0, with all items."""
        begin, stop = self.user_indptr[[first, end]]
        return replace(
            self,
            by_user=self.by_user.between(first, end),
            weights=self.weights[begin:stop] if len(self.weights) else self.weights,
            users=self.users[first:end] if len(self.users) else self.users,
        )

    @property
    def user_indptr(self) -> Array:
        """Where the interactions of users start, (n_users + 1,) int64."""
        return self.by_user.indptr

    @property
    def n_users(self) -> int:
        return self.by_user.n_rows

    @property
    def n_items(self) -> int:
        return self.by_user.n_columns

    @cached_property
    def active_items(self) -> Array:
        """Rows of the items with interactions, (n_active,) int32; the others are never drawn."""
        return np.flatnonzero(self.item_counts).astype(np.int32)

    def samples_of_users(self, per_user: float | None) -> Array:
        """Return the triples of every user and epoch, (n_users,).

        A constant, or one per interaction, times the relative frequency of the user.
        """
        sizes = self.by_user.counts
        samples = sizes.astype(np.float64) if per_user is None else (sizes > 0) * float(per_user)
        if not len(self.users):
            return samples
        scale = 1.0 if per_user is None else self.users[sizes > 0].mean()
        return samples * self.users / scale


@dataclass(frozen=True)
class StratumLayout:
    """Groups of users and blocks of items; neither depends on threads or processes."""

    groups: Array  # boundaries of the groups of users, (n_groups + 1,)
    n_blocks: int  # blocks of items, at least as many as there are groups in all
    samples: Array  # triples of every user and epoch, (n_users,)
    triples: float  # triples of an epoch, including other shards
    interactions: int  # interactions, including other shards
    first_group: int = 0  # number of groups in the shards before this one

    @classmethod
    def of(
        cls, problem: Problem, row_length: int, samples: Array, block_bytes: int = BLOCK_BYTES
    ) -> Self:
        """Divide users into groups and items into blocks."""
        n_active = len(problem.active_items)
        wanted = -(-n_active * row_length * 4 // block_bytes)
        n_blocks = max(1, wanted, min(FEWEST_BLOCKS, n_active // SMALLEST_BLOCK))
        triples = samples.sum()
        n_groups = int(np.clip(triples / (n_blocks * STRATUM_TRIPLES), FEWEST_GROUPS, MOST_GROUPS))
        n_groups = min(n_groups, n_blocks)
        groups = np.arange(n_groups + 1) * problem.n_users // n_groups
        interactions = int(problem.by_user.indptr[-1])
        return cls(groups, n_blocks, samples, float(triples), interactions)

    @property
    def n_groups(self) -> int:
        return len(self.groups) - 1

    def cuts(self, parts: int) -> list[int]:
        """Divide the rounds of an epoch into at most so many parts; returns their boundaries."""
        return np.unique(np.linspace(0, self.n_blocks, parts + 1).astype(int)).tolist()

    def part(self, first: int, end: int) -> Self:
        """Return the groups first..end-1, with users renumbered from 0."""
        users = slice(int(self.groups[first]), int(self.groups[end]))
        return replace(
            self,
            groups=self.groups[first : end + 1] - users.start,
            samples=self.samples[users],
            first_group=self.first_group + first,
        )


class StratumBuilder:
    """Assigns items to blocks at random and sorts the interactions into strata, in every epoch."""

    def __init__(self, problem: Problem, layout: StratumLayout) -> None:
        self._problem = problem
        n_active, n_blocks = len(problem.active_items), layout.n_blocks
        nnz = len(problem.by_user.indices)
        starts = np.arange(n_blocks + 1) * n_active // n_blocks
        # One entry per interaction: smaller types need less memory bandwidth.
        entry = np.int32 if nnz < 2**31 else np.int64
        slot = np.uint16 if np.diff(starts).max() < 2**16 else np.int32
        self.strata = Strata(
            groups=layout.groups,
            starts=starts,
            visits=np.zeros(layout.n_groups * n_blocks + 1, np.int64),
            visitor=np.zeros(nnz + 1, np.int32),
            first=np.zeros(nnz + 1, entry),
            slots=np.zeros(nnz, slot),
            shares=np.zeros(len(problem.weights), np.float32),
        )

    def deal(self, seed: int, epoch: int) -> Array:
        """Fill `strata` for an epoch; returns the item rows in block order, (n_active,) int32."""
        problem, strata = self._problem, self.strata
        order = deal_items(problem.active_items, seed, epoch)
        block, slot = locate(order, strata.starts, problem.n_items)
        indptr, indices = problem.by_user.indptr, problem.by_user.indices
        shape = len(strata.groups) - 1, len(strata.starts) - 1
        visits, entries, latest = np.zeros((3, *shape), np.int64)
        count_strata(indptr, indices, strata.groups, block, latest, visits, entries)
        np.cumsum(visits, out=strata.visits[1:])
        next_visit = strata.visits[:-1].reshape(shape).copy()
        next_entry = (np.cumsum(entries) - entries.ravel()).reshape(shape)
        weights, latest = problem.weights, np.zeros_like(entries)
        fill_strata(indptr, indices, weights, block, slot, latest, next_visit, next_entry, strata)
        n_visits = strata.visits[-1]
        strata.first[n_visits], strata.visitor[n_visits] = len(indices), 0
        return order


def rank_weights(negatives: int, n_items: int | None) -> Array:
    """Return the weight of a step by the number of violations among the negatives, (m + 1,).

    It is 1 if there are any, or log(1 + I v / m) / log(1 + I) for v violations among m negatives
    and I items, which estimates the rank of the positive item as in CML.
    """
    violations = np.arange(negatives + 1)
    if n_items is None:
        return (violations > 0).astype(np.float64)
    return np.asarray(np.log1p(n_items * violations / negatives) / np.log1p(n_items))


S = TypeVar("S", bound=TripleSettings)


class PairwiseSolver(ABC, Generic[S]):
    """Trains vectors of users and items and item biases; a `Trainable`.

    A subclass defines the step (`_rates`), and what else an epoch does. Vectors are trained in
    packed rows, padded to whole SIMD lanes, items in the order of blocks.

    Args:
        problem: The interactions.
        settings: Those of the model.
        dtype: float32, or float64 to compare with formulas.
        layout: Groups and blocks of a shard, if a process has some of the users only.
        comm: The communicator, in that case; vectors come by `load_tensors` then.
    """

    #: Vectors in the row of a user and of an item, of which the first is learned.
    _user_vectors: ClassVar[int] = 1
    _item_vectors: ClassVar[int] = 1

    def __init__(
        self,
        problem: Problem,
        settings: S,
        dtype: type[np.floating[Any]] = np.float32,
        layout: StratumLayout | None = None,
        comm: Communicator | None = None,
    ) -> None:
        self._problem, self._settings, self._dtype = problem, settings, dtype
        self._layout = layout or self.layout(problem, settings)
        self._comm = comm or Communicator()
        self._tensors = first_tensors(problem, settings, dtype) if comm is None else {}
        sizes = np.maximum(1, problem.by_user.counts)
        self._samples_per_item = (self._layout.samples / sizes).astype(np.float32)
        self._dim = padded_width(settings.dim)
        self._builder = StratumBuilder(problem, self._layout)
        n_active = len(problem.active_items)
        self._rows: PackedRows[Any] = PackedRows(
            users=aligned_zeros((problem.n_users * self._user_vectors * self._dim,), dtype),
            items=aligned_zeros((n_active * self._item_vectors * self._dim,), dtype),
            bias=np.zeros(n_active, dtype),
            extra=(),
        )

    @classmethod
    def layout(cls, problem: Problem, settings: S, block_bytes: int = BLOCK_BYTES) -> StratumLayout:
        """Divide all users into groups and all items into blocks."""
        samples = problem.samples_of_users(settings.samples_per_user)
        width = cls._item_vectors * padded_width(settings.dim)
        return StratumLayout.of(problem, width, samples, block_bytes)

    def tensors(self) -> Arrays:
        return self._tensors

    def load_tensors(self, tensors: Arrays) -> None:
        # Kernels would be compiled again for read-only arrays.
        self._tensors = {n: np.require(tensor, requirements="W") for n, tensor in tensors.items()}

    def run_epoch(self, number: int) -> EpochStats:
        """Train one epoch; tensors that were returned before do not change."""
        seed, rate = self._settings.random_state, self._settings.rate_at(number)
        order, strata = self._builder.deal(seed, number), self._builder.strata
        self._pack(order)
        rates, samples = self._rates(rate), self._samples_per_item
        totals = np.zeros((len(strata.visits) - 1, 2))
        for begin, end in pairwise(self._cuts()):
            rows = self._rows._replace(extra=self._prepare())
            run = partial(run_rounds, rates, rows, self._dim, strata, samples, totals=totals)
            rounds = Rounds(seed, number, begin, end, self._layout.first_group)
            self._comm.run_rounds(run, rows, strata, rounds)
            self._settle(rates)
        loss, triples = np.sum(self._comm.all_of(totals)[0], axis=0).tolist()
        finite = self._unpack(order, int(triples), rate)
        return EpochStats(loss / max(1, triples) if finite else math.nan, int(triples))

    def compile_kernels(self) -> None:
        """Compile the kernel of the rounds, and let another process compile the others."""
        if not is_first_use(take_part):
            return
        seed, extra = self._settings.random_state, []
        rates = self._rates(self._settings.learning_rate)

        def others() -> None:  # called below by `Job.shared`, which notes kernels and runs none
            self._pack(self._builder.deal(seed, 1))
            extra.append(self._prepare())
            self._settle(rates)

        compile_ahead(Job.shared(others))
        rows, strata, samples = self._rows, self._builder.strata, self._samples_per_item
        rows, totals = rows._replace(extra=extra[0]), np.zeros((0, 2))
        run_rounds(rates, rows, self._dim, strata, samples, Rounds(seed, 1, 0, 0), totals)

    # -- what a subclass defines -------------------------------------------------------------

    @abstractmethod
    def _rates(self, rate: float) -> Any:
        """Return the step sizes of an epoch, of type `_dtype`; their class selects the step."""

    def _cuts(self) -> list[int]:
        """Return the rounds before which `_prepare` is called, and the number of rounds."""
        return [0, self._layout.n_blocks]

    def _prepare(self) -> Any:
        """Prepare the next rounds; return further arrays that their steps read."""
        return ()

    def _settle(self, rates: Any) -> None:
        """Finish the rounds before the next ones are prepared."""

    def _finish(self, users: Array, items: Array, triples: int, rate: float) -> bool:
        """Change the vectors of users and of active items at the end of an epoch, in place.

        Returns:
            Whether their norms are finite.
        """
        return True

    # -- packed rows -------------------------------------------------------------------------

    def _views(self) -> tuple[Array, Array]:
        """Return the learned vectors in the packed rows, (n_users, dim) and (n_active, dim)."""
        users = self._rows.users.reshape(-1, self._user_vectors, self._dim)
        items = self._rows.items.reshape(-1, self._item_vectors, self._dim)
        return users[:, 0, : self._settings.dim], items[:, 0, : self._settings.dim]

    def _pack(self, order: Array) -> None:
        users, items = self._views()
        copy_rows(users, self._tensors["user_vectors"])
        copy_rows(items, self._tensors["item_vectors"], order)
        self._rows.bias[:] = self._tensors["item_bias"][order]

    def _unpack(self, order: Array, triples: int, rate: float) -> bool:
        """Copy the vectors back; items without interactions do not change."""
        users, trained = (np.empty(view.shape, view.dtype) for view in self._views())
        for copy, view in zip((users, trained), self._views(), strict=True):
            copy_rows(copy, view)
        finite = self._finish(users, trained, triples, rate)
        items, bias = self._tensors["item_vectors"].copy(), self._tensors["item_bias"].copy()
        items[order], bias[order] = trained, self._rows.bias
        self._tensors = {"user_vectors": users, "item_vectors": items, "item_bias": bias}
        return finite


def first_tensors(
    problem: Problem, settings: TripleSettings, dtype: npt.DTypeLike = np.float32
) -> Arrays:
    """Draw normal vectors of standard deviation `init_scale`; biases are 0."""
    shape = (problem.n_users, problem.n_items)
    generator = np.random.default_rng(settings.random_state)
    users, items = first_vectors(shape, settings.dim, settings.init_scale, generator, dtype)
    bias = np.zeros(problem.n_items, dtype)
    return {"user_vectors": users, "item_vectors": items, "item_bias": bias}
