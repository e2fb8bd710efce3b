"""Who trains in rounds: one process with all groups of users, or several that pass blocks on.

Solvers ask their crew for whatever needs users of other processes. `Crew` is the process that works
alone; that of a cluster (`transcf.cluster`) gives the same answers to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from transcf.kernels import Array
from transcf.kernels.neighborhood import average_users, clear_means
from transcf.kernels.rounds import PackedRows, Rounds
from transcf.kernels.sampling import Strata

#: Runs some rounds with the groups that a process has.
RunRounds: TypeAlias = Callable[[Rounds], None]


class Crew:
    """One process, which has all groups of users."""

    def average_users(
        self, rows: PackedRows[Any], dim: int, strata: Strata, item_share: Array
    ) -> None:
        """Set the n of all items to the mean of their users, and m to 0."""
        clear_means(rows.items, dim)
        average_users(rows.users, rows.items, dim, strata, item_share)

    def run_rounds(
        self, run: RunRounds, rows: PackedRows[Any], strata: Strata, rounds: Rounds
    ) -> None:
        """Run rounds, after which all item rows are those that everybody left behind.

        Args:
            run: Runs some of them with the own groups, and changes the rows.
            rows: What it changes.
            strata: Whose blocks are in the rows.
            rounds: Which ones.
        """
        run(rounds)

    def all_of(self, own: Array) -> tuple[Array, slice]:
        """Put together what every process has, in the order of their groups.

        Args:
            own: What this process has, (rows, ...).

        Returns:
            All of it, and where the own rows are in it.
        """
        return own, slice(0, len(own))


def sums_of(totals: Array) -> tuple[float, int]:
    """Return the summed loss and the triples of strata, (n_strata, 3)."""
    loss, _, triples = np.sum(totals, axis=0)
    return float(loss), int(triples)
