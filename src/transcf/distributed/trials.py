"""Trials of a search as Ray tasks; only the driver uses the database of the search."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from transcf.distributed.tasks import ClusterTasks
from transcf.experiments.tune import Completed, Objective, Workers, run_or_refuse

if TYPE_CHECKING:
    from transcf.distributed.driver import Cluster

#: Times that Ray runs a trial again whose worker was lost.
_RETRIES = 2


@contextmanager
def trial_workers(cluster: Cluster, objective: Objective) -> Iterator[Workers]:
    """Run trials on a cluster inside the block; warn if it has fewer processors than asked for."""
    with ClusterTasks(cluster) as tasks:
        ray, threads = tasks.ray, tasks.threads
        nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        size = min(cluster.workers, sum(int(cpus // threads) for cpus in nodes))
        if size < cluster.workers:
            warnings.warn(
                f"The cluster has room for {size} of {cluster.workers} workers with {threads} "
                "threads each.",
                stacklevel=2,
            )
        shared = ray.put(objective)  # once for all workers
        remote = ray.remote(num_cpus=threads, max_retries=_RETRIES)(run_or_refuse)
        submitted: list[Any] = []

        def submit(setting: Mapping[str, Any], completed: Completed) -> Future[Any]:
            task = remote.remote(shared, threads, dict(setting), completed)
            submitted.append(task)
            future: Future[Any] = task.future()
            return future

        try:
            yield Workers(size, submit, (ray.exceptions.RayError,))
        finally:
            for task in submitted:
                with suppress(ray.exceptions.RayError):
                    ray.cancel(task, force=True)  # no effect on finished tasks
