"""What a solver asks of users whom other workers have: sums in order, and blocks that travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from transcf.cluster.post import Post
from transcf.kernels import Array
from transcf.kernels.neighborhood import average_users
from transcf.kernels.rounds import PackedRows, Rounds
from transcf.kernels.sampling import Strata
from transcf.learning.crew import Crew, Progress, RunRounds

#: Parts of the items for each worker, so that all work while sums pass from one to the next.
_CHUNKS = 4


class ClusterCrew(Crew):
    """One of several workers, each of which has some groups of users.

    All of them ask the same questions in the same order; exchanges are numbered by that.

    Args:
        post: How the others are reached.
        shares: Where each worker's groups begin, and where the last one's end, (workers + 1,).
    """

    def __init__(self, post: Post, shares: Sequence[int]) -> None:
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
            part[:] = 0 if number == 0 else post.receive((exchange, "sum", c))
            average_users(rows.users, rows.items, dim, strata, item_share, blocks)
            if number < last:
                post.send(number + 1, (exchange, "sum", c), part)
            else:
                post.send_all((exchange, "mean", c), part)
        if number < last:
            for c, (_, part) in enumerate(parts):
                part[:] = post.receive((exchange, "mean", c))

    def run_rounds(
        self, run: RunRounds, rows: PackedRows[Any], strata: Strata, rounds: Rounds
    ) -> None:
        """Run rounds one by one; a block goes on to the worker whose group meets it next."""
        travel = _Travel(self._post, self.shares, rows, strata, rounds, self._next())
        for r in range(rounds.begin, rounds.end):
            travel.receive(r)
            run(rounds._replace(begin=r, end=r + 1))
            travel.send(r)
            self.progress = Progress(r + 1, len(strata.starts) - 1, "rounds")
        travel.share_all()

    def from_all(self, own: Array) -> list[Array]:
        """Send what is there to everybody, and wait for theirs."""
        number, post, exchange = self.number, self._post, self._next()
        post.send_all((exchange, "own", number), own)
        return [
            own if w == number else post.receive((exchange, "own", w)) for w in range(self.size)
        ]

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
        post: Post,
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
            block = self._pack([(self._first + r) % self._n_blocks])
            self._post.send(to, (self._exchange, "block", due), block)

    def receive(self, r: int) -> None:
        """Wait for the block that the last of the own groups needs in a round."""
        is_end = self._last == self._shares[-1] - 1
        came_from = r - (self._rest if is_end else 1)
        if self._post.size > 1 and came_from >= self._rounds.begin:
            message = self._post.receive((self._exchange, "block", r))
            self._unpack([(self._last + r) % self._n_blocks], message)

    def share_all(self) -> None:
        """Let everybody have all blocks as whoever had them last left them."""
        held: list[list[int]] = [[] for _ in range(self._post.size)]
        for block in range(self._n_blocks):
            holder = self._holder(block)
            if holder is not None:
                held[holder].append(block)
        message = self._pack(held[self._post.number])
        self._post.send_all((self._exchange, "blocks", self._post.number), message)
        for w in range(self._post.size):
            if w != self._post.number:
                self._unpack(held[w], self._post.receive((self._exchange, "blocks", w)))

    def _holder(self, block: int) -> int | None:
        """Return the worker who had a block last; None if nobody had it in these rounds."""
        for r in range(self._rounds.end - 1, self._rounds.begin - 1, -1):
            group = (block - r) % self._n_blocks
            if group < self._shares[-1]:
                return int(np.searchsorted(self._shares, group, side="right")) - 1
        return None

    def _pack(self, blocks: list[int]) -> Array:
        """Put the rows and the biases of blocks into one array."""
        rows, width = self._rows, self._width
        places = [(self._starts[b], self._starts[b + 1]) for b in blocks]
        items = [rows.items[width * first : width * end] for first, end in places]
        bias = [rows.bias[first:end] for first, end in places]
        return np.concatenate([*items, *bias, rows.bias[:0]])  # there may be none

    def _unpack(self, blocks: list[int], message: Array) -> None:
        """Take over what `_pack` made."""
        rows, width, at = self._rows, self._width, 0
        for values, factor in ((rows.items, width), (rows.bias, 1)):
            for b in blocks:
                first, end = factor * self._starts[b], factor * self._starts[b + 1]
                values[first:end] = message[at : at + end - first]
                at += end - first
