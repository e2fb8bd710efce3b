"""Communication between the processes that train one model.

A solver uses a communicator for everything that needs users of other processes. `Communicator` is
that of a single process, whose collectives return their input; `transcf.distributed` has one for a
cluster. Results are the same to the last bit.

A class of solvers that can be spread over processes is called with (problem, settings), and in one
of several processes also with `layout` and `comm`. It gets its vectors by `load_tensors` then, and
its next epoch may change what `tensors` has returned. Tensors whose names begin with `user_vectors`
have a row for each user of the process; all others are the same in all processes.

- A problem has `user_indptr`, where the events of users start, and `part(first, end)`: the users
  first..end-1, numbered from 0.
- `layout(problem, settings)` of the class has groups of users that stay together: `groups`, where
  they begin and the last one ends, `n_groups`, and `part(first, end)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from transcf.kernels import Array, aligned_zeros
from transcf.kernels.neighborhood import average_users
from transcf.kernels.rounds import PackedRows, Rounds
from transcf.kernels.sampling import Strata

#: Runs some rounds with the groups of users that a process has.
RunRounds: TypeAlias = Callable[[Rounds], None]


class Communicator:
    """A single process, which has all groups of users."""

    rank, world_size = 0, 1  # number of this process from 0, and of all processes
    sent_bytes = 0  # of all arrays, counted for each receiver
    waited = 0.0  # seconds spent waiting for other processes
    shares: Sequence[int] = ()  # where the groups of each process begin, and the last ones end

    def average_users(
        self, rows: PackedRows[Any], dim: int, strata: Strata, item_share: Array
    ) -> None:
        """Set the n of all items to the mean of their users, and m to 0."""
        rows.items.reshape(-1, 3, dim)[:, 1] = 0
        average_users(rows.users, rows.items, dim, strata, item_share)

    def run_rounds(
        self, run: RunRounds, rows: PackedRows[Any], strata: Strata, rounds: Rounds
    ) -> None:
        """Run rounds with the own groups; then the item rows are the same in all processes."""
        run(rounds)

    def all_gather(self, own: Array, rows: Sequence[int] | None = None) -> list[Array]:
        """Return the arrays of all processes by rank.

        `rows` are their numbers of rows; None exchanges these numbers first.
        """
        return [own]

    def all_of(self, own: Array) -> tuple[Array, slice]:
        """Return the rows of all processes by rank, and where the own rows (rows, ...) are."""
        if self.world_size == 1:
            return own, slice(0, len(own))
        parts = self.all_gather(own)
        begin = sum(map(len, parts[: self.rank]))
        whole = aligned_zeros((sum(map(len, parts)), *own.shape[1:]), own.dtype)
        np.concatenate(parts, out=whole)
        return whole, slice(begin, begin + len(own))
