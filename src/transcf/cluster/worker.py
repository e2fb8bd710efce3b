"""One share of the users, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from transcf.cluster.crew import ClusterCrew
from transcf.cluster.lines import Address, Exchange
from transcf.cluster.post import Mailbox, Post
from transcf.cluster.session import import_ray
from transcf.learning.crew import Crew, Divisible, Groups, OnDisk, Progress, SpreadSolver
from transcf.storage.tensors import Arrays
from transcf.threads import use_threads
from transcf.training.checkpoint import PartFile, write_part
from transcf.training.trainable import Trainable


def is_of_users(name: str) -> bool:
    """Whether a tensor has a row for each user, of whom a worker has its own.

    All else is the same everywhere.
    """
    return name.startswith("user_vectors")


@dataclass(frozen=True)
class Share:
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
    solver: SpreadSolver
    problem: Divisible | OnDisk
    settings: Any
    outline: Groups
    threads: int


@dataclass(frozen=True)
class Done:
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
        self._mailbox, self._crew = Mailbox(), Crew()

    def open(self, secret: bytes) -> Address:
        """Listen where the other workers' machines find this one; on loopback if Ray does."""
        host = import_ray().util.get_node_ip_address()
        self._exchange = Exchange(self._mailbox, host, secret)
        return self._exchange.address

    def begin(self, share: Share, addresses: Sequence[Address]) -> None:
        """Take a share, and call the others."""
        self._threads = use_threads(share.threads)
        self._threads.__enter__()  # for as long as the process lives
        peers = self._exchange.call(share.number, addresses)
        self._post = Post(share.number, self._mailbox, peers)
        self._crew = ClusterCrew(self._post, share.shares)
        problem = share.problem.read() if isinstance(share.problem, OnDisk) else share.problem
        self._solver: Trainable = share.solver(
            problem, share.settings, outline=share.outline, crew=self._crew
        )

    def load(self, users: Arrays, others: Arrays) -> None:
        """Go on from these tensors, which Ray gives as they are in its store: read-only."""
        self._solver.load_tensors(users | others)

    def run_epoch(self, number: int) -> tuple[Done, Arrays, Arrays]:
        """Train one epoch together with the others.

        Returns:
            What there is to say of it, the tensors of the own users, and what everybody has: the
            first worker answers for all.
        """
        started, waited, sent = time.perf_counter(), self._post.waited, self._post.sent_bytes
        stats = self._solver.run_epoch(number)
        tensors = self._solver.tensors()
        users = {name: tensor for name, tensor in tensors.items() if is_of_users(name)}
        others = {name: tensor for name, tensor in tensors.items() if name not in users}
        if self._post.number:
            others = {}
        is_finite = all(np.isfinite(tensor).all() for tensor in (users | others).values())
        done = Done(
            stats.loss if is_finite else float("nan"),
            stats.samples,
            time.perf_counter() - started,
            self._post.waited - waited,
            self._post.sent_bytes - sent,
        )
        return done, users, others

    def progress(self) -> Progress:
        """Say how far the epoch is; asked while it goes on."""
        return self._crew.progress

    def write(self, path: Path, tensors: Arrays) -> PartFile:
        """Write a part of a checkpoint."""
        return write_part(path, tensors)
