"""All workers as one trainable, and what happens when one is lost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from transcf.cluster.session import Session
from transcf.cluster.worker import USERS, Done, Share, Worker
from transcf.errors import ParameterError, TransCFError
from transcf.learning.triples import Outline, Problem
from transcf.storage.tensors import Arrays
from transcf.threads import thread_count
from transcf.training.trainable import EpochStats

#: How often workers may be lost in one epoch before the run gives up.
_ATTEMPTS = 3


class LostWorkersError(TransCFError):
    """Workers died again and again."""


@dataclass(frozen=True)
class Cluster:
    """Where to train: `FitOptions(cluster=Cluster(workers=2))`.

    Attributes:
        workers: Processes that share the users.
        address: Of a Ray cluster; "auto" finds the one of this machine; None starts one on this
            machine, for the time of the fit.
        threads: Threads of each worker; None shares those of this machine out.

    Example:
        >>> Cluster(workers=2, threads=1).address is None
        True
    """

    workers: int = 2
    address: str | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name, value in (("workers", self.workers), ("threads", self.threads or 1)):
            if not isinstance(value, int) or value < 1:
                raise ParameterError(f"Cluster({name}={value!r}): give a number from 1 on.")

    def spread(self, solver: Any, problem: Problem, settings: Any) -> SpreadTraining:
        """Share a problem out; see `SpreadTraining`."""
        return SpreadTraining(self, solver, problem, settings)


class SpreadTraining:
    """A solver in rounds whose users are spread over workers; the loop's `Trainable`.

    The state after each epoch is collected: it is what a lost worker's successor goes on from.

    Args:
        cluster: How many workers, and where.
        solver: Class of the solver.
        problem: All interactions.
        settings: The model's.
    """

    def __init__(self, cluster: Cluster, solver: Any, problem: Problem, settings: Any) -> None:
        """Share the users out and start the workers."""
        outline: Outline = solver.outline(problem, settings)
        workers = min(cluster.workers, outline.n_groups)
        self.restarts, self.done = 0, list[list[Done]]()
        self._threads = cluster.threads or max(1, thread_count() // workers)
        self._shares = share_out(np.diff(problem.user_indptr), outline.groups, workers)
        self._cuts = [int(outline.groups[g]) for g in self._shares]
        self._parts = [
            Share(
                number=w,
                shares=self._shares,
                solver=solver,
                problem=problem.part(self._cuts[w], self._cuts[w + 1]),
                settings=settings,
                outline=outline.part(self._shares[w], self._shares[w + 1]),
                threads=self._threads,
            )
            for w in range(workers)
        ]
        self._tensors: Arrays = solver(problem, settings).tensors()
        self._session = Session(cluster.address, workers * self._threads)
        self._actors: list[Any] = []
        self._start()

    def tensors(self) -> Arrays:
        """Return what the solver learns, of all users."""
        return self._tensors

    def load_tensors(self, tensors: Arrays) -> None:
        """Go on from these."""
        self._tensors = dict(tensors)
        self._load()

    def run_epoch(self, number: int) -> EpochStats:
        """Train one epoch; when workers are lost, new ones train it again from its beginning."""
        for _ in range(_ATTEMPTS):
            try:
                done = self._everybody("run_epoch", number)
                self._collect()
            except self._session.ray.exceptions.RayActorError:
                self.restarts += 1
                self._start()
                continue
            self.done.append(done)
            losses = [one.loss for one in done]
            loss = math.nan if any(map(math.isnan, losses)) else losses[0]
            return EpochStats(loss, done[0].samples)
        raise LostWorkersError(
            f"Workers were lost {_ATTEMPTS} times in epoch {number}: look for what ends them "
            "(memory, most of all), or take fewer workers. A checkpoint lets the run go on from "
            "the last epoch."
        )

    def facts(self) -> dict[str, Any]:
        """What the model's card says of the cluster."""
        slowest = [max(one.seconds - one.waited for one in done) for done in self.done]
        return {
            "workers": len(self._parts),
            "threads_each": self._threads,
            "restarts": self.restarts,
            "sent_bytes": sum(one.sent_bytes for done in self.done for one in done),
            "waited_seconds": round(sum(one.waited for done in self.done for one in done), 3),
            "slowest_worker_seconds": round(sum(slowest), 3),
        }

    def close(self) -> None:
        """End the workers, and the cluster if it was started here."""
        self._end()
        self._session.close()

    # -- workers -----------------------------------------------------------------------------

    def _start(self) -> None:
        """Let new workers take the place of all."""
        self._end()
        ray = self._session.ray
        # One thread trains, another lets mail arrive.
        actor = ray.remote(num_cpus=self._threads, max_concurrency=4)(Worker)
        self._actors = [actor.remote() for _ in self._parts]
        pairs = zip(self._actors, self._parts, strict=True)
        ray.get([worker.begin.remote(part, self._actors) for worker, part in pairs])
        self._load()

    def _end(self) -> None:
        for worker in self._actors:
            self._session.ray.kill(worker)
        self._actors = []

    def _load(self) -> None:
        users = self._tensors[USERS]
        others = self._session.ray.put({n: t for n, t in self._tensors.items() if n != USERS})
        bounds = zip(self._actors, self._cuts[:-1], self._cuts[1:], strict=True)
        self._session.ray.get(
            [worker.load.remote(users[first:end], others) for worker, first, end in bounds]
        )

    def _collect(self) -> None:
        users = [found[USERS] for found in self._everybody("tensors", "users")]
        others = self._session.ray.get(self._actors[0].tensors.remote("others"))
        tensors = {USERS: np.concatenate(users), **others}
        # What comes from the object store is read-only.
        self._tensors = {name: np.array(tensor) for name, tensor in tensors.items()}

    def _everybody(self, method: str, *arguments: Any) -> list[Any]:
        """Let all workers do something; the first who fails ends the waiting."""
        ray = self._session.ray
        asked = [getattr(worker, method).remote(*arguments) for worker in self._actors]
        waiting = list(asked)
        while waiting:
            ready, waiting = ray.wait(waiting)
            ray.get(ready)
        return list(ray.get(asked))


def share_out(events: ArrayLike, groups: ArrayLike, workers: int) -> list[int]:
    """Give each worker neighbouring groups with about as many events.

    Args:
        events: Of each user, (n_users,).
        groups: Where the groups of users begin, (n_groups + 1,).
        workers: At most as many as there are groups.

    Returns:
        Where each worker's groups begin, and where the last one's end, (workers + 1,).

    Example:
        >>> share_out([5, 1, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5, 6], 2)
        [0, 1, 6]
    """
    before = np.concatenate([[0], np.cumsum(events)])[np.asarray(groups)]
    n_groups = len(before) - 1
    wanted = before[-1] * np.arange(1, workers) / workers
    shares = [0]
    for number, cut in enumerate(np.abs(before[:, None] - wanted).argmin(axis=0).tolist(), start=1):
        least, most = shares[-1] + 1, n_groups - (workers - number)  # everybody has one at least
        shares.append(min(max(cut, least), most))
    return [*shares, n_groups]
