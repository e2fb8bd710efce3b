"""What a solver asks of users whom other workers have: sums in order, and blocks that travel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from transcf.distributed.transport import Transport
from transcf.kernels import Array
from transcf.kernels.neighborhood import average_users
from transcf.kernels.rounds import PackedRows, Rounds
from transcf.kernels.sampling import Strata
from transcf.models.communicator import Communicator, Progress, RunRounds

#: Parts of the items for each worker, so that all work while sums pass from one to the next.
_CHUNKS = 4


class RayCommunicator(Communicator):
    """One of several workers, each of which has some groups of users.

    All of them ask the same questions in the same order; exchanges are numbered by that.

    Args:
        post: How the others are reached.
        shares: Where each worker's groups begin, and where the last one's end, (workers + 1,).
    """

    def __init__(self, post: Transport, shares: Sequence[int]) -> None:
        """Count exchanges from 0."""
        self._post, self.shares, self._exchange = post, shares, 0
        self.number, self.size = post.number, post.size

    def average_users(
        self, rows: PackedRows[Any], dim: int, strata: Strata, item_share: Array
    ) -> None:
        """Add the own users to the sums of those before, and pass them on; the last one tells all.

        Sums are made in the order of the groups, whoever has them.
        """
        number, post, exchange = self._post.number, self._post, self._next()
        n_blocks, last = len(strata.starts) - 1, self._post.size - 1
        cuts = np.linspace(0, n_blocks, min(n_blocks, _CHUNKS * post.size) + 1).astype(int)
        means = rows.items.reshape(-1, 3, dim)[:, 1]
        parts = [
            (range(first, end), means[strata.starts[first] : strata.starts[end]])
            for first, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
        ]
        for c, (blocks, part) in enumerate(parts):
            if number == 0:
                part[:] = 0
            else:
                post.receive_into((exchange, "sum", c), part)
            average_users(rows.users, rows.items, dim, strata, item_share, blocks)
            if number < last:
                post.send(number + 1, (exchange, "sum", c), part)
            else:
                post.send_all((exchange, "mean", c), part)
        if number < last:
            for c, (_, part) in enumerate(parts):
                post.receive_into((exchange, "mean", c), part)

    def run_rounds(
        self, run: RunRounds, rows: PackedRows[Any], strata: Strata, rounds: Rounds
    ) -> None:
        """Run rounds one by one; a block goes on to the worker whose group meets it next.

        The first group gives its block away, and the last one waits for its own, in the middle of a
        round: neighbours may be half a round apart before one waits for the other.
        """
        travel = _Travel(self._post, self.shares, rows, strata, rounds, self._next())
        n_groups = len(strata.groups) - 1
        middle = n_groups // 2
        for r in range(rounds.begin, rounds.end):
            now = rounds._replace(begin=r, end=r + 1)
            if middle:
                run(now._replace(high=middle))
                travel.send(r)
            travel.receive(r)
            run(now._replace(low=middle))
            if not middle:  # one group is the first and the last
                travel.send(r)
            self.progress = Progress(r + 1, len(strata.starts) - 1, "rounds")
        travel.share_all()

    def all_gather(self, own: Array) -> list[Array]:
        """Send what is there to everybody, and wait for theirs."""
        number, post, exchange = self.number, self._post, self._next()
        post.send_all((exchange, "own", number), own)
        return [
            own if w == number else post.receive((exchange, "own", w)) for w in range(self.size)
        ]

    def gather(self, parts: Sequence[Sequence[Array]]) -> None:
        """Send the own arrays to everybody, and put theirs where they belong."""
        number, post, exchange = self.number, self._post, self._next()
        post.send_all((exchange, "parts", number), *parts[number])
        for w in range(self.size):
            if w != number:
                post.receive_into((exchange, "parts", w), *parts[w])

    def _next(self) -> int:
        self._exchange += 1
        return self._exchange


class _Travel:
    """Blocks on their way in some rounds.

    In round r group g has block g + r, which group g - 1 needs next. From the first group it goes
    to the last, which needs it only after as many rounds as there are more blocks than groups.
    """

    def __init__(
        self,
        post: Transport,
        shares: Sequence[int],
        rows: PackedRows[Any],
        strata: Strata,
        rounds: Rounds,
        exchange: int,
    ) -> None:
        self._post, self._shares, self._rounds, self._exchange = post, shares, rounds, exchange
        self._rows, self._starts = rows, strata.starts
        self._n_blocks = len(strata.starts) - 1
        self._width = len(rows.items) // max(1, len(rows.bias))
        self._first, self._last = shares[post.number], shares[post.number + 1] - 1
        self._rest = 1 + self._n_blocks - shares[-1]  # rounds from the first group to the last

    def send(self, r: int) -> None:
        """Send the block that the first of the own groups had in a round."""
        to = self._post.number - 1 if self._first else self._post.size - 1
        due = r + 1 if self._first else r + self._rest
        if to != self._post.number and due < self._rounds.end:
            block = self._parts((self._first + r) % self._n_blocks)
            self._post.send(to, (self._exchange, "block", due), *block)

    def receive(self, r: int) -> None:
        """Wait for the block that the last of the own groups needs in a round."""
        is_end = self._last == self._shares[-1] - 1
        came_from = r - (self._rest if is_end else 1)
        if self._post.size > 1 and came_from >= self._rounds.begin:
            block = self._parts((self._last + r) % self._n_blocks)
            self._post.receive_into((self._exchange, "block", r), *block)

    def share_all(self) -> None:
        """Let everybody have all blocks as whoever had them last left them."""
        own, others = list[int](), list[int]()
        for block in range(self._n_blocks):
            holder = self._holder(block)
            if holder is not None:
                (own if holder == self._post.number else others).append(block)
        # By turns, so that few are on their way at a time.
        for gives, takes in zip_longest(own, others):
            if gives is not None:
                self._post.send_all((self._exchange, "left", gives), *self._parts(gives))
            if takes is not None:
                self._post.receive_into((self._exchange, "left", takes), *self._parts(takes))

    def _holder(self, block: int) -> int | None:
        """Return the worker who had a block last; None if nobody had it in these rounds."""
        for r in range(self._rounds.end - 1, self._rounds.begin - 1, -1):
            group = (block - r) % self._n_blocks
            if group < self._shares[-1]:
                return int(np.searchsorted(self._shares, group, side="right")) - 1
        return None

    def _parts(self, block: int) -> tuple[Array, Array]:
        """Look at the rows and the biases of a block."""
        first, end = self._starts[block], self._starts[block + 1]
        items = self._rows.items[self._width * first : self._width * end]
        return items, self._rows.bias[first:end]
