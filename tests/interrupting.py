"""Press Ctrl-C on commands as a terminal does, and look at what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transcf.user_cache import user_cache

#: The longest that a command should take to end, in seconds, and that the tests allow, which may
#: share their cores with anything.
LIMIT, TEST_LIMIT = 2.0, 20.0
#: Parts of names that only unfinished or locked files have.
_TEMPORARY = (".tmp", ".lock", "transcf-tune-", "transcf-demo-", ".part")


def usual_kernels() -> Path:
    """Return where compiled kernels are in this process, as NUMBA_CACHE_DIR."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or user_cache().parent)


@dataclass(frozen=True)
class Place:
    """Folders of one command, all of its own.

    Attributes:
        root: The folder of all of them, and the working folder.
        cache: Where compiled kernels are, as NUMBA_CACHE_DIR.
    """

    root: Path
    cache: Path

    def environment(self) -> dict[str, str]:
        """Return an environment in which a command writes to these folders alone."""
        for name in ("home", "temporary"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        return {
            **os.environ,
            "HOME": str(self.root / "home"),
            "XDG_CACHE_HOME": str(self.root / "home" / "cache"),
            "TRANSCF_RUNS": str(self.root / "runs"),
            "TMPDIR": str(self.root / "temporary"),
            "NUMBA_CACHE_DIR": str(self.cache),
        }

    def litter(self) -> list[str]:
        """Return temporary files and folders that are left; a shared cache is left out."""
        left = [
            path for path in self.root.rglob("*") if any(part in path.name for part in _TEMPORARY)
        ]
        return sorted({str(path) for path in (*left, *(self.root / "temporary").iterdir())})


@dataclass(frozen=True)
class Outcome:
    """What came of one Ctrl-C.

    Attributes:
        command: Its first word.
        moment: Seconds between the start of the command and Ctrl-C.
        code: Exit code; negative for a signal.
        seconds: From Ctrl-C to the end.
        stderr: What was printed there.
        litter: Temporary files and processes that are left.
        finished: The command had ended before Ctrl-C.
    """

    command: str
    moment: float
    code: int
    seconds: float
    stderr: str
    litter: Sequence[str]
    finished: bool = False

    def problem(self, limit: float = TEST_LIMIT) -> str:
        """Say what is wrong, nothing if all is well."""
        if self.finished:
            return "" if self.code == 0 else f"failed before Ctrl-C: {self.stderr[-300:]}"
        # A shell reports a process that SIGINT killed as 130, too.
        checks = {
            f"code {self.code}": self.code not in (130, -signal.SIGINT),
            f"{self.seconds:.2f} s": self.seconds > limit,
            f"left: {', '.join(self.litter)}": bool(self.litter),
            f"traceback: {self.stderr[-500:]}": "Traceback" in self.stderr,
        }
        return "; ".join(words for words, is_wrong in checks.items() if is_wrong)


def press(words: Sequence[str], moment: float, place: Place) -> Outcome:
    """Start a command, press Ctrl-C some time after it has started to run, and wait for its end.

    Args:
        words: The command, without `transcf`.
        moment: Seconds after its first line; Python's own start is not counted.
        place: Where it runs.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "transcf", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=place.root,
        env=place.environment(),
        start_new_session=True,
    )
    _wait_for_start(process)
    before = time.monotonic()
    children = set[int]()
    while process.poll() is None and time.monotonic() - before < moment:
        children |= children_of(process.pid)
        time.sleep(min(0.02, moment))
    finished, pressed = process.poll() is not None, time.monotonic()
    if not finished:
        children |= children_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate()
    while any(map(_is_alive, children)) and time.monotonic() - pressed < TEST_LIMIT:
        time.sleep(0.02)  # a process that compiles for the command ends a moment after it
    seconds = time.monotonic() - pressed
    left = [f"process {child}" for child in sorted(children) if _is_alive(child)]
    return Outcome(
        words[0], moment, process.returncode, seconds, stderr, [*left, *place.litter()], finished
    )


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy inside the block."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def children_of(process: int) -> set[int]:
    """Return the processes that a process has started and that run, with theirs."""
    found = set[int]()
    for path in Path("/proc", str(process), "task").glob("*/children"):
        try:
            direct = {int(word) for word in path.read_text().split()}
        except OSError:
            continue
        found |= direct.union(*map(children_of, direct))
    return found


def _wait_for_start(process: subprocess.Popen[str]) -> None:
    """Wait for the thread that waits for Ctrl-C: the first thing that a command starts."""
    tasks = Path("/proc", str(process.pid), "task")
    while process.poll() is None and len(list(tasks.iterdir())) < 2:
        time.sleep(0.001)


def _is_alive(process: int) -> bool:
    try:
        state = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
