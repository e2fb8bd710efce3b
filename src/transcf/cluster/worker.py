"""One share of the users, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transcf.cluster.crew import ClusterCrew
from transcf.cluster.post import Mailbox, Peer, Post, Tag
from transcf.cluster.session import import_ray
from transcf.kernels import Array
from transcf.learning.triples import Outline, Readable
from transcf.storage.tensors import Arrays
from transcf.threads import use_threads
from transcf.training.trainable import Trainable

#: What each worker has of its own users; all else is the same everywhere.
USERS = "user_vectors"


@dataclass(frozen=True)
class Share:
    """What a worker is given once.

    Attributes:
        number: Of the worker, from 0.
        shares: Where each worker's groups begin, and where the last one's end.
        solver: Class of a solver in rounds.
        problem: The worker's users, all items counted; where they lie, if they are on disk.
        settings: The model's.
        outline: The worker's groups.
        threads: How many the worker has.
    """

    number: int
    shares: Sequence[int]
    solver: Any
    problem: Readable
    settings: Any
    outline: Outline
    threads: int


@dataclass(frozen=True)
class Done:
    """What a worker says of an epoch.

    Attributes:
        loss: Mean loss of a triple, of all workers together.
        samples: Triples of all workers together.
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
    """Trains its share; a Ray actor, in whose other threads mail arrives."""

    def __init__(self) -> None:
        """Have a mailbox before anybody writes."""
        self._mailbox = Mailbox()

    def begin(self, share: Share, peers: Sequence[Any]) -> None:
        """Take a share, and know the others."""
        use_threads(share.threads)
        self._post = Post(share.number, self._mailbox, _RayOffice(peers))
        crew = ClusterCrew(self._post, share.shares)
        self._solver: Trainable = share.solver(
            share.problem.read(), share.settings, outline=share.outline, crew=crew
        )

    def deliver(self, tag: Tag, array: Array) -> None:
        """Let mail arrive."""
        self._mailbox.put(tag, array)

    def load(self, users: Array, others: Arrays) -> None:
        """Go on from these vectors."""
        tensors = {USERS: users, **others}
        self._solver.load_tensors({name: np.array(tensor) for name, tensor in tensors.items()})

    def run_epoch(self, number: int) -> Done:
        """Train one epoch together with the others."""
        started, waited, sent = time.perf_counter(), self._post.waited, self._post.sent_bytes
        stats = self._solver.run_epoch(number)
        return Done(
            stats.loss,
            stats.samples,
            time.perf_counter() - started,
            self._post.waited - waited,
            self._post.sent_bytes - sent,
        )

    def tensors(self, what: str) -> Arrays:
        """Return the vectors of the own users ("users"), or all that everybody has ("others")."""
        found = self._solver.tensors()
        return {
            name: tensor for name, tensor in found.items() if (name == USERS) == (what == "users")
        }


class _RayPeer:
    """Another worker."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def send(self, tag: Tag, message: Any) -> None:
        """Hand it over to Ray, which copies it now and brings it later."""
        self._actor.deliver.remote(tag, message)


class _RayOffice:
    """All workers, through Ray."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self.peers: Sequence[Peer] = [_RayPeer(actor) for actor in actors]

    def wrap(self, array: Array) -> Any:
        """Put it into the object store once, whoever reads it there."""
        return import_ray().put(array)
