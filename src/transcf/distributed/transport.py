"""Arrays from worker to worker. A tag names one message: its order of arrival does not matter."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from transcf.kernels import Array

#: Number of the exchange, and what is exchanged in it.
Tag: TypeAlias = tuple[int, str, int]


class Peer(Protocol):
    """Somebody who can be sent arrays, which may be changed once `send` is back."""

    def send(self, tag: Tag, arrays: Sequence[Array]) -> None:
        """Send one array, or several of one type that arrive as a single flat one.

        Nobody waits until it is asked for.
        """


class _Arrived(NamedTuple):
    """An array, and what gives its memory back, if that is somebody else's."""

    array: Array
    give_back: Callable[[], None] | None


class MessageQueue:
    """Keeps what arrives until it is asked for; threads may deliver while another waits."""

    def __init__(self) -> None:
        """Begin empty."""
        self._arrived: dict[Tag, _Arrived] = {}
        self._news, self._is_cut_off = threading.Condition(), False

    def __len__(self) -> int:
        """Return how many arrays nobody has asked for."""
        return len(self._arrived)

    def put(self, tag: Tag, array: Array, give_back: Callable[[], None] | None = None) -> None:
        """Let an array arrive.

        Args:
            tag: Of the message.
            array: What it says.
            give_back: Called once it has been copied; None if the array is the receiver's to keep.
        """
        with self._news:
            self._arrived[tag] = _Arrived(array, give_back)
            self._news.notify_all()

    def cut_off(self) -> None:
        """Know that somebody will not write any more."""
        with self._news:
            self._is_cut_off = True
            self._news.notify_all()

    def take(self, tag: Tag) -> Array:
        """Wait for an array and return it.

        Raises:
            ConnectionError: It has not come, and somebody was lost who may have had it.
        """
        array, give_back = self._take(tag)
        if give_back is None:
            return array
        kept = array.copy()
        give_back()
        return kept

    def take_into(self, tag: Tag, arrays: Sequence[Array]) -> None:
        """Wait for what was sent as one, and put it into these, one after the other; see `take`."""
        array, give_back = self._take(tag)
        values, at = array.reshape(-1), 0
        for into in arrays:
            into[...] = values[at : at + into.size].reshape(into.shape)
            at += into.size
        if give_back is not None:
            give_back()

    def wait(self, tag: Tag) -> None:
        """Wait until a message is there; see `take`."""
        with self._news:
            self._news.wait_for(lambda: tag in self._arrived or self._is_cut_off)
            if tag not in self._arrived:
                raise ConnectionError("Another worker was lost.")

    def _take(self, tag: Tag) -> _Arrived:
        self.wait(tag)
        with self._news:
            return self._arrived.pop(tag)


class Transport:
    """Sends and receives for one worker, and counts what it takes.

    Args:
        number: Of the worker.
        mailbox: Where what others send arrives.
        peers: All workers in order; nobody writes to themselves.

    Attributes:
        sent_bytes: Sum of all arrays sent, each counted for every receiver.
        waited: Seconds spent on waiting for others.
    """

    def __init__(self, number: int, mailbox: MessageQueue, peers: Sequence[Peer]) -> None:
        """Begin with nothing sent."""
        self.number, self._mailbox, self._peers = number, mailbox, peers
        self.sent_bytes, self.waited = 0, 0.0

    @property
    def size(self) -> int:
        """Workers in all."""
        return len(self._peers)

    def send(self, to: int, tag: Tag, *arrays: Array) -> None:
        """Send an array, or several as one; they may be changed afterwards."""
        self.sent_bytes += sum(array.nbytes for array in arrays)
        self._peers[to].send(tag, [np.ascontiguousarray(array) for array in arrays])

    def send_all(self, tag: Tag, *arrays: Array) -> None:
        """Send something to everybody else, to the next one first: nobody gets all mail at once."""
        for step in range(1, self.size):
            self.send((self.number + step) % self.size, tag, *arrays)

    def receive(self, tag: Tag) -> Array:
        """Wait for an array."""
        self._wait(tag)
        return self._mailbox.take(tag)

    def receive_into(self, tag: Tag, *arrays: Array) -> None:
        """Wait for what was sent as one, and put it where it belongs."""
        self._wait(tag)
        self._mailbox.take_into(tag, arrays)

    def _wait(self, tag: Tag) -> None:
        started = time.perf_counter()
        self._mailbox.wait(tag)
        self.waited += time.perf_counter() - started
