"""Shared memory from one worker to another of the same machine.

The sender copies arrays into it and tells by the line where they lie; the receiver looks at them
there, and gives the room back. Nothing passes through the buffers of the network. The memory has no
name: it is gone with the two processes, however they end.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from transcf.kernels import Array

#: Process, file and token: enough to find the memory, and to know that it is the one.
_INVITATION = struct.Struct("<qq32s")
INVITATION_BYTES = _INVITATION.size
#: A counter and the token come before the room for arrays.
_HEAD, _ROOM = 4096, 4 << 20
#: Bytes of an array that is worth the way: a smaller one had better follow its header.
_LEAST = 16 << 10
_LINE = 64


class _Kept(NamedTuple):
    """What the receiver may not have looked at yet."""

    number: int
    start: int
    end: int


class SharedMemoryRing:
    """Room for what is on its way, in the order in which it is sent.

    One thread sends; of the receiver, one hears of messages, and one gives room back.

    Args:
        memory: Shared by two processes.
        file: What the receiver opens to share it, until `settle` is called.
    """

    def __init__(self, memory: mmap.mmap, file: int | None = None) -> None:
        """Begin empty."""
        self._file = file
        whole = np.frombuffer(memory, np.uint8)
        self._taken: Array = whole[:8].view(np.int64)  # how many; only the receiver writes it
        self._token = whole[_LINE : _LINE + 32]
        self._room = whole[_HEAD:]
        self._sent, self._kept = 0, deque[_Kept]()
        self._seen, self._given_back = 0, set[int]()

    @classmethod
    def create(cls) -> tuple[SharedMemoryRing | None, bytes]:
        """Make one for sending.

        Returns:
            It, and an invitation for the receiver; None where the system has no such memory.
        """
        if not hasattr(os, "memfd_create"):
            return None, _INVITATION.pack(0, 0, b"")
        try:
            file = os.memfd_create("transcf")
            os.ftruncate(file, _HEAD + _ROOM)
            ring = cls(mmap.mmap(file, _HEAD + _ROOM), file)
        except OSError:  # it is not allowed, or there are too many files
            return None, _INVITATION.pack(0, 0, b"")
        token = secrets.token_bytes(32)
        ring._token[:] = np.frombuffer(token, np.uint8)
        return ring, _INVITATION.pack(os.getpid(), file, token)

    @classmethod
    def accept(cls, invitation: bytes) -> SharedMemoryRing | None:
        """Open somebody's ring for receiving; None if they are on another machine."""
        process, number, token = _INVITATION.unpack(invitation)
        try:
            file = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR)
        except OSError:
            return None
        try:
            ring = cls(mmap.mmap(file, _HEAD + _ROOM))
        except (OSError, ValueError):  # something else of that number
            return None
        finally:
            os.close(file)
        return ring if ring._token.tobytes() == token else None

    def settle(self) -> None:
        """Let nobody else in: the receiver has answered."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def put(self, arrays: Sequence[Array]) -> int | None:
        """Copy arrays in, one behind the other.

        Args:
            arrays: Contiguous.

        Returns:
            Where they lie; None if there is no room, or if they had better go by the line.
        """
        n_bytes = sum(array.nbytes for array in arrays)
        if not _LEAST <= n_bytes <= len(self._room):
            return None
        while self._kept and self._kept[0].number < self._taken[0]:
            self._kept.popleft()
        size = -(-n_bytes // _LINE) * _LINE
        start = self._free(size)
        if start is None:
            return None
        at = start
        for array in arrays:
            self._room[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
            at += array.nbytes
        self._kept.append(_Kept(self._sent, start, start + size))
        self._sent += 1
        return start

    def look(self, start: int, n_bytes: int) -> tuple[Array, Callable[[], None]]:
        """Return what the next message says of, (n_bytes,) uint8, and what gives its room back."""
        number, self._seen = self._seen, self._seen + 1
        return self._room[start : start + n_bytes], partial(self._give_back, number)

    def _give_back(self, number: int) -> None:
        """Count what was looked at, once all before it has been."""
        self._given_back.add(number)
        while (oldest := int(self._taken[0])) in self._given_back:
            self._given_back.remove(oldest)
            self._taken[0] = oldest + 1

    def _free(self, size: int) -> int | None:
        """Find room, at the beginning if there is some: what is used again is in the cache."""
        if not self._kept:
            return 0
        begin, end = self._kept[0].start, self._kept[-1].end
        if begin >= end:  # it has been begun again
            return end if end + size < begin else None
        if size < begin:
            return 0
        return end if end + size <= len(self._room) else None
