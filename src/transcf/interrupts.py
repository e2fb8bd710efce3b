"""Ctrl-C, and temporary files that are removed however a process ends.

The command line calls `watch` before anything else. From then on Ctrl-C raises no exception, which
could hit any line of any library: a thread waits for the signal, even while the main thread
compiles or runs a kernel. It removes temporary files, ends child processes, and ends the process
with code 130. Code that has something to keep asks for a short time to stop by itself
(`stop_request`, `stop_on_interrupt`).

Without `watch`, which is how the library is used, Ctrl-C raises `KeyboardInterrupt` as usual.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

#: Exit code of a process that Ctrl-C ended.
INTERRUPTED = 130
#: Time that a `stop_request` gives to stop, in seconds.
_GRACE = 0.7
#: Time to wait for a step that must not be cut in two, in seconds.
_STEP = 0.3
_SHOW_CURSOR = b"\x1b[?25h\n"


@dataclass(eq=False)
class StopRequest:
    """Whether Ctrl-C was pressed; who holds it has `grace` seconds, or until a second Ctrl-C."""

    asked: bool = False
    grace: float = _GRACE


class _State:
    """What one process knows about its end."""

    def __init__(self) -> None:
        #: Held while temporary files are made or renamed, and for good once the process ends.
        self.lock = threading.RLock()
        #: Functions that remove what is temporary, in the order in which it was made.
        self.removals: list[Callable[[], object]] = []
        #: Code that stops by itself.
        self.requests: list[StopRequest] = []
        self.is_watched = self.is_interrupted = False
        #: What to do after Ctrl-C, for the message about it.
        self.advice = ""


_state = _State()
if hasattr(os, "register_at_fork"):
    # What the parent made is for the parent to remove.
    os.register_at_fork(after_in_child=_state.__init__)  # type: ignore[misc]


def watch() -> None:
    """Let Ctrl-C end this process with code 130; called once, from the main thread."""
    read, write = os.pipe()
    if os.name == "posix":  # elsewhere the signal may be written to any pipe
        os.set_blocking(write, False)
    _state.is_watched = True
    signal.signal(signal.SIGINT, lambda number, frame: None)  # a thread waits for the signal
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_wait_for_interrupt, args=(read,), daemon=True).start()
    import atexit

    # Registered first, it runs last: threads do not run any more after it.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)


def unwatch() -> None:
    """Leave Ctrl-C to others, such as a server that finishes open requests."""
    if _state.is_watched:
        _state.is_watched = False
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def advise(text: str) -> None:
    """Say in the message about Ctrl-C what to do next."""
    _state.advice = f": {text}"


def finish() -> None:
    """End the process if Ctrl-C was pressed; called when a command has stopped by itself."""
    with _state.lock:  # not available any more if the process is ending
        if _state.is_interrupted:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            end(INTERRUPTED)


def wait_if_ending() -> None:
    """Wait for the end if the process is ending: what fails meanwhile is not worth a message."""
    with _state.lock:
        pass


def end(code: int) -> NoReturn:
    """Remove what is temporary, and end the process at once, without waiting for threads."""
    _state.lock.acquire(timeout=_STEP)
    for remove in reversed(_state.removals):
        with suppress(Exception):
            remove()
    os._exit(code)


@contextmanager
def stop_request(grace: float = _GRACE) -> Iterator[StopRequest]:
    """Ask for `grace` seconds to stop by itself after Ctrl-C; only where `watch` was called."""
    request = StopRequest(grace=grace)
    _state.requests.append(request)
    try:
        yield request
    finally:
        _state.requests.remove(request)


@contextmanager
def stop_on_interrupt(grace: float = _GRACE) -> Iterator[StopRequest]:
    """Turn the first Ctrl-C into a `StopRequest`; the second one interrupts at once.

    Without `watch`, signals reach the main thread only; elsewhere the request stays unasked.
    """
    is_main = threading.current_thread() is threading.main_thread()
    with stop_request(grace) as request:
        if _state.is_watched or not is_main:
            yield request
            return
        previous = signal.getsignal(signal.SIGINT)

        def note(number: int, frame: Any) -> None:
            if request.asked:
                raise KeyboardInterrupt
            request.asked = True

        signal.signal(signal.SIGINT, note)
        try:
            yield request
        finally:
            signal.signal(signal.SIGINT, previous)


@contextmanager
def temporary(make: Callable[[], T], remove: Callable[[T], object]) -> Iterator[T]:
    """Make something for the length of the block, and remove it also if Ctrl-C ends the process.

    Making it is a short step; what is removed may still be used by another thread, or half gone.
    """
    with _state.lock:
        made = make()
        removal = partial(remove, made)
        _state.removals.append(removal)
    try:
        yield made
    finally:
        removal()
        with _state.lock:
            _state.removals.remove(removal)


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder for the length of the block, in the system's place for such folders."""
    from tempfile import mkdtemp

    with temporary(lambda: Path(mkdtemp(prefix=prefix, dir=parent)), remove_folder) as folder:
        yield folder


def remove_folder(folder: Path) -> None:
    """Remove a folder, also while another thread writes to it."""
    from shutil import rmtree

    for _ in range(20):
        rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        sleep(0.01)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let no Ctrl-C of the command line end the process inside the block, which has to be short."""
    with _state.lock:
        yield


def _wait_for_interrupt(read: int) -> None:
    """Wait for Ctrl-C, give what asked for it time to stop, and end the process."""
    _next_interrupt(read)
    _state.is_interrupted = True
    if requests := list(_state.requests):
        for request in requests:
            request.asked = True
        # A second Ctrl-C ends the wait.
        wait = threading.Thread(target=_next_interrupt, args=(read,), daemon=True)
        wait.start()
        wait.join(min(max(request.grace for request in requests), threading.TIMEOUT_MAX))
    with suppress(OSError):
        if os.isatty(2):
            os.write(2, _SHOW_CURSOR)
        os.write(2, f"transcf: interrupted{_state.advice}.\n".encode())
    end(INTERRUPTED)


def _next_interrupt(read: int) -> None:
    while signal.SIGINT not in os.read(read, 1):
        pass
