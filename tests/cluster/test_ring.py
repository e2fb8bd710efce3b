"""Shared memory between two workers: what arrives is what was sent, and nothing is overwritten."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable

import numpy as np
import pytest

from transcf.distributed.shared_memory import INVITATION_BYTES, SharedMemoryRing
from transcf.kernels import Array


def pair() -> tuple[SharedMemoryRing, SharedMemoryRing]:
    """One end to send, and one to receive."""
    sender, invitation = SharedMemoryRing.create()
    if sender is None:
        pytest.skip("needs memory without a name, which this system has not")
    assert len(invitation) == INVITATION_BYTES
    receiver = SharedMemoryRing.accept(invitation)
    assert receiver is not None
    return sender, receiver


def test_arrays_of_all_sizes_are_there_until_their_room_is_given_back() -> None:
    sender, receiver = pair()
    rng, refused, looked_at = np.random.default_rng(0), 0, 0
    waiting, held = deque[tuple[int, Array]](), list[tuple[Array, Array, Callable[[], None]]]()
    for n in range(3000):
        size = int(rng.choice([5_000, 40_000, 300_000, 900_000]) * rng.uniform(0.9, 1.1))
        array = np.full(size, n, np.float32)
        place = sender.put([array])
        if place is None:  # it would go by the line
            refused += 1
        else:
            waiting.append((place, array))
        while waiting and (place is None or rng.random() < 0.55):
            start, sent = waiting.popleft()
            held.append((sent, *receiver.look(start, sent.nbytes)))
        while held and (place is None or rng.random() < 0.6):
            sent, found, give_back = held.pop(int(rng.integers(len(held))))  # in any order
            assert np.array_equal(found.view(np.float32), sent), n
            give_back()
            looked_at += 1
    assert refused > 100, "it was full now and then"
    assert looked_at > 1500, "and not always"


def test_small_and_huge_arrays_go_by_the_line() -> None:
    sender, _ = pair()
    assert sender.put([np.zeros(10)]) is None
    assert sender.put([np.zeros(5 << 20, np.uint8)]) is None
    assert sender.put([np.zeros(4 << 20, np.uint8)]) == 0


def test_who_is_not_on_the_machine_is_not_found() -> None:
    _, invitation = SharedMemoryRing.create()
    process, file, token = struct.unpack("<qq32s", invitation)
    assert SharedMemoryRing.accept(struct.pack("<qq32s", 0, file, token)) is None, "no such process"
    assert SharedMemoryRing.accept(struct.pack("<qq32s", process, file, b"x" * 32)) is None, (
        "another token"
    )
    with open(os.devnull, "rb") as other:
        assert (
            SharedMemoryRing.accept(struct.pack("<qq32s", process, other.fileno(), token)) is None
        )


def test_another_process_reads_it() -> None:
    sender, invitation = SharedMemoryRing.create()
    if sender is None:
        pytest.skip("needs memory without a name, which this system has not")
    sent = np.arange(100_000, dtype=np.int32)
    assert sender.put([sent[:600], sent[600:]]) == 0
    script = (
        "import sys, numpy as np; from transcf.distributed.shared_memory import SharedMemoryRing\n"
        "ring = SharedMemoryRing.accept(bytes.fromhex(sys.argv[1]))\n"
        "found, give_back = ring.look(0, 400_000)\n"
        "print(found.view(np.int32).sum(dtype=np.int64)); give_back()"
    )
    command = [sys.executable, "-c", script, invitation.hex()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) == sent.sum(dtype=np.int64)
    assert sender.put([sent]) == 0, "what was taken makes room at the beginning"
