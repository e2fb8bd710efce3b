"""More processes for a study: each runs what is not in the store and nobody else is at.

A helper gets the study in its first line of input and works until there is nothing left to do.
Its input stays open as long as its owner lives: when that ends in any way, so does the helper.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from transcf.errors import TransCFError
from transcf.experiments.store import Store
from transcf.experiments.study import Study
from transcf.threads import thread_count, use_threads

#: What libraries read when they start.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


@contextmanager
def helped(study: Study, store: Store, jobs: int) -> Iterator[None]:
    """Let so many processes, this one among them, work on a study inside the block.

    Each uses its share of the threads. What a helper cannot do is left to this process, which says
    what is wrong.

    Args:
        study: What to run.
        store: Where the results go.
        jobs: How many processes; 1 starts none.
    """
    if jobs == 1:
        yield
        return
    threads = max(1, thread_count() // jobs)
    helpers = [_start(as_task(study, store, threads)) for _ in range(jobs - 1)]
    try:
        with use_threads(threads):
            yield
    finally:
        for helper in helpers:
            assert helper.stdin is not None
            helper.stdin.close()  # which ends it
            helper.wait()


def as_task(study: Study, store: Store, threads: int) -> dict[str, Any]:
    """Say what to work on, with how many threads, in JSON values."""
    return {"study": study.to_dict(), "store": str(store.folder.resolve()), "threads": threads}


def work_on(task: Mapping[str, Any]) -> None:
    """Run what is left of a study; whoever asked for it tells what is wrong."""
    from transcf.experiments.runner import run_study

    warnings.simplefilter("ignore")  # the owner says the same
    with use_threads(task["threads"]), suppress(TransCFError):  # of which the owner tells
        for _ in run_study(Study.from_dict(task["study"]), store=Store(task["store"])):
            pass


def _start(task: Mapping[str, Any]) -> subprocess.Popen[str]:
    limits = {name: str(task["threads"]) for name in _THREADS}
    helper = subprocess.Popen(
        [sys.executable, "-m", "transcf.experiments.helpers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **limits},
        start_new_session=True,  # Ctrl-C is for the owner, who closes the input
    )
    assert helper.stdin is not None
    helper.stdin.write(json.dumps(task) + "\n")
    helper.stdin.flush()
    return helper


def _end_with_owner() -> None:
    """Wait for the end of the input, and end at once: what is under way is not finished."""
    sys.stdin.read()
    os._exit(0)


def _help() -> None:
    """Work on the study that the input names."""
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_owner, daemon=True).start()
    work_on(task)


if __name__ == "__main__":
    _help()
