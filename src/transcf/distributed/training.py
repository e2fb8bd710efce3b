"""Training with the users divided among workers, with the bits of one process.

A worker has the vectors and interactions of some groups of users, and a copy of all item vectors.
After each epoch the workers put what they have learned into Ray's object store, on their own
machines; a run with a lost worker continues from there with new workers.
"""

from __future__ import annotations

import math
import socket
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from transcf.data.report import counted
from transcf.distributed.cluster import Cluster, connected, import_ray
from transcf.distributed.communicator import Address, RayCommunicator, connect, import_gloo
from transcf.errors import TransCFError
from transcf.io.tensors import Arrays
from transcf.kernels import unlocked
from transcf.models.training import EpochStats
from transcf.parallel import use_threads

T = TypeVar("T")

#: How often workers may be lost in one step before the run gives up.
_ATTEMPTS = 3


class LostWorkersError(TransCFError):
    """Workers were lost again and again."""


# -- in the workers --------------------------------------------------------------------------------


class EpochReport(NamedTuple):
    """An epoch of one worker.

    Loss and samples are those of all workers; the loss is NaN if a tensor that this worker keeps is
    not finite.
    """

    loss: float
    samples: int
    working: float  # seconds without those spent waiting for others
    waited: float
    sent_bytes: int


class Worker:
    """Trains some groups of users; a Ray actor."""

    def __init__(self) -> None:
        self._host = import_ray().util.get_node_ip_address()
        self._listener: socket.socket | None = None

    def listen(self) -> Address:
        """Listen for the other workers; called in the first one only."""
        self._listener = socket.create_server((self._host, 0))
        return self._host, self._listener.getsockname()[1]

    def begin(
        self,
        address: Address,
        rank: int,
        shares: Sequence[int],
        threads: int,
        solver: Any,
        settings: Any,
        problem: Any,
        layout: Any,
    ) -> None:
        """Connect to the first worker's address, and make a solver of the class `solver`.

        Problem and layout are those of the own users; `shares` are as in `Communicator`.
        """
        self._threads = use_threads(threads)
        self._threads.__enter__()  # for as long as the process lives
        group = connect(address, rank, len(shares) - 1, self._host, self._listener)
        self._comm = RayCommunicator(group, shares)
        problem, layout = _for_kernels(problem), _for_kernels(layout)
        self._solver = solver(problem, settings, layout=layout, comm=self._comm)

    def load(self, own: Arrays, first: Arrays) -> None:
        """Continue from what this worker and the first one have kept."""
        self._solver.load_tensors(first | own)

    def run_epoch(self, number: int) -> tuple[EpochReport, Arrays]:
        """Train one epoch; return a report and the tensors that this worker keeps."""
        comm = self._comm
        started, waited, sent = time.perf_counter(), comm.waited, comm.sent_bytes
        stats = self._solver.run_epoch(number)
        kept = kept_by(comm.rank, self._solver.tensors(), slice(None))
        is_finite = all(np.isfinite(tensor).all() for tensor in kept.values())
        waited = comm.waited - waited
        working = time.perf_counter() - started - waited
        loss = stats.loss if is_finite else math.nan
        return EpochReport(loss, stats.samples, working, waited, comm.sent_bytes - sent), kept


def _for_kernels(value: Any) -> Any:
    """Make arrays writable that Ray gives read-only, as kernels are compiled for writable ones."""
    if isinstance(value, np.ndarray):
        return unlocked(value)
    if isinstance(value, tuple):
        return tuple(map(_for_kernels, value))
    if is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: _for_kernels(getattr(value, part.name)) for part in fields(value)}
        return replace(value, **parts)
    return value


# -- in the driver ---------------------------------------------------------------------------------


def is_of_users(name: str) -> bool:
    """Whether a tensor has a row for each user, so that workers have different rows of it."""
    return name.startswith("user_vectors")


def kept_by(rank: int, tensors: Arrays, users: slice) -> Arrays:
    """Return what a worker keeps: the rows of its users and, if it is the first, all others."""
    return {
        name: tensor[users] if is_of_users(name) else tensor
        for name, tensor in tensors.items()
        if is_of_users(name) or rank == 0
    }


@dataclass(frozen=True, eq=False)
class State:
    """References to what each worker has kept, in Ray's object store."""

    kept: Sequence[Any]
    get: Callable[[Sequence[Any]], list[Arrays]]

    def tensors(self) -> Arrays:
        """Return the tensors of all users and items."""
        kept = self.get(self.kept)
        return kept[0] | {
            name: np.concatenate([part[name] for part in kept])
            for name in kept[0]
            if is_of_users(name)
        }


class DistributedTraining:
    """A `Trainable` whose users are divided among workers; `models.communicator` has the parts.

    The workers check that numbers are finite: the loss of an epoch is NaN if any is not.
    """

    def __init__(self, cluster: Cluster, solver: Any, problem: Any, settings: Any) -> None:
        layout = solver.layout(problem, settings)
        workers = min(cluster.workers, layout.n_groups)
        if workers < cluster.workers:
            warnings.warn(
                f"Only {counted(workers, 'worker')} of the {cluster.workers} asked for can be of "
                f"use: the users form {counted(workers, 'group')} here, one worker each.",
                stacklevel=2,
            )
        self._restarts, self._reports = 0, list[list[EpochReport]]()
        self._threads = cluster.threads_for(workers)
        shares = share_out(np.diff(problem.user_indptr), layout.groups, workers)
        self._cuts = [int(layout.groups[g]) for g in shares]
        fixed = shares, self._threads, solver, settings
        self._tasks = [
            (number, *fixed, *shard_of(problem, layout, shares, number))
            for number in range(workers)
        ]
        self._actors: list[Any] = []
        self._opened = ExitStack()
        self._ray = self._opened.enter_context(connected(cluster.address, workers * self._threads))
        try:
            import_gloo()  # here rather than in each worker, where Ray would wrap the error
            self._state = self._put(solver(problem, settings).tensors())
            self._retry(self._start, "at the beginning")
        except BaseException:
            self.close()
            raise

    def tensors(self) -> Arrays:
        """Return the tensors of all users and items."""
        return self._state.tensors()

    def load_tensors(self, tensors: Arrays) -> None:
        """Continue from tensors of all users and items."""
        self.load_state(self._put(tensors))

    def state(self) -> State:
        """Return references to the tensors."""
        return self._state

    def load_state(self, state: State) -> None:
        """Continue from tensors in Ray's object store."""
        self._state = state
        self._retry(self._load, "while they were given vectors")

    def run_epoch(self, number: int) -> EpochStats:
        """Train one epoch; when workers are lost, new ones repeat it from its beginning."""

        def run() -> tuple[list[EpochReport], Sequence[Any]]:
            epochs = (worker.run_epoch.options(num_returns=2) for worker in self._actors)
            reports, kept = zip(*(epoch.remote(number) for epoch in epochs), strict=True)
            return self._wait(reports), kept

        reports, kept = self._retry(run, f"in epoch {number}")
        self._state = State(kept, self._get)
        self._reports.append(reports)
        losses = [report.loss for report in reports]
        loss = math.nan if any(map(math.isnan, losses)) else losses[0]
        return EpochStats(loss, reports[0].samples)

    def facts(self) -> dict[str, Any]:
        """Return what the model card says of the cluster."""
        reports = [report for epoch in self._reports for report in epoch]
        slowest = sum(max(report.working for report in epoch) for epoch in self._reports)
        return {
            "workers": len(self._tasks),
            "threads_each": self._threads,
            "restarts": self._restarts,
            "sent_bytes": sum(report.sent_bytes for report in reports),
            "waited_seconds": round(sum(report.waited for report in reports), 3),
            "slowest_worker_seconds": round(slowest, 3),
        }

    def close(self) -> None:
        """End the workers, and the cluster if it was started here."""
        self._end()
        self._opened.close()

    def _put(self, tensors: Arrays) -> State:
        users = [slice(*cut) for cut in pairwise(self._cuts)]
        parts = [kept_by(rank, tensors, own) for rank, own in enumerate(users)]
        return State([self._ray.put(part) for part in parts], self._get)

    def _get(self, kept: Sequence[Any]) -> list[Arrays]:
        return self._retry(lambda: self._ray.get(list(kept)), "with what they had")

    def _start(self) -> None:
        self._end()
        ray, n_workers = self._ray, len(self._tasks)
        wanted, found = n_workers * self._threads, ray.cluster_resources().get("CPU", 0)
        if found < wanted:
            warnings.warn(
                f"The cluster has {found:.0f} processors, and {n_workers} workers with "
                f"{self._threads} threads each ask for {wanted}: the run waits for more.",
                stacklevel=2,
            )
        actor = ray.remote(num_cpus=self._threads)(Worker)
        self._actors = [actor.remote() for _ in self._tasks]
        (address,) = self._wait([self._actors[0].listen.remote()])
        pairs = zip(self._actors, self._tasks, strict=True)
        self._wait([worker.begin.remote(address, *task) for worker, task in pairs])
        self._load()

    def _end(self) -> None:
        for worker in self._actors:
            self._ray.kill(worker)
        self._actors = []

    def _load(self) -> None:
        first, pairs = self._state.kept[0], zip(self._actors, self._state.kept, strict=True)
        self._wait([worker.load.remote(own, first) for worker, own in pairs])

    def _retry(self, work: Callable[[], T], when: str) -> T:
        """Call something that needs the workers; if some are lost, try again with new ones."""
        errors = self._ray.exceptions
        for attempt in range(_ATTEMPTS):
            try:
                if attempt and work != self._start:
                    self._start()
                return work()
            except (errors.RayActorError, ConnectionError):  # lost, or waiting for a lost one
                self._restarts += 1
            except errors.ObjectLostError as problem:
                raise LostWorkersError(
                    "A machine was lost with what its workers had learned: go on from the "
                    "checkpoint, if the run has one (resume=True or --resume)."
                ) from problem
        raise LostWorkersError(
            f"Workers were lost {_ATTEMPTS} times {when}: look for what ends them (memory, most "
            "of all), or take fewer workers. A checkpoint lets the run go on."
        )

    def _wait(self, calls: Sequence[Any]) -> list[Any]:
        """Wait for the results of calls; the first error ends the waiting."""
        waiting = list(calls)
        while waiting:
            ready, waiting = self._ray.wait(waiting)
            self._ray.get(ready)
        return list(self._ray.get(list(calls)))


def shard_of(problem: Any, layout: Any, shares: Sequence[int], number: int) -> tuple[Any, Any]:
    """Return the interactions and the groups of one worker's users."""
    first, end = shares[number], shares[number + 1]
    users = int(layout.groups[first]), int(layout.groups[end])
    return problem.part(*users), layout.part(first, end)


def share_out(events: ArrayLike, groups: ArrayLike, workers: int) -> list[int]:
    """Divide groups of users into consecutive ranges with about as many events each.

    `events` are those of each user, `groups` where the groups begin, (n_groups + 1,). Returns where
    each worker's groups begin, and where the last one's end, (workers + 1,).

    Example:
        >>> share_out([5, 1, 1, 1, 1, 1], [0, 1, 2, 3, 4, 5, 6], 2)
        [0, 1, 6]
    """
    before = np.concatenate([[0], np.cumsum(events)])[np.asarray(groups)]
    n_groups = len(before) - 1
    wanted = before[-1] * np.arange(1, workers) / workers
    shares = [0]
    for number, cut in enumerate(np.abs(before[:, None] - wanted).argmin(axis=0).tolist(), start=1):
        least, most = shares[-1] + 1, n_groups - (workers - number)  # each worker has a group
        shares.append(min(max(cut, least), most))
    return [*shares, n_groups]
