"""Tasks that share nothing but files, done by the processes of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from transcf.cluster.driver import Cluster
from transcf.cluster.session import Session
from transcf.threads import thread_count, use_threads

T = TypeVar("T")
#: Tasks that are handed out before the first of them is done, for each worker.
_AHEAD = 2


class ClusterTasks:
    """Does the tasks of a preparation on a cluster: `prepare_parts(..., run=tasks)`.

    A task whose worker is lost is done again by another. Files have to be where all workers find
    them.

    Args:
        cluster: Where, and by how many.

    Example:
        >>> with ClusterTasks(Cluster(workers=2)) as tasks:  # doctest: +SKIP
        ...     prepare_parts("logs/", "prepared/", run=tasks)
    """

    def __init__(self, cluster: Cluster) -> None:
        """Wait for `with` to start."""
        self._cluster = cluster
        self._threads = cluster.threads or max(1, thread_count() // cluster.workers)

    def __enter__(self) -> Self:
        """Connect to the cluster, or start one."""
        self._session = Session(self._cluster.address, self._cluster.workers * self._threads)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave it."""
        self._session.close()

    def __call__(
        self, title: str, work: Callable[..., T], tasks: Sequence[tuple[Any, ...]]
    ) -> Iterator[T]:
        """Do the work for each of the tasks; what came of them is in their order."""
        ray = self._session.ray
        remote = ray.remote(num_cpus=self._threads, max_retries=3)(_do)
        ahead = _AHEAD * self._cluster.workers
        asked: list[Any] = []
        for done in range(len(tasks)):
            more = tasks[len(asked) : done + ahead]
            asked += [remote.remote(work, self._threads, task) for task in more]
            try:
                yield ray.get(asked[done])
            except ray.exceptions.RayTaskError as problem:
                # What the task raised, without the lines that Ray puts around it.
                raise problem.cause from None
            asked[done] = None  # the store may let go of it


def _do(work: Callable[..., T], threads: int, task: tuple[Any, ...]) -> T:
    with use_threads(threads):
        return work(*task)
