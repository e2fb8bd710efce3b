"""Trials on a cluster: its workers fit and judge; this process proposes, and keeps the record."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from transcf.cluster.tasks import ClusterTasks
from transcf.experiments.tuning.bench import Bench
from transcf.experiments.tuning.partners import LostPartnerError, Message, NoPartnerError, serve

if TYPE_CHECKING:
    from transcf.cluster.driver import Cluster

#: How long a cluster may take to find room for a worker.
_PATIENCE_SECONDS = 60.0


@contextmanager
def trying(cluster: Cluster, bench: Bench) -> Iterator[Sequence[TrialWorker]]:
    """Let the workers of a cluster run trials of a bench inside the block.

    They are given the data, and need no file but those of the store, if there is one.

    Args:
        cluster: Where.
        bench: What they do.
    """
    store = None if bench.store is None else bench.store.absolute()
    with ClusterTasks(cluster) as tasks:
        given = tasks.ray.put(replace(bench, store=store))  # once for all workers
        workers = [TrialWorker(tasks, given) for _ in range(cluster.workers)]
        try:
            ready = [worker for worker in workers if worker.is_ready()]
            if len(ready) < len(workers):
                warnings.warn(
                    f"The cluster has room for {len(ready)} of {len(workers)} workers with "
                    f"{tasks.threads} threads each; the others are not waited for.",
                    stacklevel=2,
                )
            yield ready
        finally:
            for worker in workers:
                worker.close()


class TrialWorker:
    """A worker that runs one trial at a time; one that is lost is replaced, if there is room.

    Args:
        tasks: Where.
        bench: Where in Ray's store the bench is.
    """

    attempts = 3

    def __init__(self, tasks: ClusterTasks, bench: Any) -> None:
        """Start it, and do not wait for it."""
        self._tasks, self._bench = tasks, bench
        self._is_there, self._is_closed = False, False
        self._start()

    def is_ready(self) -> bool:
        """Whether it is there, after some patience."""
        ray = self._tasks.ray
        if self._is_there:
            return True
        try:
            patience = max(1.0, self._latest - time.monotonic())
            ray.get(self._actor.greet.remote(), timeout=patience)
        except ray.exceptions.RayError:  # no room, or it cannot work there
            return False
        self._is_there = True
        return True

    def ask(self, message: Any) -> Message:
        """Ask the worker, or a new one in place of one that was lost.

        Raises:
            LostPartnerError: It was lost.
            NoPartnerError: There is no room for a new one, or it was closed.
        """
        ray = self._tasks.ray
        if self._is_closed or not self.is_ready():
            raise NoPartnerError("The cluster has no room for the worker.")
        try:
            answer: Message = ray.get(self._actor.ask.remote(message))
        except ray.exceptions.RayTaskError as problem:
            raise problem.cause from None
        except ray.exceptions.RayError as problem:
            if not self._is_closed:
                self._start()
            raise LostPartnerError("its worker was lost each time.") from problem
        return answer

    def close(self) -> None:
        """End it, whatever it is doing."""
        self._is_closed = True
        with suppress(self._tasks.ray.exceptions.RayError):
            self._tasks.ray.kill(self._actor)

    def _start(self) -> None:
        kind = self._tasks.ray.remote(num_cpus=self._tasks.threads)(Trials)
        self._actor, self._is_there = kind.remote(self._bench, self._tasks.threads), False
        self._latest = time.monotonic() + _PATIENCE_SECONDS


class Trials:
    """Runs trials, as a Ray actor; a thread of its own does, while others come and go.

    Args:
        bench: What to do.
        threads: How many to use for everything.
    """

    def __init__(self, bench: Bench, threads: int) -> None:
        """Wait for the first question."""
        self._heard, self._said = SimpleQueue[Any](), SimpleQueue[Message | Exception]()
        threading.Thread(target=self._serve, args=(bench, threads), daemon=True).start()

    def greet(self) -> None:
        """Say that it is there, by answering."""

    def ask(self, message: Any) -> Message:
        """Pass a message on, and return what comes of it."""
        self._heard.put(message)
        answer = self._said.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _serve(self, bench: Bench, threads: int) -> None:
        try:
            serve(bench, threads, self._heard.get, self._said.put)
        except Exception as problem:
            self._said.put(problem)
