"""Workers of a cluster that help this process: all do the same work, and meet in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from transcf.cluster.tasks import ClusterTasks, do

if TYPE_CHECKING:
    from transcf.cluster.driver import Cluster


@contextmanager
def helping(cluster: Cluster, work: Callable[..., object], *task: Any) -> Iterator[None]:
    """Let every worker of a cluster do some work inside the block, beside this process.

    Work that a lost worker was at is done again by another. What workers cannot do is left to this
    process, which says what is wrong. At the end of the block they are told to stop, wherever they
    are.

    Args:
        cluster: Where; this process works in addition to its workers.
        work: Done by each of them once.
        *task: What the work is called with.
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
