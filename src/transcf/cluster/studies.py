"""Studies on a cluster: tasks of Ray run what is not in the store and nobody else is at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transcf.cluster.driver import Cluster
from transcf.cluster.session import Session
from transcf.experiments.helpers import as_task, work_on
from transcf.experiments.store import Store
from transcf.experiments.study import Study
from transcf.threads import thread_count


@contextmanager
def spread_study(study: Study, store: Store, cluster: Cluster) -> Iterator[None]:
    """Let the workers of a cluster work on a study inside the block, beside this process.

    What they cannot do is left to this process, which says what is wrong. A cell that a lost worker
    was at is free again.

    Args:
        study: What to run.
        store: Where the results go: a folder that every machine of the cluster reaches, whose file
            system keeps locks between machines.
        cluster: Where; this process works in addition to its workers.
    """
    threads = cluster.threads or max(1, thread_count() // cluster.workers)
    session = Session(cluster.address, cluster.workers * threads)
    try:
        work = session.ray.remote(num_cpus=threads, max_retries=3)(work_on)
        asked = [work.remote(as_task(study, store, threads)) for _ in range(cluster.workers)]
        yield
        for task in asked:  # this process has seen to all that was to be done
            session.ray.cancel(task, force=True)
    finally:
        session.close()
