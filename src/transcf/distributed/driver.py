"""All workers as one trainable, and what happens when one is lost."""

from __future__ import annotations

import math
import secrets
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from transcf.data.report import counted
from transcf.distributed.session import Session
from transcf.distributed.worker import EpochReport, Worker, WorkerTask, parts_to_keep, put_together
from transcf.errors import ParameterError, TransCFError
from transcf.io.tensors import Arrays
from transcf.models.checkpoint import PART, PartFile
from transcf.models.communicator import DistributedSolver, Shardable, ShardLayout
from transcf.models.training import EpochStats
from transcf.parallel import thread_count

if TYPE_CHECKING:
    from transcf.experiments.tuning.objective import Objective
    from transcf.experiments.tuning.workers import Workers

T = TypeVar("T")

#: How often workers may be lost in one epoch before the run gives up.
_ATTEMPTS = 3
#: How often to look how far an epoch is, for a progress bar.
_LOOK_SECONDS = 1.0


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

    def spread(
        self, solver: DistributedSolver, problem: Shardable, settings: Any
    ) -> DistributedTraining:
        """Share a problem out; see `DistributedTraining`."""
        return DistributedTraining(self, solver, problem, settings)

    def helping(self, work: Callable[..., object], *task: Any) -> AbstractContextManager[None]:
        """Call `work(*task)` once in every worker, inside the block; see `cluster.tasks`."""
        from transcf.distributed.tasks import call_in_workers

        return call_in_workers(self, work, *task)

    def trial_workers(self, objective: Objective) -> AbstractContextManager[Workers]:
        """Run the trials of a search on this cluster; see `cluster.trials`."""
        from transcf.distributed.trials import trial_workers

        return trial_workers(self, objective)


@dataclass(frozen=True, eq=False)
class State:
    """What workers have learned, in Ray's store; `training.checkpoint.RemoteState`.

    Attributes:
        users: Where the tensors of each worker's users are.
        shared: Where its part of all else is.
        writer: Lets the workers write it.
    """

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
    """A solver whose users are spread over workers; the loop's `DistributedTrainable`.

    What workers have learned stays with them: after each epoch they put it into Ray's store, on
    their own machines. That is what a lost worker's successor goes on from.

    Args:
        cluster: How many workers, and where.
        solver: Class of the solver.
        problem: All interactions.
        settings: The model's.
    """

    def __init__(
        self, cluster: Cluster, solver: DistributedSolver, problem: Shardable, settings: Any
    ) -> None:
        """Share the users out and start the workers."""
        outline = solver.outline(problem, settings)
        workers = min(cluster.workers, outline.n_groups)
        if workers < cluster.workers:
            warnings.warn(
                f"Only {counted(workers, 'worker')} of the {cluster.workers} asked for can be of "
                f"use: the users form {counted(workers, 'group')} here, one worker each.",
                stacklevel=2,
            )
        self._restarts, self._done = 0, list[list[EpochReport]]()
        self._show: Callable[[str], None] | None = None
        self._threads = cluster.threads or max(1, thread_count() // workers)
        shares = share_out(np.diff(problem.user_indptr), outline.groups, workers)
        self._cuts = [int(outline.groups[g]) for g in shares]
        self._parts = [
            share_of(solver, problem, settings, outline, shares, number, self._threads)
            for number in range(workers)
        ]
        self._session = Session(cluster.address, workers * self._threads)
        self._actors: list[Any] = []
        try:
            self._state = self._put(solver(problem, settings).tensors())
            self._insist(self._start, "at the beginning")
        except BaseException:
            self.close()
            raise

    # -- what is learned ---------------------------------------------------------------------

    def tensors(self) -> Arrays:
        """Collect what the solver learns, of all users."""
        found: Arrays = {}
        for parts in (self._state.users, self._state.shared):
            get = partial(self._session.ray.get, list(parts))
            found |= put_together(self._insist(get, "with what they had"))
        return found

    def load_tensors(self, tensors: Arrays) -> None:
        """Go on from these."""
        self.load_state(self._put(tensors))

    def state(self) -> State:
        """Return where the tensors are."""
        return self._state

    def load_state(self, state: State) -> None:
        """Let the workers go on from what is in Ray's store."""
        self._state = state
        self._insist(self._load, "while they were given vectors")

    def _put(self, tensors: Arrays) -> State:
        """Put tensors into Ray's store, in parts."""
        put, size = self._session.ray.put, len(self._parts)
        parts = [
            parts_to_keep(tensors, slice(*self._cuts[number : number + 2]), number, size)
            for number in range(size)
        ]
        users, shared = zip(*parts, strict=True)
        return State(tuple(map(put, users)), tuple(map(put, shared)), self._write)

    def _write(self, state: State, folder: Path) -> list[PartFile]:
        """Let every worker write its part of a checkpoint."""
        name = folder.absolute() / f"{PART}{secrets.token_hex(4)}"

        def write() -> list[PartFile]:
            parts = zip(self._actors, state.users, state.shared, strict=True)
            return self._wait(
                [
                    worker.write.remote(Path(f"{name}-{number:04}.safetensors"), users, shared)
                    for number, (worker, users, shared) in enumerate(parts)
                ]
            )

        return self._insist(write, "while they wrote a checkpoint")

    # -- epochs ------------------------------------------------------------------------------

    def run_epoch(self, number: int) -> EpochStats:
        """Train one epoch; when workers are lost, new ones train it again from its beginning."""

        def run() -> tuple[list[EpochReport], State]:
            """Tensors stay in Ray's store, on the machines of their workers, and outlive them."""
            asked = [
                worker.run_epoch.options(num_returns=3).remote(number) for worker in self._actors
            ]
            done, users, shared = zip(*asked, strict=True)
            return self._wait(done), State(users, shared, self._write)

        done, self._state = self._insist(run, f"in epoch {number}")
        self._done.append(done)
        losses = [one.loss for one in done]
        loss = math.nan if any(map(math.isnan, losses)) else losses[0]
        working = [one.seconds - one.waited for one in done]
        slowest = int(np.argmax(working))
        moved = sum(one.sent_bytes for one in done) / 1e6
        remark = f"{moved:,.0f} MB moved  slowest #{slowest} {working[slowest]:.1f} s"
        return EpochStats(loss, done[0].samples, remark)

    def watch(self, show: Callable[[str], None]) -> None:
        """Show, now and then, how far the first worker is."""
        self._show = show

    def facts(self) -> dict[str, Any]:
        """What the model's card says of the cluster."""
        slowest = [max(one.seconds - one.waited for one in done) for done in self._done]
        return {
            "workers": len(self._parts),
            "threads_each": self._threads,
            "restarts": self._restarts,
            "sent_bytes": sum(one.sent_bytes for done in self._done for one in done),
            "waited_seconds": round(sum(one.waited for done in self._done for one in done), 3),
            "slowest_worker_seconds": round(sum(slowest), 3),
        }

    # -- workers -----------------------------------------------------------------------------

    def close(self) -> None:
        """End the workers, and the cluster if it was started here."""
        self._end()
        self._session.close()

    def _start(self) -> None:
        """Let new workers take the place of all."""
        self._end()
        ray, secret = self._session.ray, secrets.token_bytes(32)
        wanted, room = len(self._parts) * self._threads, ray.cluster_resources().get("CPU", 0)
        if room < wanted:
            warnings.warn(
                f"The cluster has {room:.0f} processors, and {len(self._parts)} workers with "
                f"{self._threads} threads each ask for {wanted}: the run waits for more.",
                stacklevel=2,
            )
        # One thread trains, another says how far it is.
        actor = ray.remote(num_cpus=self._threads, max_concurrency=2)(Worker)
        self._actors = [actor.remote() for _ in self._parts]
        addresses = self._everybody("open", secret)
        pairs = zip(self._actors, self._parts, strict=True)
        self._wait([worker.begin.remote(part, addresses) for worker, part in pairs])
        self._load()

    def _end(self) -> None:
        for worker in self._actors:
            self._session.ray.kill(worker)
        self._actors = []

    def _load(self) -> None:
        pairs = zip(self._actors, self._state.users, strict=True)
        self._wait([worker.load.remote(users, *self._state.shared) for worker, users in pairs])

    def _insist(self, work: Callable[[], T], when: str) -> T:
        """Do something with the workers; when some are lost, new ones try again."""
        errors = self._session.ray.exceptions
        for attempt in range(_ATTEMPTS):
            try:
                if attempt and work != self._start:
                    self._start()
                return work()
            except (errors.RayActorError, ConnectionError):  # who waits for one that is lost
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

    def _everybody(self, method: str, *arguments: Any) -> list[Any]:
        """Let all workers do something."""
        return self._wait([getattr(worker, method).remote(*arguments) for worker in self._actors])

    def _wait(self, asked: Sequence[Any]) -> list[Any]:
        """Wait for answers; the first who fails ends the waiting."""
        ray, waiting = self._session.ray, list(asked)
        while waiting:
            ready, waiting = ray.wait(waiting, timeout=_LOOK_SECONDS if self._show else None)
            ray.get(ready)
            if not ready and self._show is not None:
                done, steps, unit = ray.get(self._actors[0].progress.remote())
                self._show(f"{done}/{steps} {unit}")
        return list(ray.get(list(asked)))


def share_of(
    solver: DistributedSolver, problem: Shardable, settings: Any, outline: ShardLayout,
    shares: list[int], number: int, threads: int,
) -> WorkerTask:  # fmt: skip
    """Return what a worker is given: its groups of users, and all that it has to know of others."""
    first, end = shares[number], shares[number + 1]
    return WorkerTask(
        number=number,
        shares=shares,
        solver=solver,
        problem=problem.part(int(outline.groups[first]), int(outline.groups[end])),
        settings=settings,
        outline=outline.part(first, end),
        threads=threads,
    )


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
