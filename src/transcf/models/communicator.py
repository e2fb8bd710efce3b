"""Communication between the processes that train one model.

Solvers use a communicator for everything that needs users of other processes. `Communicator` is the
single-process one, whose collectives return their input; `transcf.distributed` has one for Ray.
Results are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np

from transcf.kernels import Array, aligned_zeros
from transcf.kernels.neighborhood import average_users, clear_means
from transcf.kernels.rounds import PackedRows, Rounds
from transcf.kernels.sampling import Strata
from transcf.models.training import Trainable

#: Runs some rounds with the groups that a process has.
RunRounds: TypeAlias = Callable[[Rounds], None]


class Shardable(Protocol):
    """What a solver learns from, of all users or of some."""

    @property
    def user_indptr(self) -> Array:
        """Where the events of users start, (n_users + 1,)."""

    def part(self, first: int, end: int) -> Shardable | LazyShard:
        """Keep the users first..end-1, who are counted from 0 then."""


@runtime_checkable
class LazyShard(Protocol):
    """Some users of a problem, for a process that reads their events by itself."""

    def read(self) -> Shardable:
        """Return them with their events."""


class ShardLayout(Protocol):
    """Which users stay together, whatever processes there are."""

    @property
    def groups(self) -> Array:
        """Where the groups of users begin, and where the last one ends, (n_groups + 1,)."""

    @property
    def n_groups(self) -> int:
        """How many there are: no more processes can be of use."""

    def part(self, first: int, end: int) -> Self:
        """Keep the groups first..end-1, whose users are counted from 0 then."""


class DistributedSolver(Protocol):
    """A class of solvers of which several processes can each train some groups of users.

    Tensors whose names begin with `user_vectors` have a row for each user of the process; all
    others are the same everywhere. With a crew, a solver is given vectors by `load_tensors` before
    it trains, and may change what `tensors` has returned in its next epoch.
    """

    def __call__(
        self,
        problem: Any,
        settings: Any,
        /,
        *,
        outline: Any = None,
        crew: Communicator | None = None,
    ) -> Trainable:
        """Make a solver for all users, or for some groups of them with a crew."""

    def outline(self, problem: Any, settings: Any, /) -> ShardLayout:
        """Say which users stay together."""


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


class Communicator:
    """One process, which has all groups of users.

    Attributes:
        number: Of this process, from 0.
        size: How many processes there are.
        shares: Where the groups of each begin, and where those of the last one end, (size + 1,).
        progress: Progress of the epoch.
        sent_bytes: Bytes of all arrays sent, counted for each receiver.
        waited: Seconds spent waiting for other processes.
    """

    number, size = 0, 1
    sent_bytes, waited = 0, 0.0
    shares: Sequence[int] = ()
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

    def all_gather(self, own: Array) -> list[Array]:
        """Return what every process has, in the order of their groups; what it has is sent."""
        return [own]

    def gather(self, parts: Sequence[Sequence[Array]]) -> None:
        """Let every process have the parts of all.

        Args:
            parts: For each process arrays of one type, contiguous: those of this one are sent,
                those of others filled in.
        """

    def all_of(self, own: Array) -> tuple[Array, slice]:
        """Put together what every process has, in the order of their groups.

        Args:
            own: What this process has, (rows, ...).

        Returns:
            All of it, and where the own rows are in it.
        """
        if self.size == 1:
            return own, slice(0, len(own))
        parts = self.all_gather(own)
        begin = sum(map(len, parts[: self.number]))
        whole = aligned_zeros((sum(map(len, parts)), *own.shape[1:]), own.dtype)
        np.concatenate(parts, out=whole)
        return whole, slice(begin, begin + len(own))


def sums_of(totals: Array) -> tuple[float, int]:
    """Return the summed loss and the triples of strata, (n_strata, 3)."""
    loss, _, triples = np.sum(totals, axis=0)
    return float(loss), int(triples)
