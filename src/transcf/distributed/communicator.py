"""Communication between the workers of one training: `torch.distributed` with the gloo backend.

A call of a Ray actor takes longer than a batch (3 ms for 0.8 MB against 0.3 ms by gloo), so Ray
only starts the workers and tells them where the first one listens. Two workers pass each other
messages in the same order, so no message needs a name. Sockets listen on the address that Ray uses,
which is loopback for a cluster of this machine.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

import numpy as np

from transcf.errors import needs_extra
from transcf.kernels import Array
from transcf.kernels.neighborhood import average_users
from transcf.kernels.rounds import PackedRows, Rounds
from transcf.kernels.sampling import Strata
from transcf.models.communicator import Communicator, RunRounds

#: Where the first worker listens: host and port.
Address: TypeAlias = tuple[str, int]
T = TypeVar("T")

#: Parts of the items for each worker, so that all work while sums pass from one to the next.
_CHUNKS = 4
_CONNECT_TIMEOUT = timedelta(minutes=2)
#: A lost worker closes its connections; time alone ends no training.
_MESSAGE_TIMEOUT = timedelta(days=7)


def import_gloo() -> Any:
    """Return `torch.distributed`, or raise a `MissingExtraError`."""
    with needs_extra("Training on a cluster", "cluster"):
        import torch.distributed
    return torch.distributed


def connect(
    address: Address, rank: int, world_size: int, host: str, listener: socket.socket | None
) -> Any:
    """Return a process group of gloo with all workers of a training.

    The first worker has the `listener`, bound to the address; `host` is this machine's own address.
    """
    store = import_gloo().TCPStore(
        *address,
        world_size,
        is_master=listener is not None,
        timeout=_CONNECT_TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=listener.detach() if listener is not None else None,
    )
    return join_group(store, rank, world_size, host)


def join_group(store: Any, rank: int, world_size: int, host: str) -> Any:
    """Join a process group of gloo, whose members find each other through a store."""
    gloo = import_gloo().ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=host)]
    options._timeout = _MESSAGE_TIMEOUT
    return gloo(store, rank, world_size, options)


class RayCommunicator(Communicator):
    """One of several workers, each of which has some groups of users.

    All workers call the same methods in the same order. Arrays are sent without a copy: a method
    returns once the other workers have received what it sent.
    """

    def __init__(self, group: Any, shares: Sequence[int]) -> None:
        import torch

        self._group, self._tensor = group, torch.from_numpy
        self.shares, self.rank, self.world_size = shares, group.rank(), group.size()
        self._sends: list[Any] = []

    def average_users(
        self, rows: PackedRows[Any], dim: int, strata: Strata, item_share: Array
    ) -> None:
        """Add the own users to the sums of the workers before; the last one sends the sums to all.

        Sums are made in the order of the groups, so that they do not depend on the workers.
        """
        n_blocks, last = len(strata.starts) - 1, self.world_size - 1
        cuts = np.linspace(0, n_blocks, min(n_blocks, _CHUNKS * self.world_size) + 1).astype(int)
        means = rows.items.reshape(-1, 3, dim)[:, 1]
        chunks = [
            (range(first, end), slice(strata.starts[first], strata.starts[end]))
            for first, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
        ]
        for blocks, items in chunks:
            sums = np.zeros_like(means[items])
            if self.rank:
                self._wait(self._receive(self.rank - 1, sums))
            means[items] = sums
            average_users(rows.users, rows.items, dim, strata, item_share, blocks)
            sums = np.ascontiguousarray(means[items])
            for to in [self.rank + 1] if self.rank < last else range(last):
                self._send(to, sums)
        if self.rank < last:
            for _, items in chunks:
                found = np.empty_like(means[items])
                self._wait(self._receive(last, found))
                means[items] = found
        self._finish()

    def run_rounds(
        self, run: RunRounds, rows: PackedRows[Any], strata: Strata, rounds: Rounds
    ) -> None:
        """Run rounds one by one; a block goes on to the worker whose group needs it next.

        In round r group g has block g + r, which group g - 1 needs next. The first group's block
        goes to the last group, which needs it after as many rounds as there are more blocks than
        groups. The first own group's block is sent, and the last one's awaited, in the middle of a
        round: neighbours may be half a round apart before one waits for the other.
        """
        n_blocks, n_groups = len(strata.starts) - 1, self.shares[-1]
        first, last = self.shares[self.rank], self.shares[self.rank + 1] - 1
        before, after = (self.rank - 1) % self.world_size, (self.rank + 1) % self.world_size
        around = 1 + n_blocks - n_groups  # rounds from the first group to the last
        middle = (len(strata.groups) - 1) // 2
        width = len(rows.items) // max(1, len(rows.bias))

        def block(number: int) -> tuple[Array, Array]:
            start, end = strata.starts[number % n_blocks], strata.starts[number % n_blocks + 1]
            return rows.items[width * start : width * end], rows.bias[start:end]

        def send(r: int) -> None:
            due = r + (1 if first else around)
            if self.world_size > 1 and due < rounds.end:
                self._send(before, *block(first + r))

        def receive(r: int) -> list[Any]:
            sent = r - (around if last == n_groups - 1 else 1)
            is_sent = self.world_size > 1 and sent >= rounds.begin and r < rounds.end
            return self._receive(after, *block(last + r)) if is_sent else []

        arriving = receive(rounds.begin)
        for r in range(rounds.begin, rounds.end):
            now = rounds._replace(begin=r, end=r + 1)
            if middle:
                run(now._replace(high=middle))
                send(r)
            self._wait(arriving)
            arriving = receive(r + 1)  # none of the own groups has that block now
            run(now._replace(low=middle))
            if not middle:  # one group is the first and the last
                send(r)
        holders = [_holder(number, n_blocks, self.shares, rounds) for number in range(n_blocks)]
        self._share(
            [
                [a for b in range(n_blocks) if holders[b] == w for a in block(b)]
                for w in range(self.world_size)
            ]
        )

    def all_gather(self, own: Array, rows: Sequence[int] | None = None) -> list[Array]:
        """Send the own array to all workers, and return theirs."""
        own = np.ascontiguousarray(own)
        if rows is None:
            counts = np.zeros((self.world_size, 1), np.int64)
            counts[self.rank] = len(own)
            self._share([[row] for row in counts])
            rows = counts[:, 0].tolist()
        parts = [
            own if w == self.rank else np.empty((n, *own.shape[1:]), own.dtype)
            for w, n in enumerate(rows)
        ]
        self._share([[part] for part in parts])
        return parts

    # -- messages ------------------------------------------------------------------------------

    def _share(self, parts: Sequence[Sequence[Array]]) -> None:
        """Send the own arrays to all workers, the next one first, and receive theirs in place."""
        others = [(self.rank + step) % self.world_size for step in range(1, self.world_size)]
        arriving = [work for w in others for work in self._receive(w, *parts[w])]
        for w in others:
            self._send(w, *parts[self.rank])
        self._wait(arriving)
        self._finish()

    def _send(self, to: int, *arrays: Array) -> None:
        """Begin to send arrays, which must not change before the receiver has them."""
        self.sent_bytes += sum(array.nbytes for array in arrays)
        self._sends += self._begin(self._group.send, to, arrays)

    def _receive(self, source: int, *arrays: Array) -> list[Any]:
        return self._begin(self._group.recv, source, arrays)

    def _begin(self, call: Callable[..., T], peer: int, arrays: Sequence[Array]) -> list[T]:
        tensors = (self._tensor(a.reshape(-1).view(np.uint8)) for a in arrays if a.nbytes)
        try:
            return [call([tensor], peer, 0) for tensor in tensors]
        except RuntimeError as problem:
            raise ConnectionError("Another worker was lost.") from problem

    def _wait(self, works: Sequence[Any]) -> None:
        started = time.perf_counter()
        try:
            for work in works:
                work.wait()
        except RuntimeError as problem:
            raise ConnectionError("Another worker was lost.") from problem
        self.waited += time.perf_counter() - started

    def _finish(self) -> None:
        """Wait until everything sent has been received."""
        self._wait(self._sends)
        self._sends = []


def _holder(block: int, n_blocks: int, shares: Sequence[int], rounds: Rounds) -> int | None:
    """Return the worker that had a block last; None if none had it in these rounds."""
    for r in range(rounds.end - 1, rounds.begin - 1, -1):
        group = (block - r) % n_blocks
        if group < shares[-1]:
            return int(np.searchsorted(shares, group, side="right")) - 1
    return None
