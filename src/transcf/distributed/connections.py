"""Point-to-point transport between workers: one TCP connection per pair of workers.

Ray starts the workers, gives each the addresses of the others, and reports lost workers. Messages
within an epoch use these connections, since a call of a Ray actor takes longer than a batch. A
connecting worker proves that it knows the secret of the run, which is never sent. Between two
workers on one machine, arrays are passed through a `SharedMemoryRing`, and the connection carries
their positions.
"""

from __future__ import annotations

import hmac
import math
import secrets
import socket
import struct
import threading
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from transcf.distributed.shared_memory import INVITATION_BYTES, SharedMemoryRing
from transcf.distributed.transport import MessageQueue, Peer, Tag
from transcf.kernels import Array

#: Where a worker listens: host and port.
Address: TypeAlias = tuple[str, int]

#: Exchange, what, number, type, dimensions, shape, place in the ring.
_HEADER = struct.Struct("<q16sq4sq4qq")
#: The array follows by the line.
_BY_LINE = -1
_YES, _NO = b"y", b"n"
_CHALLENGE_BYTES = 32
#: How long somebody who calls may take to show that they belong here.
_PATIENCE_SECONDS = 30.0


class Listener:
    """Where a worker listens; what arrives is put into a mailbox.

    Args:
        mailbox: Where to put it.
        host: Address of this machine that the others see; loopback lets nobody else in.
        secret: What all workers of a run know.

    Attributes:
        address: Where the others find it.
    """

    def __init__(self, mailbox: MessageQueue, host: str, secret: bytes) -> None:
        """Listen at once, in a thread."""
        self._mailbox, self._secret = mailbox, secret
        self._listener = socket.create_server((host, 0), backlog=128)
        self.address: Address = (host, self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def call(self, number: int, addresses: Sequence[Address]) -> list[Peer]:
        """Call everybody else.

        Args:
            number: Which of them this worker is; it does not call itself.
            addresses: Of all workers.
        """
        return [
            _Nobody() if w == number else _Line(address, self._secret)
            for w, address in enumerate(addresses)
        ]

    def close(self) -> None:
        """Let nobody else in."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:  # it was closed
                return
            threading.Thread(target=self._listen, args=(line,), daemon=True).start()

    def _listen(self, line: socket.socket) -> None:
        """Let mail arrive until the line breaks: its worker is lost, then, or cannot be reached."""
        with line:
            try:
                _be_shown(line, self._secret)
            except OSError:
                return
            try:
                ring = SharedMemoryRing.accept(_read(line, INVITATION_BYTES))
                line.sendall(_YES if ring else _NO)
                while True:
                    _receive(line, ring, self._mailbox)
            except OSError:
                self._mailbox.cut_off()


class _Nobody:
    """The worker itself."""

    def send(self, tag: Tag, arrays: Sequence[Array]) -> None:
        raise AssertionError("nobody writes to themselves")


class _Line:
    """Another worker."""

    def __init__(self, address: Address, secret: bytes) -> None:
        self._line = socket.create_connection(address, _PATIENCE_SECONDS)
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._line.sendall(_answer(secret, _read(self._line, _CHALLENGE_BYTES)))
        ring, invitation = SharedMemoryRing.create()
        self._line.sendall(invitation)
        is_near = _read(self._line, len(_YES)) == _YES
        if ring is not None:
            ring.settle()
        self._ring = ring if is_near else None
        self._line.settimeout(None)

    def send(self, tag: Tag, arrays: Sequence[Array]) -> None:
        """Write to the ring, if it has room, or to the line, whose other end is always read."""
        exchange, what, number = tag
        place = self._ring.put(arrays) if self._ring else None
        kind = arrays[0].dtype.str.encode()
        shape = arrays[0].shape if len(arrays) == 1 else (sum(map(np.size, arrays)),)
        told = _BY_LINE if place is None else place
        lengths = (*shape, *[0] * (4 - len(shape)))
        header = _HEADER.pack(exchange, what.encode(), number, kind, len(shape), *lengths, told)
        self._line.sendall(header)
        for array in arrays if place is None else ():
            if array.nbytes:
                self._line.sendall(array.data.cast("B"))


def _be_shown(line: socket.socket, secret: bytes) -> None:
    """Let a caller show that they know the secret; else the line is cut."""
    line.settimeout(_PATIENCE_SECONDS)
    challenge = secrets.token_bytes(_CHALLENGE_BYTES)
    line.sendall(challenge)
    expected = _answer(secret, challenge)
    if not hmac.compare_digest(_read(line, len(expected)), expected):
        raise ConnectionError("Somebody called who does not know the secret.")
    line.settimeout(None)


def _answer(secret: bytes, challenge: bytes) -> bytes:
    return hmac.digest(secret, challenge, "sha256")


def _receive(line: socket.socket, ring: SharedMemoryRing | None, mailbox: MessageQueue) -> None:
    """Let one message arrive."""
    header = _HEADER.unpack(_read(line, _HEADER.size))
    exchange, what, number, kind, n_dims, *lengths, place = header
    tag = exchange, what.rstrip(b"\0").decode(), number
    shape, dtype = lengths[:n_dims], np.dtype(kind.rstrip(b"\0").decode())
    if place != _BY_LINE and ring is not None:
        memory, give_back = ring.look(place, math.prod(shape) * dtype.itemsize)
        mailbox.put(tag, memory.view(dtype).reshape(shape), give_back)
        return
    array = np.empty(shape, dtype)
    if array.nbytes:
        _fill(line, array.data.cast("B"))
    mailbox.put(tag, array)


def _read(line: socket.socket, size: int) -> bytes:
    """Wait for some bytes."""
    found = bytearray(size)
    _fill(line, memoryview(found))
    return bytes(found)


def _fill(line: socket.socket, into: memoryview) -> None:
    """Fill a buffer."""
    done = 0
    while done < len(into):
        count = line.recv_into(into[done:])
        if not count:
            raise ConnectionError("The line was cut.")
        done += count
