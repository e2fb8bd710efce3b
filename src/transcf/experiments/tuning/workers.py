"""Where trials run: in this process, or in worker processes of this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import BrokenExecutor, Future
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from transcf.errors import MissingExtraError, ParameterError
from transcf.experiments.tuning.objective import Objective
from transcf.threads import thread_count, use_threads
from transcf.tuning.search import Trial

#: Environment variables that limit the threads of libraries.
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
#: Completed trials to prune by, or None.
Completed: TypeAlias = Collection[Trial] | None


class Workers(Protocol):
    """Runs up to `size` trials at a time.

    Attributes:
        size: Number of workers.
        lost: Exceptions of a trial whose worker was killed.
    """

    size: int
    lost: tuple[type[Exception], ...]

    def submit(self, setting: Mapping[str, Any], completed: Completed) -> Future[Any]:
        """Start a trial; its result is a `Trial`, or a message that ends the search."""

    def close(self) -> None:
        """Kill the workers."""


class TrialCluster(Protocol):
    """A cluster that runs trials, such as `transcf.cluster.Cluster`."""

    def trial_workers(self, objective: Objective) -> AbstractContextManager[Workers]:
        """Return workers for the trials of an objective."""


class LocalWorker:
    """Runs trials in this process, one at a time."""

    size = 1
    lost: tuple[type[Exception], ...] = ()

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    def submit(self, setting: Mapping[str, Any], completed: Completed) -> Future[Any]:
        """Run a trial and return its finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(self._objective.run(setting, completed))
        except BaseException as error:  # KeyboardInterrupt included: the search handles it
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Do nothing."""


class ProcessWorkers:
    """Runs trials in processes of this machine, which share its threads.

    Each worker is a pool of its own, so that a killed process fails only its own trial.

    Args:
        objective: What to run.
        jobs: Number of processes.
    """

    lost: tuple[type[Exception], ...] = (BrokenExecutor,)

    def __init__(self, objective: Objective, jobs: int) -> None:
        self.size = jobs
        self._objective, self._threads = replace(objective), max(1, thread_count() // jobs)
        self._pools: list[Any] = [None] * jobs
        self._futures: list[Future[Any] | None] = [None] * jobs

    def submit(self, setting: Mapping[str, Any], completed: Completed) -> Future[Any]:
        """Start a trial in an idle worker."""
        slot = next(n for n, last in enumerate(self._futures) if last is None or last.done())
        last = self._futures[slot]
        if last is None or isinstance(last.exception(), self.lost):
            self._pools[slot] = self._start()
        future: Future[Any] = self._pools[slot].submit(_run_trial, dict(setting), completed)
        self._futures[slot] = future
        return future

    def close(self) -> None:
        """Kill the processes."""
        for pool in filter(None, self._pools):
            pool.shutdown(kill_workers=True)

    def _start(self) -> Any:
        from joblib.externals.loky import ProcessPoolExecutor

        return ProcessPoolExecutor(
            max_workers=1,
            initializer=_start_worker,
            initargs=(self._objective, self._threads, os.getpid()),
            env=dict.fromkeys(_LIMITS, str(self._threads)),
        )


_worker: dict[str, Any] = {}


def _start_worker(objective: Objective, threads: int, parent: int) -> None:
    """Prepare a worker process; it exits when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    _worker.update(objective=objective, threads=threads)


def _exit_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _run_trial(setting: Mapping[str, Any], completed: Completed) -> Trial | str:
    return run_or_refuse(_worker["objective"], _worker["threads"], setting, completed)


def run_or_refuse(
    objective: Objective, threads: int, setting: Mapping[str, Any], completed: Completed
) -> Trial | str:
    """Run a trial in a worker; return the message of an error that would end the search."""
    with use_threads(threads):
        try:
            return objective.run(setting, completed)
        except (ParameterError, MissingExtraError) as error:
            return str(error)
