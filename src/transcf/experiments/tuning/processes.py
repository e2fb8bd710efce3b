"""Trials in a process of their own, with threads of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transcf.errors import ParameterError
from transcf.experiments.tuning.bench import Bench, IsBehind
from transcf.tuning.search import Tried

#: What libraries read when they start.
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


class Worker:
    """A process that runs one trial at a time; `close` ends it, and so does our own end.

    Args:
        folder: Where the split is saved.
        bench: What it does there.
        threads: How many it may use for everything.
    """

    def __init__(self, folder: Path, bench: Bench, threads: int) -> None:
        """Keep what it takes to start; the first trial does."""
        store = "" if bench.store is None else str(bench.store.folder.absolute())
        task = json.dumps(asdict(bench.task))
        self._words = [str(folder), task, store, bench.dataset, str(threads)]
        self._environment = {**os.environ, **dict.fromkeys(_LIMITS, str(threads))}
        self._process: subprocess.Popen[str] | None = None

    def run(self, setting: Mapping[str, Any], is_behind: IsBehind | None = None) -> Tried:
        """Run a trial, as `Bench.run` does; one whose process is killed has failed.

        Raises:
            ParameterError: The setting is none, or the model cannot be fitted here at all.
            RuntimeError: The process ended with an error, which it has printed.
        """
        process = self._started()
        self._say(process, dict(setting))
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            if "refused" in message:
                raise ParameterError(message["refused"])
            curve = {int(epoch): figure for epoch, figure in message["curve"]}
            if "state" in message:
                return Tried(**{**message, "curve": curve})
            self._say(process, is_behind is not None and is_behind(curve))
        code, self._process = process.wait(), None
        if code > 0:
            raise RuntimeError(f"A process that ran a trial ended with {code}.")
        return Tried(setting, "failed", reason=f"its process was killed (signal {-code}).")

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
