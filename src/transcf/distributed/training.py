"""Training with the users divided among workers, with the bits of one process.

A worker has the vectors and interactions of some groups of users, and a copy of all item vectors.
After each epoch the workers put what they have learned into Ray's object store, on their own
machines; a run with a lost worker continues from there with new workers.
"""

from __future__ import annotations

import math
import secrets
import socket
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from transcf.data.report import counted
from transcf.distributed.cluster import Cluster, Session, import_ray
from transcf.distributed.communicator import Address, RayCommunicator, connect, import_gloo
from transcf.errors import TransCFError
from transcf.io.tensors import Arrays
from transcf.kernels import unlocked
from transcf.models.checkpoint import PART, PartFile, write_part
from transcf.models.communicator import Communicator, Progress
from transcf.models.training import EpochStats
from transcf.parallel import use_threads

T = TypeVar("T")

#: How often workers may be lost in one step before the run gives up.
_ATTEMPTS = 3
#: Seconds between two looks at the progress of an epoch.
_LOOK_SECONDS = 1.0


class LostWorkersError(TransCFError):
    """Workers were lost again and again."""


# -- in the workers --------------------------------------------------------------------------------


class EpochReport(NamedTuple):
    """An epoch of one worker: its time, seconds of it spent waiting for others, and bytes sent.

    Loss and samples are those of all workers; the loss is NaN if a tensor of this worker is not
    finite.
    """

    loss: float
    samples: int
    seconds: float
    waited: float
    sent_bytes: int


class Worker:
    """Trains some groups of users; a Ray actor."""

    def __init__(self) -> None:
        self._host = import_ray().util.get_node_ip_address()
        self._listener: socket.socket | None = None
        self._comm = Communicator()

    def listen(self) -> Address:
        """Listen for the other workers; called in the first one only."""
        self._listener = socket.create_server((self._host, 0))
        return self._host, self._listener.getsockname()[1]

    def begin(
        self,
        address: Address,
        number: int,
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
        group = connect(address, number, len(shares) - 1, self._host, self._listener)
        self._comm = RayCommunicator(group, shares)
        problem, layout = _for_kernels(problem), _for_kernels(layout)
        self._solver = solver(problem, settings, layout=layout, comm=self._comm)

    def load(self, users: Arrays, *shared: Arrays) -> None:
        """Continue from tensors of the own users, and from those of all workers in parts."""
        self._solver.load_tensors(users | join_rows(shared))

    def run_epoch(self, number: int) -> tuple[EpochReport, Arrays, Arrays]:
        """Train one epoch; return a report and this worker's part of the tensors."""
        comm = self._comm
        started, waited, sent = time.perf_counter(), comm.waited, comm.sent_bytes
        stats = self._solver.run_epoch(number)
        users, shared = own_part(self._solver.tensors(), slice(None), comm.rank, comm.world_size)
        is_finite = all(np.isfinite(tensor).all() for tensor in (users | shared).values())
        report = EpochReport(
            loss=stats.loss if is_finite else math.nan,
            samples=stats.samples,
            seconds=time.perf_counter() - started,
            waited=comm.waited - waited,
            sent_bytes=comm.sent_bytes - sent,
        )
        return report, users, shared

    def progress(self) -> Progress:
        """Return the progress of the epoch; called by another thread."""
        return self._comm.progress

    def write(self, path: Path, users: Arrays, shared: Arrays) -> PartFile:
        """Write a part of a checkpoint."""
        return write_part(path, users | shared)


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


# -- parts of tensors ------------------------------------------------------------------------------


def is_of_users(name: str) -> bool:
    """Whether a tensor has a row for each user, so that workers have different rows of it."""
    return name.startswith("user_vectors")


def own_part(tensors: Arrays, users: slice, number: int, size: int) -> tuple[Arrays, Arrays]:
    """Return the part of the tensors that one of several workers keeps.

    These are the rows of its users, and an equal share of the rows of all other tensors.
    """
    own, shared = Arrays(), Arrays()
    for name, tensor in tensors.items():
        if is_of_users(name):
            own[name] = tensor[users]
        else:
            shared[name] = tensor[len(tensor) * number // size : len(tensor) * (number + 1) // size]
    return own, shared


def join_rows(parts: Sequence[Arrays]) -> Arrays:
    """Concatenate tensors that were divided by rows."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


# -- in the driver ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class State:
    """References to tensors in Ray's object store by worker; see `models.training.State`."""

    users: tuple[Any, ...]
    shared: tuple[Any, ...]
    writer: Callable[[State, Path], list[PartFile]]
    _written: dict[Path, list[PartFile]] = field(default_factory=dict)

    def write(self, folder: Path) -> list[PartFile]:
        """Write it in parts, once."""
        if folder not in self._written:
            self._written[folder] = self.writer(self, folder)
        return self._written[folder]


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
        self._show: Callable[[str], None] | None = None
        self._threads = cluster.threads_for(workers)
        shares = share_out(np.diff(problem.user_indptr), layout.groups, workers)
        self._cuts = [int(layout.groups[g]) for g in shares]
        fixed = shares, self._threads, solver, settings
        self._tasks = [
            (number, *fixed, *shard_of(problem, layout, shares, number))
            for number in range(workers)
        ]
        self._session = Session(cluster.address, workers * self._threads)
        self._actors: list[Any] = []
        try:
            import_gloo()  # here rather than in each worker, where Ray would wrap the error
            self._state = self._put(solver(problem, settings).tensors())
            self._retry(self._start, "at the beginning")
        except BaseException:
            self.close()
            raise

    def tensors(self) -> Arrays:
        """Return the tensors of all users and items."""
        found: Arrays = {}
        for parts in (self._state.users, self._state.shared):
            get = partial(self._session.ray.get, list(parts))
            found |= join_rows(self._retry(get, "with what they had"))
        return found

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

        def run() -> tuple[list[EpochReport], State]:
            calls = [
                worker.run_epoch.options(num_returns=3).remote(number) for worker in self._actors
            ]
            reports, users, shared = zip(*calls, strict=True)
            return self._wait(reports), State(users, shared, self._write)

        reports, self._state = self._retry(run, f"in epoch {number}")
        self._reports.append(reports)
        losses = [report.loss for report in reports]
        loss = math.nan if any(map(math.isnan, losses)) else losses[0]
        working = [report.seconds - report.waited for report in reports]
        slowest = int(np.argmax(working))
        moved = sum(report.sent_bytes for report in reports) / 1e6
        remark = f"{moved:,.0f} MB moved  slowest #{slowest} {working[slowest]:.1f} s"
        return EpochStats(loss, reports[0].samples, remark)

    def watch(self, show: Callable[[str], None]) -> None:
        """Show the progress of the first worker from time to time."""
        self._show = show

    def facts(self) -> dict[str, Any]:
        """Return what the model card says of the cluster."""
        slowest = [max(one.seconds - one.waited for one in epoch) for epoch in self._reports]
        reports = [report for epoch in self._reports for report in epoch]
        return {
            "workers": len(self._tasks),
            "threads_each": self._threads,
            "restarts": self._restarts,
            "sent_bytes": sum(report.sent_bytes for report in reports),
            "waited_seconds": round(sum(report.waited for report in reports), 3),
            "slowest_worker_seconds": round(sum(slowest), 3),
        }

    def close(self) -> None:
        """End the workers, and the cluster if it was started here."""
        self._end()
        self._session.close()

    def _put(self, tensors: Arrays) -> State:
        put, size = self._session.ray.put, len(self._tasks)
        parts = [
            own_part(tensors, slice(*self._cuts[number : number + 2]), number, size)
            for number in range(size)
        ]
        users, shared = zip(*parts, strict=True)
        return State(tuple(map(put, users)), tuple(map(put, shared)), self._write)

    def _write(self, state: State, folder: Path) -> list[PartFile]:
        name = folder.absolute() / f"{PART}{secrets.token_hex(4)}"

        def write() -> list[PartFile]:
            parts = zip(self._actors, state.users, state.shared, strict=True)
            return self._wait(
                [
                    worker.write.remote(Path(f"{name}-{number:04}.safetensors"), users, shared)
                    for number, (worker, users, shared) in enumerate(parts)
                ]
            )

        return self._retry(write, "while they wrote a checkpoint")

    def _start(self) -> None:
        self._end()
        ray, n_workers = self._session.ray, len(self._tasks)
        wanted, found = n_workers * self._threads, ray.cluster_resources().get("CPU", 0)
        if found < wanted:
            warnings.warn(
                f"The cluster has {found:.0f} processors, and {n_workers} workers with "
                f"{self._threads} threads each ask for {wanted}: the run waits for more.",
                stacklevel=2,
            )
        # One thread trains, another reports progress.
        actor = ray.remote(num_cpus=self._threads, max_concurrency=2)(Worker)
        self._actors = [actor.remote() for _ in self._tasks]
        (address,) = self._wait([self._actors[0].listen.remote()])
        pairs = zip(self._actors, self._tasks, strict=True)
        self._wait([worker.begin.remote(address, *task) for worker, task in pairs])
        self._load()

    def _end(self) -> None:
        for worker in self._actors:
            self._session.ray.kill(worker)
        self._actors = []

    def _load(self) -> None:
        pairs = zip(self._actors, self._state.users, strict=True)
        self._wait([worker.load.remote(users, *self._state.shared) for worker, users in pairs])

    def _retry(self, work: Callable[[], T], when: str) -> T:
        """Call something that needs the workers; if some are lost, try again with new ones."""
        errors = self._session.ray.exceptions
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
        ray, waiting = self._session.ray, list(calls)
        while waiting:
            ready, waiting = ray.wait(waiting, timeout=_LOOK_SECONDS if self._show else None)
            ray.get(ready)
            if not ready and self._show is not None:
                done, steps, unit = ray.get(self._actors[0].progress.remote())
                self._show(f"{done}/{steps} {unit}")
        return list(ray.get(list(calls)))


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
