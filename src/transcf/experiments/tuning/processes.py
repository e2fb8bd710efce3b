"""Processes of this machine that run trials, with threads of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transcf.experiments.tuning.bench import Bench
from transcf.experiments.tuning.partners import LostPartnerError, Message
from transcf.threads import thread_count

#: What libraries read when they start.
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


@contextmanager
def started(bench: Bench, jobs: int) -> Iterator[list[Worker]]:
    """Have so many processes for the trials of a bench, each with its share of the threads."""
    threads = max(1, thread_count() // jobs)
    with TemporaryDirectory(prefix="transcf-tune-") as folder, ExitStack() as stack:
        split = bench.split.save(Path(folder) / "split")
        yield [stack.enter_context(closing(Worker(split, bench, threads))) for _ in range(jobs)]


class Worker:
    """A process that runs one trial at a time; `close` ends it, and so does our own end.

    A trial whose process is killed has failed: here, that is mostly for want of memory.

    Args:
        folder: Where the split is saved.
        bench: What it does there.
        threads: How many it may use for everything.
    """

    attempts = 1

    def __init__(self, folder: Path, bench: Bench, threads: int) -> None:
        """Keep what it takes to start; the first trial does."""
        store = "" if bench.store is None else str(bench.store.absolute().folder)
        task = json.dumps(asdict(bench.task))
        self._words = [str(folder), task, store, bench.dataset, str(threads)]
        self._environment = {**os.environ, **dict.fromkeys(_LIMITS, str(threads))}
        self._process: subprocess.Popen[str] | None = None

    def ask(self, message: Any) -> Message:
        """Write a line, and read one.

        Raises:
            LostPartnerError: The process was killed.
            RuntimeError: It ended with an error, which it has printed.
        """
        process = self._started()
        self._say(process, message)
        assert process.stdout is not None
        if line := process.stdout.readline():
            answer: Message = json.loads(line)
            return answer
        code, self._process = process.wait(), None
        if code > 0:
            raise RuntimeError(f"A process that ran a trial ended with {code}.")
        raise LostPartnerError(f"its process was killed (signal {-code}).")

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "transcf.experiments.tuning.worker", *self._words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is for us to answer
            )
        return self._process

    def _say(self, process: subprocess.Popen[str], message: Any) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: reading on says how
