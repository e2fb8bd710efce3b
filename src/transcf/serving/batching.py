"""Requests of the same moment, answered together.

One thread works for a batcher. While it is busy, requests gather; when it is free, it takes all
that are there. Nobody waits for a batch to fill, so that a single request is as quick as without.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Runs a function on what has gathered, on a thread of its own.

    Args:
        run: From requests to as many answers, in order; an answer that is an exception is raised
            for the one who asked. What it raises itself is raised for all of them.
        most: How many requests go into one batch.
        name: Of the thread.

    Example:
        >>> async def twice() -> list[int]:
        ...     batcher = Batcher(lambda numbers: [2 * n for n in numbers], 8, "doubler")
        ...     return await asyncio.gather(batcher.ask(1), batcher.ask(2))
        >>> asyncio.run(twice())
        [2, 4]
    """

    def __init__(
        self, run: Callable[[Sequence[T]], Sequence[R | Exception]], most: int, name: str
    ) -> None:
        """Start with nothing to do."""
        self._run, self._most = run, most
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._thread = ThreadPoolExecutor(1, name)
        self._task: asyncio.Task[None] | None = None

    async def ask(self, request: T) -> R:
        """Return the answer to a request."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        """Answer until nobody waits."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                taken = [
                    self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))
                ]
                # Who has given up in the meantime is not worth the work.
                asked = [(request, answer) for request, answer in taken if not answer.done()]
                if not asked:
                    continue
                requests = [request for request, _ in asked]
                try:
                    answers = await loop.run_in_executor(self._thread, self._run, requests)
                except Exception as error:
                    answers = [error] * len(asked)
                for (_, waiting), answer in zip(asked, answers, strict=True):
                    _hand_over(waiting, answer)
        finally:
            self._task = None

    def close(self) -> None:
        """Finish what is being done, and end the thread."""
        self._thread.shutdown(wait=True)


def _hand_over(waiting: asyncio.Future[R], answer: R | Exception) -> None:
    if waiting.done():
        return
    if isinstance(answer, Exception):
        waiting.set_exception(answer)
    else:
        waiting.set_result(answer)
