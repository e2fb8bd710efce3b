"""Other processes of this machine, or workers of a cluster, that compute runs and trials."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, Protocol

from transcf.errors import MissingExtraError, ParameterError, TransCFError
from transcf.experiments.store import Store
from transcf.interrupts import end
from transcf.parallel import thread_count, use_threads

#: Environment variables that limit the threads of libraries.
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
_threads = ExitStack()  # of a worker process, until it ends


class WorkerCluster(Protocol):
    """Has workers that can compute runs: `transcf.distributed.Cluster`."""

    def helping(self, work: Callable[..., object], *task: Any) -> AbstractContextManager[None]:
        """Call `work(*task)` once in each worker, inside the block."""


@contextmanager
def shared_work(
    work: Callable[..., object],
    task: Any,
    store: Store | None,
    jobs: int = 1,
    cluster: WorkerCluster | None = None,
) -> Iterator[None]:
    """Let other processes compute runs inside the block: they call `work(task, store)`.

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
    folder = Store(store.folder.resolve())
    if cluster is not None:
        with cluster.helping(_work_quietly, work, task, folder):
            yield
        return
    threads = max(1, thread_count() // jobs)
    with process_pool(jobs - 1, threads) as pool, use_threads(threads):
        for _ in range(jobs - 1):
            pool.submit(_work_quietly, work, task, folder)
        try:
            yield
        finally:
            pool.shutdown(kill_workers=True)
            store.remove_free_locks()


def _work_quietly(work: Callable[..., object], task: Any, store: Store) -> None:
    warnings.simplefilter("ignore")
    with suppress(TransCFError, KeyboardInterrupt):
        work(task, store)


@contextmanager
def process_pool(workers: int, threads: int, *setup: Any) -> Iterator[Any]:
    """Yield a pool of processes with so many threads each; they are killed after the block.

    A process ends with this one, however that ends, and ignores Ctrl-C, which this one handles.
    `setup` is a function with its arguments, called once in each process.
    """
    try:
        from joblib.externals.loky import ProcessPoolExecutor
    except ImportError as error:
        raise MissingExtraError("Running in several processes", "tune") from error

    pool = ProcessPoolExecutor(
        workers,
        initializer=_start_process,
        initargs=(os.getpid(), threads, *setup),
        env=dict.fromkeys(_LIMITS, str(threads)),
    )
    try:
        yield pool
    finally:
        pool.shutdown(kill_workers=True)


def _start_process(parent: int, threads: int, *setup: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _threads.enter_context(use_threads(threads))
    if setup:
        setup[0](*setup[1:])


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    end(1)
