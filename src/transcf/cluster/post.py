"""Arrays from worker to worker. A tag names one message: its order of arrival does not matter."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from transcf.kernels import Array

#: Number of the exchange, and what is exchanged in it.
Tag: TypeAlias = tuple[int, str, int]


class Peer(Protocol):
    """Somebody who can be sent an array; `send` does not wait until it has arrived."""

    def send(self, tag: Tag, message: Any) -> None:
        """Send an array, or what `Office.wrap` made of one."""


class Office(Protocol):
    """Who reaches the other workers."""

    peers: Sequence[Peer]

    def wrap(self, array: Array) -> Any:
        """Get an array ready that goes to several peers."""


class Mailbox:
    """Keeps what arrives until it is asked for; threads may deliver while another waits."""

    def __init__(self) -> None:
        """Begin empty."""
        self._arrived: dict[Tag, Array] = {}
        self._news = threading.Condition()

    def put(self, tag: Tag, array: Array) -> None:
        """Let an array arrive."""
        with self._news:
            self._arrived[tag] = array
            self._news.notify_all()

    def take(self, tag: Tag) -> Array:
        """Wait for an array and return it, read-only where it is shared."""
        with self._news:
            self._news.wait_for(lambda: tag in self._arrived)
            return self._arrived.pop(tag)


class Post:
    """Sends and receives for one worker, and counts what it takes.

    Attributes:
        sent_bytes: Sum of all arrays sent, each counted for every receiver.
        waited: Seconds spent on waiting for others.
    """

    def __init__(self, number: int, mailbox: Mailbox, office: Office) -> None:
        """Begin with nothing sent."""
        self.number, self._mailbox, self._office = number, mailbox, office
        self.sent_bytes, self.waited = 0, 0.0

    @property
    def size(self) -> int:
        """Workers in all."""
        return len(self._office.peers)

    def send(self, to: int, tag: Tag, array: Array) -> None:
        """Send one array; it may be changed afterwards."""
        self.sent_bytes += array.nbytes
        self._office.peers[to].send(tag, np.ascontiguousarray(array))

    def send_all(self, tag: Tag, array: Array) -> None:
        """Send an array to everybody else."""
        others = [peer for w, peer in enumerate(self._office.peers) if w != self.number]
        if others:
            self.sent_bytes += array.nbytes * len(others)
            wrapped = self._office.wrap(np.ascontiguousarray(array))
            for peer in others:
                peer.send(tag, wrapped)

    def receive(self, tag: Tag) -> Array:
        """Wait for an array."""
        started = time.perf_counter()
        array = self._mailbox.take(tag)
        self.waited += time.perf_counter() - started
        return array
