"""One share of the users, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from transcf.distributed.communicator import RayCommunicator
from transcf.distributed.connections import Address, Listener
from transcf.distributed.session import import_ray
from transcf.distributed.transport import MessageQueue, Transport
from transcf.io.tensors import Arrays
from transcf.kernels import unlocked
from transcf.models.checkpoint import PartFile, write_part
from transcf.models.communicator import (
    Communicator,
    DistributedSolver,
    LazyShard,
    Progress,
    Shardable,
    ShardLayout,
)
from transcf.models.training import Trainable
from transcf.parallel import use_threads


def is_of_users(name: str) -> bool:
    """Whether a tensor has a row for each user, of whom a worker has its own.

    All else is the same everywhere.
    """
    return name.startswith("user_vectors")


def parts_to_keep(tensors: Arrays, users: slice, number: int, size: int) -> tuple[Arrays, Arrays]:
    """Return what a worker answers for: its users, and as many rows of all else as any other.

    Args:
        tensors: Of the worker, or of everybody.
        users: Where the rows of the worker's users are in them.
        number: Of the worker.
        size: Workers in all.
    """
    own, shared = Arrays(), Arrays()
    for name, tensor in tensors.items():
        if is_of_users(name):
            own[name] = tensor[users]
        else:
            shared[name] = tensor[len(tensor) * number // size : len(tensor) * (number + 1) // size]
    return own, shared


@dataclass(frozen=True)
class WorkerTask:
    """What a worker is given once.

    Attributes:
        number: Of the worker, from 0.
        shares: Where each worker's groups begin, and where the last one's end.
        solver: Class of a solver that can be spread.
        problem: The worker's users, all items counted, or where they lie on disk.
        settings: The model's.
        outline: The worker's groups.
        threads: How many the worker has.
    """

    number: int
    shares: Sequence[int]
    solver: DistributedSolver
    problem: Shardable | LazyShard
    settings: Any
    outline: ShardLayout
    threads: int


@dataclass(frozen=True)
class EpochReport:
    """What a worker says of an epoch.

    Attributes:
        loss: Mean loss of a sample, of all workers together; NaN if any number is
            that the worker answers for.
        samples: Samples of all workers together.
        seconds: Time of the epoch.
        waited: How much of it was waiting for others.
        sent_bytes: What was sent.
    """

    loss: float
    samples: int
    seconds: float
    waited: float
    sent_bytes: int


class Worker:
    """Trains its share; a Ray actor, which others reach by lines."""

    def __init__(self) -> None:
        """Have a mailbox before anybody writes."""
        self._mailbox, self._crew = MessageQueue(), Communicator()

    def open(self, secret: bytes) -> Address:
        """Listen where the other workers' machines find this one; on loopback if Ray does."""
        host = import_ray().util.get_node_ip_address()
        self._exchange = Listener(self._mailbox, host, secret)
        return self._exchange.address

    def begin(self, share: WorkerTask, addresses: Sequence[Address]) -> None:
        """Take a share, and call the others."""
        self._threads = use_threads(share.threads)
        self._threads.__enter__()  # for as long as the process lives
        peers = self._exchange.call(share.number, addresses)
        self._post = Transport(share.number, self._mailbox, peers)
        self._crew = RayCommunicator(self._post, share.shares)
        given = share.problem, share.outline
        problem, outline = (
            part.read() if isinstance(part, LazyShard) else _for_kernels(part) for part in given
        )
        self._solver: Trainable = share.solver(
            problem, share.settings, outline=outline, crew=self._crew
        )

    def load(self, users: Arrays, *shared: Arrays) -> None:
        """Go on from these tensors, which Ray gives as they are in its store: read-only.

        Args:
            users: Of the own users.
            *shared: What everybody has, in parts.
        """
        self._solver.load_tensors(users | put_together(shared))

    def run_epoch(self, number: int) -> tuple[EpochReport, Arrays, Arrays]:
        """Train one epoch together with the others.

        Returns:
            What there is to say of it, and what to keep of it: see `parts_to_keep`.
        """
        post = self._post
        started, waited, sent = time.perf_counter(), post.waited, post.sent_bytes
        stats = self._solver.run_epoch(number)
        users, shared = parts_to_keep(self._solver.tensors(), slice(None), post.number, post.size)
        is_finite = all(np.isfinite(tensor).all() for tensor in (users | shared).values())
        done = EpochReport(
            stats.loss if is_finite else float("nan"),
            stats.samples,
            time.perf_counter() - started,
            post.waited - waited,
            post.sent_bytes - sent,
        )
        return done, users, shared

    def progress(self) -> Progress:
        """Say how far the epoch is; asked while it goes on."""
        return self._crew.progress

    def write(self, path: Path, users: Arrays, shared: Arrays) -> PartFile:
        """Write a part of a checkpoint."""
        return write_part(path, users | shared)


def _for_kernels(thing: Any) -> Any:
    """Unlock the arrays of something made of parts, which Ray gives as they are in its store."""
    if isinstance(thing, np.ndarray):
        return unlocked(thing)
    if isinstance(thing, tuple):
        return tuple(map(_for_kernels, thing))
    if is_dataclass(thing) and not isinstance(thing, type):
        parts = {part.name: _for_kernels(getattr(thing, part.name)) for part in fields(thing)}
        return replace(thing, **parts)
    return thing


def put_together(parts: Sequence[Arrays]) -> Arrays:
    """Undo a division by rows."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
