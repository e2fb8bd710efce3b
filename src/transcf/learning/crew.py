"""Who trains in rounds: one process with all groups of users, or several that pass blocks on.

Solvers ask their crew for whatever needs users of other processes. `Crew` is the process that works
alone; that of a cluster (`transcf.cluster`) gives the same answers to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transcf.kernels import Array
from transcf.kernels.neighborhood import average_users, clear_means
from transcf.kernels.rounds import PackedRows, Rounds, run_rounds
from transcf.kernels.sampling import Strata


class Crew:
    """One process, which has all groups of users."""

    def average_users(
        self, rows: PackedRows[Any], dim: int, strata: Strata, item_share: Array
    ) -> None:
        """Set the n of all items to the mean of their users, and m to 0."""
        clear_means(rows.items, dim)
        average_users(rows.users, rows.items, dim, strata, item_share)

    def run_rounds(
        self,
        rates: Any,
        rows: PackedRows[Any],
        dim: int,
        strata: Strata,
        user_samples: Array,
        rounds: Rounds,
        totals: Array,
    ) -> None:
        """Run rounds, after which all item rows are those that everybody left behind."""
        run_rounds(rates, rows, dim, strata, user_samples, rounds, totals)

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
