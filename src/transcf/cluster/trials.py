"""Trials of a search as Ray tasks; only the driver uses the database of the search."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from transcf.cluster.tasks import ClusterTasks
from transcf.experiments.tuning.objective import Objective
from transcf.experiments.tuning.workers import Completed, run_or_refuse

if TYPE_CHECKING:
    from transcf.cluster.driver import Cluster

#: Times that Ray runs a trial again whose worker was lost.
_RETRIES = 2


@contextmanager
def trial_workers(cluster: Cluster, objective: Objective) -> Iterator[RayWorkers]:
    """Run trials on a cluster inside the block; warn if it has fewer processors than asked for."""
    with ClusterTasks(cluster) as tasks:
        nodes = [node["Resources"].get("CPU", 0) for node in tasks.ray.nodes() if node["Alive"]]
        size = min(cluster.workers, sum(int(cpus // tasks.threads) for cpus in nodes))
        if size < cluster.workers:
            warnings.warn(
                f"The cluster has room for {size} of {cluster.workers} workers with "
                f"{tasks.threads} threads each.",
                stacklevel=2,
            )
        workers = RayWorkers(tasks, objective, size)
        try:
            yield workers
        finally:
            workers.close()


class RayWorkers:
    """Runs trials as Ray tasks.

    Args:
        tasks: The connection to the cluster.
        objective: What to run; it is sent to the cluster once.
        size: Trials at the same time.
    """

    def __init__(self, tasks: ClusterTasks, objective: Objective, size: int) -> None:
        self.size = size
        self.lost: tuple[type[Exception], ...] = (tasks.ray.exceptions.RayError,)
        self._ray, self._threads = tasks.ray, tasks.threads
        self._objective = tasks.ray.put(replace(objective))
        self._run = tasks.ray.remote(num_cpus=tasks.threads, max_retries=_RETRIES)(run_or_refuse)
        self._tasks: dict[Future[Any], Any] = {}

    def submit(self, setting: Mapping[str, Any], completed: Completed) -> Future[Any]:
        """Start a trial."""
        task = self._run.remote(self._objective, self._threads, dict(setting), completed)
        future: Future[Any] = task.future()
        self._tasks = {one: ref for one, ref in self._tasks.items() if not one.done()}
        self._tasks[future] = task
        return future

    def close(self) -> None:
        """Cancel the tasks that have not finished."""
        for future, task in self._tasks.items():
            if not future.done():
                with suppress(self._ray.exceptions.RayError):
                    self._ray.cancel(task, force=True)
