"""Where trials run: in this process, or in worker processes of this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from joblib.externals.loky import ProcessPoolExecutor

from transcf.errors import MissingExtraError, ParameterError
from transcf.experiments.tuning.objective import Objective
from transcf.interrupts import end
from transcf.parallel import thread_count, use_threads
from transcf.tuning.search import Trial

#: Completed trials to prune by, or None.
Completed: TypeAlias = Collection[Trial] | None

#: Environment variables that limit the threads of libraries.
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
_worker: dict[str, Any] = {}


@dataclass(frozen=True)
class Workers:
    """Workers that run one trial each.

    Attributes:
        size: Number of workers.
        submit: Starts a trial, given a setting and completed trials. The future's result is a
            `Trial`, or the message of an error that ends the search.
        lost: Exceptions of the future if the worker was killed.
    """

    size: int
    submit: Callable[[Mapping[str, Any], Completed], Future[Any]]
    lost: tuple[type[Exception], ...] = ()


class Cluster(Protocol):
    """Runs trials on other machines: `transcf.distributed.Cluster`."""

    def trial_workers(self, objective: Objective) -> AbstractContextManager[Workers]:
        """Return workers for the trials of an objective."""


@contextmanager
def open_workers(objective: Objective, jobs: int, cluster: Cluster | None) -> Iterator[Workers]:
    """Return the workers of a search; they end with the block."""
    if cluster is None and jobs == 1:
        yield local_worker(objective)
        return
    objective = replace(objective)  # without the validation data, which workers prepare themselves
    others = process_workers(objective, jobs) if not cluster else cluster.trial_workers(objective)
    with others as workers:
        yield workers if workers.size else local_worker(objective)


def local_worker(objective: Objective) -> Workers:
    """Run trials in this process, one at a time."""

    def submit(setting: Mapping[str, Any], completed: Completed) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(objective.run(setting, completed))
        except BaseException as error:  # KeyboardInterrupt included: the search handles it
            future.set_exception(error)
        return future

    return Workers(1, submit)


@contextmanager
def process_workers(objective: Objective, jobs: int) -> Iterator[Workers]:
    """Run trials in processes that share the threads of this machine; they are killed at the end.

    Each process is a pool of its own, so that a killed one fails only its own trial.
    """
    threads = max(1, thread_count() // jobs)
    options = {
        "max_workers": 1,
        "initializer": _start_worker,
        "initargs": (objective, threads, os.getpid()),
        "env": dict.fromkeys(_LIMITS, str(threads)),
    }
    pools = [ProcessPoolExecutor(**options) for _ in range(jobs)]
    futures: list[Future[Any] | None] = [None] * jobs

    def submit(setting: Mapping[str, Any], completed: Completed) -> Future[Any]:
        slot = next(n for n, last in enumerate(futures) if last is None or last.done())
        last = futures[slot]
        if last is not None and isinstance(last.exception(), BrokenExecutor):
            pools[slot] = ProcessPoolExecutor(**options)
        future: Future[Any] = pools[slot].submit(_run_trial, dict(setting), completed)
        futures[slot] = future
        return future

    try:
        yield Workers(jobs, submit, (BrokenExecutor,))
    finally:
        for pool in pools:
            pool.shutdown(kill_workers=True)
        if objective.store is not None:
            objective.store.remove_free_locks()


def run_or_refuse(
    objective: Objective, threads: int, setting: Mapping[str, Any], completed: Completed
) -> Trial | str:
    """Run a trial in a worker; return the message of an error that ends the search."""
    with use_threads(threads):
        try:
            return objective.run(setting, completed)
        except (ParameterError, MissingExtraError) as error:
            return str(error)


def _start_worker(objective: Objective, threads: int, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    _worker.update(objective=objective, threads=threads)


def _exit_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    end(1)


def _run_trial(setting: Mapping[str, Any], completed: Completed) -> Trial | str:
    return run_or_refuse(_worker["objective"], _worker["threads"], setting, completed)
