"""Tasks that share nothing but files, done by the processes of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from transcf.distributed.driver import Cluster
from transcf.distributed.session import Session
from transcf.parallel import thread_count, use_threads

T = TypeVar("T")
#: Tasks that are handed out before the first of them is done, for each worker.
_AHEAD = 2


class ClusterTasks:
    """Does the tasks of a preparation on a cluster: `prepare_parts(..., run=tasks)`.

    A task whose worker is lost is done again by another. Files have to be where all workers find
    them.

    Args:
        cluster: Where, and by how many.

    Attributes:
        threads: Of each worker.
        ray: The library, connected to the cluster; inside `with`.

    Example:
        >>> with ClusterTasks(Cluster(workers=2)) as tasks:  # doctest: +SKIP
        ...     prepare_parts("logs/", "prepared/", run=tasks)
    """

    def __init__(self, cluster: Cluster) -> None:
        """Wait for `with` to start."""
        self._cluster = cluster
        self.ray: Any = None
        self.threads = cluster.threads or max(1, thread_count() // cluster.workers)

    def __enter__(self) -> Self:
        """Connect to the cluster, or start one."""
        self._session = Session(self._cluster.address, self._cluster.workers * self.threads)
        self.ray = self._session.ray
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
        ray = self.ray
        remote = ray.remote(num_cpus=self.threads, max_retries=3)(do)
        ahead = _AHEAD * self._cluster.workers
        asked: list[Any] = []
        for done in range(len(tasks)):
            more = tasks[len(asked) : done + ahead]
            asked += [remote.remote(work, self.threads, task) for task in more]
            try:
                yield ray.get(asked[done])
            except ray.exceptions.RayTaskError as problem:
                # What the task raised, without the lines that Ray puts around it.
                raise problem.cause from None
            asked[done] = None  # the store may let go of it


@contextmanager
def call_in_workers(cluster: Cluster, work: Callable[..., object], *task: Any) -> Iterator[None]:
    """Call `work(*task)` once in every worker, inside the block; calls are cancelled at its end.

    The call of a lost worker is repeated in another one. Errors of the calls are ignored.
    """
    with ClusterTasks(cluster) as tasks:
        ray = tasks.ray
        given = ray.put(task)  # once for all workers
        remote = ray.remote(num_cpus=tasks.threads, max_retries=3)(do)
        asked = [remote.remote(work, tasks.threads, given) for _ in range(cluster.workers)]
        try:
            yield
        finally:
            for one in asked:
                with suppress(ray.exceptions.RayError):
                    ray.cancel(one, force=True)


def do(work: Callable[..., T], threads: int, task: tuple[Any, ...]) -> T:
    """Do some work, in a worker, with so many threads."""
    with use_threads(threads):
        return work(*task)
