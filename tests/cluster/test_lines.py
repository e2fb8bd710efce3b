"""Lines between workers: everything arrives as it was, and nobody else is let in."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from transcf.distributed.connections import Listener
from transcf.distributed.shared_memory import SharedMemoryRing
from transcf.distributed.transport import MessageQueue, Transport

LOOPBACK = "127.0.0.1"


def posts(count: int) -> list[Transport]:
    boxes = [MessageQueue() for _ in range(count)]
    exchanges = [Listener(box, LOOPBACK, b"secret") for box in boxes]
    addresses = [exchange.address for exchange in exchanges]
    pairs = enumerate(zip(boxes, exchanges, strict=True))
    return [Transport(w, box, exchange.call(w, addresses)) for w, (box, exchange) in pairs]


@pytest.mark.parametrize("near", [True, False])
def test_arrays_arrive_as_they_were_in_any_order(
    near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not near:
        monkeypatch.setattr(SharedMemoryRing, "accept", lambda invitation: None)
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal((300, 1000)).astype(np.float32),  # more than a line holds at once
        np.zeros((0, 3)),
        np.array([True, False]),
        rng.integers(0, 9, (2, 3, 4, 5), np.int32)[:, ::2],
    ]

    def talk(post: Transport) -> list[list[np.ndarray]]:
        for n, array in enumerate(arrays):
            post.send_all((1, f"from {post.number}", n), array)
        others = [w for w in range(3) if w != post.number]
        asked = reversed(range(len(arrays)))
        return [[post.receive((1, f"from {w}", n)) for w in others] for n in asked]

    everybody = posts(3)
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(talk, everybody):
            for sent, arrived in zip(reversed(arrays), found, strict=True):
                for array in arrived:
                    assert array.dtype == sent.dtype
                    assert array.shape == sent.shape
                    assert (array == sent).all()
    assert everybody[0].sent_bytes == 2 * sum(array.nbytes for array in arrays)


def test_who_does_not_know_the_secret_is_not_heard() -> None:
    box = MessageQueue()
    exchange = Listener(box, LOOPBACK, b"secret")
    stranger = Listener(MessageQueue(), LOOPBACK, b"guess")
    with pytest.raises(ConnectionError):  # the line is cut once the answer is wrong
        stranger.call(0, [(LOOPBACK, 1), exchange.address])
    with socket.create_connection(exchange.address) as line:
        line.sendall(b"\0" * 1000)  # no answer to any question
    friend = Listener(MessageQueue(), LOOPBACK, b"secret").call(
        0, [(LOOPBACK, 1), exchange.address]
    )
    friend[1].send((1, "truth", 0), np.ones(2))
    assert box.take((1, "truth", 0)).tolist() == [1.0, 1.0]
    assert len(box) == 0


def test_who_waits_for_somebody_who_is_lost_is_told() -> None:
    box = MessageQueue()
    exchange = Listener(box, LOOPBACK, b"secret")
    friend = Listener(MessageQueue(), LOOPBACK, b"secret").call(
        0, [(LOOPBACK, 1), exchange.address]
    )
    friend[1].send((1, "last", 0), np.ones(2))
    del friend  # and with it the line
    assert box.take((1, "last", 0)).tolist() == [1.0, 1.0]
    with pytest.raises(ConnectionError, match="was lost"):
        box.take((2, "more", 0))
