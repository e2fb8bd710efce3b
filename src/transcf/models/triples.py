"""What all models share that learn from triples (u, i, j): a user, an item of theirs, one not.

`Problem` is what to learn from, `Outline` says which groups and blocks there are, `Dealer` sorts
the interactions into the strata of an epoch. A process may have some of the groups only (`part`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
import scipy.sparse as sp

from transcf.data.interactions import Interactions
from transcf.kernels import Array
from transcf.kernels.sampling import Strata, count_strata, deal_items, fill_strata, locate
from transcf.models.communicator import LazyShard
from transcf.models.event_weights import EventWeights, InteractionWeights

BLOCK_BYTES = 320 * 1024  # a block of item rows stays in a core's L2 cache, with room to spare
SMALLEST_BLOCK = 64  # items, so that negatives stay varied
STRATUM_TRIPLES = 4000  # enough work to pay for loading a block into the cache
FEWEST_BLOCKS = 8  # unless they would be too small
FEWEST_GROUPS, MOST_GROUPS = 16, 64  # many small shares of a round keep all threads busy


@dataclass(frozen=True)
class Problem:
    """The training interactions, compressed by user and by item (int64 indptr, int32 indices).

    `weights` (nnz,), in the order of `user_indices`, say how often an interaction is drawn among
    those of its user, 1 being the mean over the user; empty where all weigh the same. `users`
    (n_users,) says how often a user is drawn, 1 being the mean; empty where all are alike.
    """

    user_indptr: Array
    user_indices: Array
    item_indptr: Array
    item_indices: Array
    weights: Array = field(default_factory=lambda: np.empty(0, np.float32))
    users: Array = field(default_factory=lambda: np.empty(0))

    @classmethod
    def from_csr(cls, indptr: Array, indices: Array, n_items: int) -> Self:
        """Build both views from the items of every user."""
        shape = (len(indptr) - 1, n_items)
        by_user = sp.csr_array((np.ones(len(indices), np.int8), indices, indptr), shape=shape)
        by_user.sort_indices()
        by_item = by_user.T.tocsr()
        return cls(
            np.asarray(by_user.indptr, np.int64),
            np.asarray(by_user.indices, np.int32),
            np.asarray(by_item.indptr, np.int64),
            np.asarray(by_item.indices, np.int32),
        )

    @classmethod
    def of(cls, log: Interactions, event_weights: EventWeights | None = None) -> Self:
        """Take both views from a log, and compute the weights of its events."""
        by_user, by_item = log.by_user, log.by_item
        views = (by_user.indptr, by_user.indices, by_item.indptr, by_item.indices)
        if event_weights is None:
            return cls(*views)
        found = InteractionWeights.of(log, event_weights)
        users = found.of_users if found.between_users else np.empty(0)
        return cls(*views, weights=found.within_users, users=users)

    def part(self, first: int, end: int) -> Problem | LazyShard:
        """Keep the users first..end-1, who are counted from 0 then; items count as before."""
        begin, stop = self.user_indptr[[first, end]]
        return replace(
            self,
            user_indptr=self.user_indptr[first : end + 1] - begin,
            user_indices=self.user_indices[begin:stop],
            item_indices=np.empty(0, np.int32),  # nobody who trains in rounds looks at it
            weights=self.weights[begin:stop] if len(self.weights) else self.weights,
            users=self.users[first:end] if len(self.users) else self.users,
        )

    @property
    def n_users(self) -> int:
        """Number of user rows."""
        return len(self.user_indptr) - 1

    @property
    def n_items(self) -> int:
        """Number of item rows."""
        return len(self.item_indptr) - 1

    @cached_property
    def active_items(self) -> Array:
        """Rows of the items with interactions, (n_active,) int32; the others are never drawn."""
        return np.flatnonzero(np.diff(self.item_indptr)).astype(np.int32)

    def samples_of_users(self, per_user: float | None) -> Array:
        """Triples of every user and epoch, (n_users,): a constant, or one per interaction.

        Times how often users are drawn, where that differs.
        """
        sizes = np.diff(self.user_indptr)
        samples = sizes.astype(np.float64) if per_user is None else (sizes > 0) * float(per_user)
        if not len(self.users):
            return samples
        scale = 1.0 if per_user is None else self.users[sizes > 0].mean()
        return samples * self.users / scale


@dataclass(frozen=True)
class Outline:
    """Groups of users and blocks of items; neither depends on threads or processes.

    Attributes:
        groups: Where the groups of users begin, and where the last one ends, (n_groups + 1,).
        n_blocks: Blocks of items, at least as many as there are groups in all.
        samples: Triples of every user and epoch, (n_users,).
        triples: Triples of an epoch, those of other parts included.
        interactions: Interactions, those of other parts included.
        first_group: How many groups other parts have before this one.
    """

    groups: Array
    n_blocks: int
    samples: Array
    triples: float
    interactions: int
    first_group: int = 0

    @classmethod
    def of(
        cls, problem: Problem, row_length: int, samples: Array, block_bytes: int = BLOCK_BYTES
    ) -> Self:
        """Lay out groups and blocks.

        Args:
            problem: The interactions.
            row_length: float32 numbers in the row of an item.
            samples: Triples of every user and epoch, (n_users,).
            block_bytes: Largest size of a block's rows.
        """
        n_active = len(problem.active_items)
        wanted = -(-n_active * row_length * 4 // block_bytes)
        n_blocks = max(1, wanted, min(FEWEST_BLOCKS, n_active // SMALLEST_BLOCK))
        triples = samples.sum()
        n_groups = int(np.clip(triples / (n_blocks * STRATUM_TRIPLES), FEWEST_GROUPS, MOST_GROUPS))
        n_groups = min(n_groups, n_blocks)
        groups = np.arange(n_groups + 1) * problem.n_users // n_groups
        interactions = int(problem.user_indptr[-1])
        return cls(groups, n_blocks, samples, float(triples), interactions)

    @property
    def n_groups(self) -> int:
        """Groups of this part."""
        return len(self.groups) - 1

    def part(self, first: int, end: int) -> Self:
        """Keep the groups first..end-1, whose users are counted from 0 then."""
        users = slice(int(self.groups[first]), int(self.groups[end]))
        return replace(
            self,
            groups=self.groups[first : end + 1] - users.start,
            samples=self.samples[users],
            first_group=self.first_group + first,
        )


class Dealer:
    """Deals the items into blocks and sorts the interactions into strata, anew in every epoch.

    Args:
        problem: the interactions.
        outline: groups and blocks.
    """

    def __init__(self, problem: Problem, outline: Outline) -> None:
        """Make room for the strata."""
        self._problem = problem
        n_active, n_blocks = len(problem.active_items), outline.n_blocks
        nnz = len(problem.user_indices)
        starts = np.arange(n_blocks + 1) * n_active // n_blocks
        # An entry for every interaction: the smaller the type, the less memory passes by.
        entry = np.int32 if nnz < 2**31 else np.int64
        slot = np.uint16 if np.diff(starts).max() < 2**16 else np.int32
        self.strata = Strata(
            groups=outline.groups,
            starts=starts,
            visits=np.zeros(outline.n_groups * n_blocks + 1, np.int64),
            visitor=np.zeros(nnz + 1, np.int32),
            first=np.zeros(nnz + 1, entry),
            slots=np.zeros(nnz, slot),
            shares=np.zeros(len(problem.weights), np.float32),
        )

    def deal(self, seed: int, epoch: int) -> Array:
        """Fill `strata` for an epoch; returns the item rows in dealt order, (n_active,) int32."""
        problem, strata = self._problem, self.strata
        order = deal_items(problem.active_items, seed, epoch)
        n_groups, n_blocks = len(strata.groups) - 1, len(strata.starts) - 1
        block, slot = np.zeros((2, problem.n_items), np.int32)
        visits, entries = np.zeros((2, n_groups, n_blocks), np.int64)
        indptr, indices = problem.user_indptr, problem.user_indices
        locate(order, strata.starts, block, slot)
        count_strata(indptr, indices, strata.groups, block, visits, entries)
        np.cumsum(visits, out=strata.visits[1:])
        begins = np.cumsum(entries) - entries.ravel()
        fill_strata(indptr, indices, problem.weights, block, slot, begins, strata)
        n_visits = strata.visits[-1]
        strata.first[n_visits], strata.visitor[n_visits] = len(indices), 0
        return order


def rank_weights(negatives: int, n_items: int | None) -> Array:
    """Weight of a step by the number of violations among the drawn negatives, (negatives + 1,).

    One where there are any, or log(1 + I v / m) / log(1 + I) for v violations among m: the
    estimated rank of the positive among I items, as in CML.
    """
    violations = np.arange(negatives + 1)
    if n_items is None:
        return (violations > 0).astype(np.float64)
    return np.asarray(np.log1p(n_items * violations / negatives) / np.log1p(n_items))
