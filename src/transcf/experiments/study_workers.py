"""Other processes that compute runs of the same tables: of this machine, or of a cluster.

All processes do the same: they compute runs that are not in the cache and not locked. A process of
this machine (`main`) reads the study from its standard input, and ends when the input is closed,
however the process that started it ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from time import monotonic
from typing import Any, Protocol

from transcf.errors import ParameterError, TransCFError
from transcf.experiments.candidate import Candidate
from transcf.experiments.experiment import Experiment
from transcf.experiments.store import Store
from transcf.experiments.study import Study
from transcf.interrupts import end, temporary, uninterrupted
from transcf.parallel import thread_count, use_threads

#: Thread limits that libraries read when they are imported.
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
#: Time in which a process removes its temporary files, in seconds; after that it is killed.
_END_SECONDS = 0.4


class WorkerCluster(Protocol):
    """Has workers that can compute runs: `transcf.distributed.Cluster`."""

    def helping(self, work: Callable[..., object], *task: Any) -> AbstractContextManager[None]:
        """Call `work(*task)` once in each worker, inside the block."""


def study_workers(
    study: Study, store: Store | None, jobs: int = 1, cluster: WorkerCluster | None = None
) -> AbstractContextManager[None]:
    """Let other processes compute runs of a study inside the block.

    Errors of the workers are ignored: this process meets and reports the same ones. Runs of a
    killed worker are unlocked.

    Args:
        study: The study.
        store: The run cache. Machines of a cluster need a shared folder that supports file locks.
        jobs: Number of processes of this machine, including this one, which share the threads.
        cluster: Its workers are used instead.

    Raises:
        ParameterError: There is no store.
    """
    if cluster is not None:
        return cluster.helping(run_study_quietly, study, _shared(store))
    return nullcontext() if jobs == 1 else _processes(study, _shared(store), jobs)


def candidate_workers(
    candidates: Sequence[Candidate], experiment: Experiment, cluster: WorkerCluster | None
) -> AbstractContextManager[None]:
    """Let the workers of a cluster compute runs of candidates inside the block.

    The workers receive the data; they need access to the folder of the store only.

    Args:
        candidates: The candidates.
        experiment: Data, evaluation and seeds.
        cluster: Its workers are used; None uses none.

    Raises:
        ParameterError: There is no store.
    """
    if cluster is None:
        return nullcontext()
    shared = replace(experiment, on_progress=None, store=_shared(experiment.store))
    return cluster.helping(run_candidates_quietly, candidates, shared)


def run_study_quietly(study: Study, store: Store) -> None:
    """Compute runs of a study in a worker, without warnings and errors."""
    from transcf.experiments.runner import run_study

    warnings.simplefilter("ignore")
    with suppress(TransCFError):
        for _ in run_study(study, store=store):
            pass


def run_candidates_quietly(candidates: Sequence[Candidate], experiment: Experiment) -> None:
    """Compute runs of candidates in a worker, without warnings and errors."""
    from transcf.experiments.comparison import compare_models

    warnings.simplefilter("ignore")
    with suppress(TransCFError, KeyboardInterrupt):
        compare_models("", candidates, experiment, "")


def _shared(store: Store | None) -> Store:
    if store is None:
        raise ParameterError(
            "Several processes meet in the store of runs: name a folder for it (store=FOLDER)."
        )
    return store.absolute()


@contextmanager
def _processes(study: Study, store: Store, jobs: int) -> Iterator[None]:
    """Start processes of this machine; they end with the block."""
    threads = max(1, thread_count() // jobs)
    task = {"study": study.to_dict(), "store": str(store.folder), "threads": threads}
    with (
        temporary(lambda: [_start(task) for _ in range(jobs - 1)], _end),
        use_threads(threads),
    ):
        yield


def _start(task: Mapping[str, Any]) -> subprocess.Popen[str]:
    with uninterrupted():
        process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **dict.fromkeys(_LIMITS, str(task["threads"]))},
            start_new_session=True,  # Ctrl-C is handled by this process
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(task) + "\n")
    process.stdin.flush()
    return process


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End processes, and wait until they have ended."""
    for process in processes:
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
    deadline = monotonic() + _END_SECONDS
    for process in processes:
        try:
            process.wait(max(0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """Compute runs of the study in the first line of the input."""
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    with use_threads(task["threads"]):
        run_study_quietly(Study.from_dict(task["study"]), Store(task["store"]))


def _end_with_input() -> None:
    sys.stdin.read()
    end(0)
