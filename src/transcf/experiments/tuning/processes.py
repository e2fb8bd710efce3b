"""Processes of this machine that run trials, with threads of their own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transcf.experiments.children import end_children, start_child
from transcf.experiments.tuning.bench import Bench
from transcf.experiments.tuning.partners import LostPartnerError, Message
from transcf.interrupts import temporary, temporary_folder
from transcf.threads import thread_count


@contextmanager
def started(bench: Bench, jobs: int) -> Iterator[list[Worker]]:
    """Have so many processes for the trials of a bench, each with its share of the threads."""
    threads = max(1, thread_count() // jobs)
    with temporary_folder("transcf-tune-") as folder:
        split = bench.split.save(folder / "split")
        made = [Worker(split, bench, threads) for _ in range(jobs)]
        with temporary(lambda: made, _end) as workers:
            yield workers


def _end(workers: list[Worker]) -> None:
    end_children([one.process for one in workers if one.process is not None])


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
        self._threads = threads
        self.process: subprocess.Popen[str] | None = None

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
        code, self.process = process.wait(), None
        if code > 0:
            raise RuntimeError(f"A process that ran a trial ended with {code}.")
        raise LostPartnerError(f"its process was killed (signal {-code}).")

    def close(self) -> None:
        """End the process, whatever it is doing."""
        _end([self])

    def _started(self) -> subprocess.Popen[str]:
        if self.process is None:
            self.process = start_child(
                "transcf.experiments.tuning.worker",
                *self._words,
                threads=self._threads,
                stdout=subprocess.PIPE,
            )
        return self.process

    def _say(self, process: subprocess.Popen[str], message: Any) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: reading on says how
