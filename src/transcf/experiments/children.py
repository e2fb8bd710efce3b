"""Child processes that work for this one, and end when their standard input does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic

from transcf.interrupts import uninterrupted

#: What libraries read when they start.
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
#: Time in which a child removes its temporary files, in seconds; after that it is killed.
_END_SECONDS = 0.4


def start_child(
    module: str, *words: str, threads: int, stdout: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    """Start a module of this library as a process with so many threads.

    Args:
        module: Its full name.
        *words: Arguments of the program.
        threads: What libraries may use.
        stdout: Where its output goes; as for `subprocess.Popen`.
    """
    with uninterrupted():
        return subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.PIPE,
            stdout=stdout,
            text=True,
            env={**os.environ, **dict.fromkeys(_LIMITS, str(threads))},
            start_new_session=True,  # Ctrl-C is handled by this process
        )


def end_children(children: Iterable[subprocess.Popen[str]]) -> None:
    """End processes, whatever they are doing, and wait until they have ended."""
    listed = list(children)
    for child in listed:
        with suppress(OSError):
            assert child.stdin is not None
            child.stdin.close()
    deadline = monotonic() + _END_SECONDS
    for child in listed:
        try:
            child.wait(max(0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
