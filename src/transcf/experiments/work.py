"""Work that several processes share: jobs that pause while somebody else is at their cell.

A job is a generator that yields whenever it has to wait, and returns what came of it. Who drives
jobs goes on with another one meanwhile, and comes back.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from transcf.errors import DivergenceError, TransCFError, WriteError
from transcf.experiments.cells import Cell, Result
from transcf.experiments.store import Store
from transcf.interrupts import StopRequest, stop_request

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

#: Something that may have to wait.
Job: TypeAlias = Generator[None, None, T]

#: How long to wait where there is nothing else to do, in seconds.
_PAUSE = 0.1


def answer(
    store: Store, cell: Cell, make: Callable[[], Result], about: Mapping[str, str]
) -> Job[Result]:
    """Take the result of a cell from the store, or make it and keep it there.

    A setting that diverges will do so again, and is kept; other failures may have passed by then.

    Args:
        store: Where to look.
        cell: What the result depends on.
        make: Runs the cell.
        about: Names for people.
    """
    while True:
        if (found := store.find(cell)) is not None:
            return found
        with store.claim(cell) as is_ours:
            if is_ours:
                if (found := store.find(cell)) is not None:
                    return found  # somebody finished it just before the claim
                result = make()
                if result.error is None or isinstance(result.error, DivergenceError):
                    _keep(store, cell, result, about)
                return result
        yield


def _keep(store: Store, cell: Cell, result: Result, about: Mapping[str, str]) -> None:
    """Write a result to the store; if that fails, warn and go on with the result."""
    try:
        store.write(cell, result, about)
    except WriteError as problem:
        # Names the store instead of the entry, so that the same warning is shown once.
        reason = str(problem).replace(str(store.place(cell.key)), str(store.folder))
        warnings.warn(f"{reason} Results are not stored.", stacklevel=2)


def nothing_to_wait_for(make: Callable[[], T]) -> Job[T]:
    """Return a job that just makes something.

    Example:
        >>> finish(nothing_to_wait_for(lambda: 7))
        7
    """
    yield from ()
    return make()


def together(jobs: Sequence[Job[T]]) -> Job[list[T]]:
    """Do several jobs, and wait only while all that are left have to; results in their order."""
    found: dict[int, T] = {}
    waiting = dict(enumerate(jobs))
    while waiting:
        before = len(found)
        for place, job in list(waiting.items()):
            try:
                next(job)
            except StopIteration as end:
                found[place] = end.value
                del waiting[place]
        if waiting and len(found) == before:
            yield
    return [found[place] for place in range(len(found))]


def finish(job: Job[T]) -> T:
    """Do a job to its end.

    Example:
        >>> def slow():
        ...     yield
        ...     return 7
        >>> finish(slow())
        7
    """
    while True:
        try:
            next(job)
        except StopIteration as end:
            done: T = end.value
            return done
        time.sleep(_PAUSE)


def work_off(jobs: Iterable[tuple[K, Job[T]]]) -> Iterator[tuple[K, T | BaseException]]:
    """Do named jobs, and yield what came of each when it is done; an interruption is the last.

    A job is asked for when those before it are done or wait. One that fails with an error of this
    library does not stop the others.
    """
    with stop_request() as request:
        yield from _work_off(jobs, request)


def _work_off(
    jobs: Iterable[tuple[K, Job[T]]], request: StopRequest
) -> Iterator[tuple[K, T | BaseException]]:
    source, waiting = iter(jobs), list[tuple[K, Job[T]]]()
    while True:
        fresh = next(source, None)
        todo = waiting if fresh is None else [*waiting, fresh]
        if not todo:
            return
        waiting = []
        for name, job in todo:
            try:
                if request.asked:
                    raise KeyboardInterrupt
                next(job)
                waiting.append((name, job))
            except StopIteration as end:
                yield name, end.value
            except TransCFError as error:
                yield name, error
            except KeyboardInterrupt as stop:
                yield name, stop
                return
        if fresh is None and len(waiting) == len(todo):
            time.sleep(_PAUSE)
