"""Another process compiles kernels; results and errors do not depend on whether it does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import transcf
from transcf.kernels import _cache, ahead
from transcf.kernels.ahead import Job, compile_ahead
from transcf.kernels.als_elements import make_room
from transcf.parallel import parallel_for, use_threads

#: Arguments of a kernel.
GIVEN = [3, 16, np.zeros(3, np.float32)]
#: Asks for a kernel, and waits until it is on disk, or for the time given.
ASK = """
import sys, time
import numpy as np
from transcf.kernels import _cache, ahead
from transcf.kernels.als_elements import make_room
given = [3, 16, np.zeros(3, np.float32)]
job = ahead.Job.of(make_room, *given)
with __import__("transcf").use_threads(2):
    ahead.compile_ahead([job])
print(ahead._helpers[-1].pid, flush=True)
"""
WAIT = """
while _cache.is_missing(*job):
    time.sleep(0.05)
make_room(*given)
print("loaded" if make_room.stats.cache_hits else "compiled", flush=True)
"""
#: Prints how a forked process ended, and how the other one did after that.
FORK = """
import os
if not (child := os.fork()):
    sys.exit()
print(os.waitpid(child, 0)[1], ahead._helpers[-1].wait())
"""
#: Compiles a kernel, unless another process does.
COMPILE = """
import numpy as np
from transcf.kernels.als_elements import make_room
given = [3, 16, np.zeros(3, np.float32)]
make_room(*given)
print("loaded" if make_room.stats.cache_hits else "compiled")
"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Start a script with an empty cache, which scripts of one test share."""
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(transcf.__file__).parent, copy / "transcf", ignore=ignored)
    environment = os.environ | {
        "PYTHONPATH": str(copy),
        "NUMBA_CACHE_DIR": str(tmp_path / "kept"),
        "NUMBA_OPT": "0",
    }

    def begin(script: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    return begin


def ends(pid: int, within: float) -> bool:
    """Whether a process that is no child of this one ends in time."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            time.sleep(0.05)
            continue
        return True
    return False


Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.mark.skipif(os.name == "nt", reason="processes are looked up as on Unix")
def test_another_process_compiles_and_ends(start: Start) -> None:
    process = start(ASK + WAIT)
    found, _ = process.communicate(timeout=120)
    pid, how = found.split()
    assert (process.returncode, how) == (0, "loaded")
    assert ends(int(pid), 5), "the other process is left over"


@pytest.mark.skipif(os.name == "nt", reason="processes are looked up as on Unix")
def test_the_other_process_ends_with_one_that_is_killed(start: Start) -> None:
    process = start(ASK + "time.sleep(60)")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate()
    assert ends(pid, 30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked")
def test_a_forked_process_leaves_the_other_one_alone(start: Start) -> None:
    process = start(ASK + FORK)
    found, _ = process.communicate(timeout=120)
    assert (process.returncode, found.split()[1:]) == (0, ["0", "0"])


def test_two_processes_compile_a_kernel_once(start: Start) -> None:
    both = [start(COMPILE), start(COMPILE)]
    assert sorted(process.communicate(timeout=120)[0].strip() for process in both) == [
        "compiled",
        "loaded",
    ]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job that no process may be started for."""

    def refuse() -> None:
        pytest.fail("another process is started")

    monkeypatch.setattr(ahead, "_start", refuse)
    monkeypatch.setattr(ahead, "_helpers", [])  # one of an earlier test would take the job
    monkeypatch.setattr(ahead, "_later", [])
    return Job.of(make_room, *GIVEN)


def test_no_process_is_started_for_what_is_on_disk(job: Job) -> None:
    job.kernel.compile(job.types)
    with use_threads(2):
        compile_ahead([job])
        compile_ahead([job], urgent=False)
    assert not ahead._helpers
    assert not ahead._later


@pytest.mark.parametrize("case", ["one thread", "it helps itself", "no interpreter"])
def test_no_process_is_started_where_none_can_help(
    job: Job, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cache, "is_missing", lambda *_: True)
    monkeypatch.setattr(_cache, "is_helping", case == "it helps itself")
    if case == "no interpreter":  # sys.executable is the program, which would run again
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    other = Job.of(make_room, *GIVEN[:2], np.zeros((3, 1), np.float32))
    with use_threads(1 if case == "one thread" else 2):
        compile_ahead([other])
    assert not ahead._helpers


def test_kernels_that_would_be_shared_are_noted_and_not_run() -> None:
    keys = np.zeros(3, np.int32)

    def call() -> None:
        parallel_for(3, partial(make_room, keys))
        parallel_for(3, partial(make_room, keys, 2))

    assert [len(job.types) for job in Job.shared(call)] == [3, 4]
    assert [len(job.types) for job in Job.shared(call, most=1)] == [3]
