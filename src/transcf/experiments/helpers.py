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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
    helpers = [_start(study, store.folder, threads) for _ in range(jobs - 1)]
    try:
        with use_threads(threads):
            yield
    finally:
        for helper in helpers:
            assert helper.stdin is not None
            helper.stdin.close()  # which ends it
            helper.wait()


def _start(study: Study, folder: Path, threads: int) -> subprocess.Popen[str]:
    limits = {name: str(threads) for name in _THREADS}
    helper = subprocess.Popen(
        [sys.executable, "-m", "transcf.experiments.helpers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **limits},
        start_new_session=True,  # Ctrl-C is for the owner, who closes the input
    )
    assert helper.stdin is not None
    task = {"study": study.to_dict(), "store": str(folder.resolve()), "threads": threads}
    helper.stdin.write(json.dumps(task) + "\n")
    helper.stdin.flush()
    return helper


def _end_with_owner() -> None:
    """Wait for the end of the input, and end at once: what is under way is not finished."""
    sys.stdin.read()
    os._exit(0)


def _help() -> None:
    """Work on the study that the input names."""
    from transcf.experiments.runner import run_study

    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_owner, daemon=True).start()
    warnings.simplefilter("ignore")  # the owner says the same
    with use_threads(task["threads"]), suppress(TransCFError):  # of which the owner tells
        for _ in run_study(Study.from_dict(task["study"]), store=Store(task["store"])):
            pass


if __name__ == "__main__":
    _help()
