"""What is temporary goes with the process, and Ctrl-C of the command line ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from numba.core.compiler_lock import global_compiler_lock

from transcf.interrupts import stop_on_interrupt, temporary, temporary_folder
from transcf.parallel import parallel_for, use_threads

#: A command that makes something temporary, and then does what Ctrl-C cannot interrupt.
COMMAND = """
import os, signal, sys, threading, time
from pathlib import Path
from transcf import interrupts
from transcf.data.atomic import atomic_write, atomic_write_dir

interrupts.watch()
folder = Path(sys.argv[1])
(folder / "old.txt").write_text("before")
with (
    atomic_write_dir(folder / "model") as model,
    atomic_write(folder / "old.txt") as file,
    interrupts.temporary_folder("transcf-test-", folder),
):
    (model / "part").write_text("half")
    file.write_text("after")
    os.kill(os.getpid(), signal.SIGINT)
    {work}
"""
WORK = {
    "asleep": "time.sleep(60)",
    "computing": "while True: pass",
    "a lock that is never free": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "compiling": "from numba.core.compiler_lock import global_compiler_lock as lock\n"
    "    lock.acquire(); threading.Thread(target=lock.acquire).start(); time.sleep(60)",
    "an exception handler that catches all": "\n    while True:\n        try: time.sleep(60)\n"
    "        except BaseException: pass",
    "a stop that is not heard": "\n    with interrupts.stop_on_interrupt():\n"
    "        while True: time.sleep(60)",
}


@pytest.mark.parametrize("work", WORK)
def test_ctrl_c_ends_a_command_whatever_it_does(tmp_path: Path, work: str) -> None:
    started = time.monotonic()
    script = COMMAND.format(work=WORK[work])
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 130
    assert done.stderr == "transcf: interrupted.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["old.txt"]
    assert (tmp_path / "old.txt").read_text() == "before"
    assert time.monotonic() - started < 10


def test_what_stops_by_itself_is_given_time(tmp_path: Path) -> None:
    script = COMMAND.format(
        work="with interrupts.stop_on_interrupt() as request:\n"
        "        while not request.asked: time.sleep(0.01)\n"
        "print('saved')\ninterrupts.finish()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "saved\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "old.txt"]
    assert (tmp_path / "old.txt").read_text() == "after"


def test_without_a_command_line_ctrl_c_is_an_exception() -> None:
    with stop_on_interrupt() as request:
        signal.raise_signal(signal.SIGINT)
        assert request.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_what_is_temporary_goes_at_the_end_of_the_block(tmp_path: Path) -> None:
    with temporary_folder("transcf-", tmp_path) as folder:
        (folder / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []
    removed: list[int] = []
    with temporary(lambda: 7, removed.append) as number:
        assert (number, removed) == (7, [])
    assert removed == [7]


def test_an_interrupted_compilation_does_not_block_other_threads() -> None:
    """The exception of Ctrl-C may come right after the compiler's lock is taken."""
    is_main, main = threading.Event(), threading.current_thread()

    def work(first: int, end: int) -> None:
        if threading.current_thread() is main:
            global_compiler_lock.acquire()
            is_main.set()
            raise KeyboardInterrupt
        is_main.wait(5)
        with global_compiler_lock:
            pass

    with use_threads(2), pytest.raises(KeyboardInterrupt):
        parallel_for(2, work)
    assert not global_compiler_lock.is_locked()
