"""Who trains: one process with all groups of users, or several that pass blocks on.

Solvers ask their crew for whatever needs users of other processes. `Crew` is the process that works
alone; that of a cluster (`transcf.cluster`) gives the same answers to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from transcf.kernels import Array
from transcf.kernels.neighborhood import average_users, clear_means
from transcf.kernels.rounds import PackedRows, Rounds
from transcf.kernels.sampling import Strata

#: Runs some rounds with the groups that a process has.
RunRounds: TypeAlias = Callable[[Rounds], None]


class Progress(NamedTuple):
    """How far an epoch is.

    Attributes:
        done: Steps that are done.
        steps: Steps of the epoch.
        unit: What they are, in the plural.
    """

    done: int = 0
    steps: int = 0
    unit: str = "steps"


class Crew:
    """One process, which has all groups of users.

    Attributes:
        number: Of this process, from 0.
        size: How many processes there are.
        progress: How far the epoch is, for whoever wants to know.
    """

    number, size = 0, 1
    progress = Progress()

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

    def from_all(self, own: Array) -> list[Array]:
        """Return what every process has, in the order of their groups; what it has is sent."""
        return [own]

    def all_of(self, own: Array) -> tuple[Array, slice]:
        """Put together what every process has, in the order of their groups.

        Args:
            own: What this process has, (rows, ...).

        Returns:
            All of it, and where the own rows are in it.
        """
        parts = self.from_all(own)
        begin = sum(map(len, parts[: self.number]))
        return own if self.size == 1 else np.concatenate(parts), slice(begin, begin + len(own))


def sums_of(totals: Array) -> tuple[float, int]:
    """Return the summed loss and the triples of strata, (n_strata, 3)."""
    loss, _, triples = np.sum(totals, axis=0)
    return float(loss), int(triples)
