"""Compiles kernels in a second process, while this one compiles others.

numba's front end is Python, so threads would not help. The other process gets kernels and the types
of their arguments on standard input, pickled by this process, and compiles them into the cache on
disk. A process that needs a kernel that is being compiled waits for it (`_cache`): no kernel is
compiled twice, and none needs the other process. It ends when there is nothing left to do, or with
this one.

A function that is compiled into its callers cannot be compiled before them. Large functions that
are called some thousand times a second are therefore compiled apart from their callers and called
by address (`call_at`), at the price of passing their arguments in memory.

Run by itself, as `python -m transcf.kernels.ahead`, this module is the other process.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.types.containers import StarArgTuple
from numba.extending import intrinsic

from transcf import parallel

from . import _cache

#: Seconds without work after which the other process ends, and that it has to end.
_IDLE, _GRACE = 2.0, 1.0
#: How much the other process stands back for kernels that are not needed at once.
_NICE = 5
#: Types of arguments by the text in which numba's dispatchers look them up.
_types: dict[bytes, tuple[Any, ...]] = {}


class Job(NamedTuple):
    """A kernel, and the types of its arguments."""

    kernel: Any
    types: tuple[Any, ...]

    @classmethod
    def of(cls, kernel: Any, *like: Any) -> Job:
        """Return the job of compiling a kernel for arguments like these."""
        try:
            key = numba._dispatcher.compute_fingerprint(like)
        except (AttributeError, NotImplementedError):  # an argument of another kind
            return cls(kernel, tuple(map(numba.typeof, like)))
        if key not in _types:  # which takes thirty times as long
            _types[key] = tuple(map(numba.typeof, like))
        return cls(kernel, _types[key])

    @classmethod
    def shared(cls, call: Callable[[], object], most: int | None = None) -> list[Job]:
        """Return the jobs of the kernels that a call would share among threads.

        They are not run: the call has to bear that, or ends after `most` of them.
        """
        found: list[Job] = []

        class Enough(Exception):  # noqa: N818
            """Ends the call."""

        def note(work: Any) -> None:
            if isinstance(work, partial) and hasattr(work.func, "py_func"):
                found.append(cls.of(work.func, *work.args, 0, 0))
            if len(found) == most:
                raise Enough

        with parallel.instead_of_sharing(note), suppress(Enough):
            call()
        return found


_lock = threading.Lock()
_helpers: list[subprocess.Popen[bytes]] = []
_later: list[Job] = []


def _start() -> subprocess.Popen[bytes]:
    """Start the other process."""
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "transcf.kernels.ahead"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process
    )
    threading.Thread(target=process.wait, daemon=True).start()
    return process


def _send(job: Job, urgent: bool) -> None:
    pipe, function = _helpers[-1].stdin, job.kernel.py_func
    assert pipe is not None
    with suppress(OSError, pickle.PicklingError, AttributeError):
        pickle.dump((function.__module__, function.__qualname__, job.types, urgent), pipe)
        pipe.flush()


def _stop() -> None:
    while _helpers:
        process = _helpers.pop()
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        if process.poll() is None:
            process.kill()


def compile_ahead(jobs: Iterable[Job], *, urgent: bool = True) -> None:
    """Let another process compile what is not on disk; this one returns at once.

    Args:
        jobs: In this order; what this process needs first should not be the first of them.
        urgent: Whether to begin now; else the other process starts, and waits for urgent ones.
    """
    missing = [job for job in jobs if job.types not in job.kernel.overloads]
    if not (missing or _later) or not _may_help():
        return
    missing = [job for job in missing if _cache.is_missing(*job)]
    with _lock, suppress(OSError):
        if missing and not (_helpers and _helpers[-1].poll() is None):
            started = _start()
            _stop()
            _helpers.append(started)
        if not urgent:
            _later.extend(missing)
            return
        for job in missing:
            _send(job, urgent=True)
        while _later:
            _send(_later.pop(0), urgent=False)


def _forget() -> None:
    """Leave the other process to the one that started it, which this one was forked from."""
    global _lock
    _lock = threading.Lock()
    _helpers.clear()
    _later.clear()


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def is_first_use(kernel: Any) -> bool:
    """Whether no machine code of a kernel is on disk, and another process could help."""
    return not kernel.overloads and _may_help() and _cache.is_missing(kernel)


def _may_help() -> bool:
    """Whether this process has a core to spare, and is not itself one of many."""
    is_python = "python" in Path(sys.executable or "").name.lower()
    is_python = is_python and not hasattr(sys, "frozen")  # which would start the program again
    is_first = multiprocessing.parent_process() is None and not _cache.is_helping
    return is_python and is_first and parallel.thread_count() > 1


def address_of(job: Job) -> int:
    """Compile a kernel, unless that is done; return its address."""
    job.kernel.compile(job.types)
    result = job.kernel.overloads[job.types]
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


@intrinsic
def call_at(typing: Any, address: Any, *args: Any) -> Any:
    """Call a kernel that returns a float64; arguments have exactly the types it is compiled for."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kinds, convention = tuple(signature.args[1]), context.call_conv
        kind = convention.get_function_type(types.float64, kinds)
        kernel = builder.inttoptr(given[0], ir.PointerType(kind))
        values = cgutils.unpack_tuple(builder, given[1])
        return convention.call_function(builder, kernel, types.float64, kinds, values)[1]

    return types.float64(types.intp, StarArgTuple(args)), generate


def _help() -> None:
    """Compile what is asked for on standard input, until there is nothing more."""
    from transcf.interrupts import end

    _cache.is_helping = True
    jobs: queue.Queue[Any] = queue.Queue()

    def read() -> None:
        with suppress(Exception):
            while True:
                jobs.put(pickle.load(sys.stdin.buffer))
        end(0)  # the process that asked is gone

    threading.Thread(target=read, daemon=True).start()
    stands_back = not hasattr(os, "nice")
    with suppress(queue.Empty):
        while True:
            module, name, types, urgent = jobs.get(timeout=_IDLE)
            if not (urgent or stands_back):
                os.nice(_NICE)
                stands_back = True
            with suppress(Exception, _cache.BusyError):
                getattr(import_module(module), name).compile(types)
    end(0)


if __name__ == "__main__":
    import_module("transcf.kernels.ahead")._help()
