"""More processes for a table: each runs what is not in the store and nobody else is at.

They are processes of this machine (`study_process`) or workers of a cluster: both do the same.
"""

from __future__ import annotations

import json
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Protocol

from transcf.errors import ParameterError, TransCFError
from transcf.experiments.children import end_children, start_child
from transcf.experiments.contenders import Contender
from transcf.experiments.course import Course
from transcf.experiments.store import Store
from transcf.experiments.study import Study
from transcf.experiments.work import work_off
from transcf.interrupts import temporary
from transcf.threads import thread_count, use_threads


class Helpers(Protocol):
    """Where there are processes that help: a `transcf.cluster.Cluster`."""

    def helping(self, work: Callable[..., object], *task: Any) -> AbstractContextManager[None]:
        """Let each of them do some work inside the block.

        Args:
            work: Called once in each.
            *task: What it is called with.
        """


def helped(
    study: Study, store: Store | None, jobs: int = 1, cluster: Helpers | None = None
) -> AbstractContextManager[None]:
    """Let other processes work on a study inside the block.

    What they cannot do is left to this process, which says what is wrong. A cell that a lost
    process was at is free again.

    Args:
        study: What to run.
        store: Where the results go. With a cluster, a folder that all of its machines reach, whose
            file system keeps locks between machines.
        jobs: How many processes of this machine, this one among them, each with its share of the
            threads; 1 starts none.
        cluster: Whose workers help instead.

    Raises:
        ParameterError: There is no store for them to meet in.
    """
    if cluster is not None:
        return cluster.helping(work_on, study, _meeting_place(store))
    return nullcontext() if jobs == 1 else _beside(study, _meeting_place(store), jobs)


def helped_with(
    contenders: Sequence[Contender], course: Course, cluster: Helpers | None
) -> AbstractContextManager[None]:
    """Let the workers of a cluster run contenders inside the block, as `helped` does a study.

    They are given the data; of files they need the store alone.

    Args:
        contenders: Whom to run; several with what they may choose, seeds and all.
        course: Where and how.
        cluster: Whose workers help; None leaves all to this process.

    Raises:
        ParameterError: There is no store for them to meet in.
    """
    if cluster is None:
        return nullcontext()
    store = _meeting_place(course.store)
    return cluster.helping(
        run_contenders, contenders, replace(course, on_progress=None, store=store)
    )


def work_on(study: Study, store: Store) -> None:
    """Run what is left of a study; whoever asked for it tells what is wrong."""
    from transcf.experiments.runner import run_study

    warnings.simplefilter("ignore")  # the owner says the same
    with suppress(TransCFError):  # of which the owner tells
        for _ in run_study(study, store=store):
            pass


def run_contenders(contenders: Sequence[Contender], course: Course) -> None:
    """Run what is left of some contenders; whoever asked for it tells what is wrong."""
    warnings.simplefilter("ignore")  # the owner says the same
    for _ in work_off(enumerate(map(course.job, contenders))):
        pass


def _meeting_place(store: Store | None) -> Store:
    if store is None:
        raise ParameterError(
            "Several processes meet in the store of runs: name a folder for it (store=FOLDER)."
        )
    return store.absolute()


@contextmanager
def _beside(study: Study, store: Store, jobs: int) -> Iterator[None]:
    """Let processes of this machine work on a study inside the block."""
    threads = max(1, thread_count() // jobs)
    task = {"study": study.to_dict(), "store": str(store.folder), "threads": threads}
    with (
        temporary(lambda: [_start(task) for _ in range(jobs - 1)], end_children),
        use_threads(threads),
    ):
        yield


def _start(task: Mapping[str, Any]) -> subprocess.Popen[str]:
    helper = start_child("transcf.experiments.study_process", threads=task["threads"])
    assert helper.stdin is not None
    helper.stdin.write(json.dumps(task) + "\n")
    helper.stdin.flush()
    return helper
