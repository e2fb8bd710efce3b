"""Ctrl-C as a polite request: finish the epoch, keep the best model."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class StopRequest:
    """Whether somebody asked to stop."""

    asked: bool = False


@contextmanager
def stop_on_interrupt() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C into a `StopRequest`; the second one interrupts at once.

    Signals reach the main thread only; elsewhere the request simply stays unasked.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        if request.asked:
            raise KeyboardInterrupt
        request.asked = True

    signal.signal(signal.SIGINT, note)
    try:
        yield request
    finally:
        signal.signal(signal.SIGINT, previous)
