"""Other processes of this machine, or workers of a cluster, that compute runs and trials."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from transcf.errors import ParameterError, TransCFError, needs_extra
from transcf.experiments.store import Store
from transcf.interrupts import end
from transcf.parallel import thread_count, use_threads

#: Environment variables that limit the threads of libraries.
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
#: Of a worker process, until it ends: its number of threads and its function.
_threads = ExitStack()
_work: list[Callable[..., Any]] = []


@dataclass(frozen=True)
class Workers:
    """Workers that call one function, each of them once at a time."""

    size: int  # number of workers
    submit: Callable[..., Future[Any]]  # calls the function with arguments
    lost: tuple[type[Exception], ...] = ()  # exceptions of the future if the worker was killed


class WorkerCluster(Protocol):
    """Has workers on other machines: `transcf.distributed.Cluster`."""

    def open_workers(
        self, work: Callable[..., object], *shared: Any
    ) -> AbstractContextManager[Workers]:
        """Return workers that call `work` with shared arguments, followed by those of the call."""


@contextmanager
def shared_work(
    work: Callable[[], object],
    store: Store | None,
    jobs: int = 1,
    cluster: WorkerCluster | None = None,
) -> Iterator[None]:
    """Let other processes compute runs inside the block: they call `work`, which uses `store`.

    They are the workers of `cluster`, or `jobs - 1` processes, which share the threads with this
    one. All of them skip runs that are finished or locked, so that machines of a cluster need a
    shared folder with file locks. Their errors and warnings are ignored: this process meets and
    reports the same ones.
    """
    if cluster is None and jobs == 1:
        yield
        return
    if store is None:
        raise ParameterError(
            "Several processes meet in the store of runs: name a folder for it (store=FOLDER)."
        )
    with ExitStack() as opened:
        if cluster is not None:
            workers = opened.enter_context(cluster.open_workers(_work_quietly, work))
        else:
            threads = max(1, thread_count() // jobs)
            opened.enter_context(use_threads(threads))
            processes = process_workers(jobs - 1, threads, _work_quietly, work)
            workers = opened.enter_context(processes)
        for _ in range(workers.size):
            workers.submit()
        yield


def _work_quietly(work: Callable[[], object]) -> None:
    warnings.simplefilter("ignore")
    with suppress(TransCFError, KeyboardInterrupt):
        work()


@contextmanager
def process_workers(
    size: int, threads: int, work: Callable[..., object], *shared: Any
) -> Iterator[Workers]:
    """Yield processes with so many threads each; they are killed after the block.

    A process ends with this one, however that ends, and ignores Ctrl-C, which this one handles.
    Each process is a pool of its own, so that a killed one fails only its own call.
    """
    with needs_extra("Running in several processes", "tune"):
        from joblib.externals.loky import ProcessPoolExecutor

    calls: dict[Any, Future[Any]] = {}  # the last one of each process

    def is_free(call: Future[Any]) -> bool:
        return call.done() and not isinstance(call.exception(), BrokenExecutor)

    def submit(*arguments: Any) -> Future[Any]:
        process = next((process for process, call in calls.items() if is_free(call)), None)
        with _blocked_interrupt():
            if process is None:
                process = ProcessPoolExecutor(
                    1,
                    initializer=_start_process,
                    initargs=(os.getpid(), threads, partial(work, *shared)),
                    env=dict.fromkeys(_LIMITS, str(threads)),
                )
            calls[process] = process.submit(_call, arguments)  # starts the process
        return calls[process]

    try:
        yield Workers(size, submit, (BrokenExecutor,))
    finally:
        for process in calls:
            process.shutdown(kill_workers=True)


@contextmanager
def _blocked_interrupt() -> Iterator[None]:
    """Block Ctrl-C in processes that are started inside the block.

    A terminal sends it to all processes of a command. Blocked signals are inherited, so a new
    process is safe from its first moment; a handler is set only once its modules are imported.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as loky_tracker

    # These processes remove semaphores that are left after Ctrl-C, without their usual warning.
    # They are started first because that unblocks signals in Python 3.11.
    quiet = "ignore:resource_tracker"
    sys.warnoptions.append(quiet)
    try:
        loky_tracker.ensure_running()
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove(quiet)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_process(parent: int, threads: int, work: Callable[..., Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it cannot be blocked
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _threads.enter_context(use_threads(threads))
    _work.append(work)


def _call(arguments: tuple[Any, ...]) -> Any:
    return _work[0](*arguments)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    end(1)
