"""Answer requests together that arrive while others are being answered.

A batcher has one thread. While it is busy, requests are queued; when it is free, it takes all of
them. No request waits for a batch to fill, so a single request is as fast as without batching.
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
    """Runs a function on batches of queued requests, on a thread of its own.

    Args:
        run: Maps requests to as many answers, in order; an answer that is an exception is raised
            for its request. An exception that `run` raises is raised for all requests.
        max_size: Largest batch.
        name: Name of the thread.

    Example:
        >>> async def twice() -> list[int]:
        ...     batcher = Batcher(lambda numbers: [2 * n for n in numbers], 8, "doubler")
        ...     return await asyncio.gather(batcher.submit(1), batcher.submit(2))
        >>> asyncio.run(twice())
        [2, 4]
    """

    def __init__(
        self, run: Callable[[Sequence[T]], Sequence[R | Exception]], max_size: int, name: str
    ) -> None:
        self._run, self._max_size = run, max_size
        self._queue: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._thread = ThreadPoolExecutor(1, name)
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: T) -> R:
        """Return the answer to a request."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._queue.append((request, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        """Answer requests until the queue is empty."""
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                taken = [
                    self._queue.popleft() for _ in range(min(self._max_size, len(self._queue)))
                ]
                batch = [(request, future) for request, future in taken if not future.done()]
                if not batch:  # all were cancelled meanwhile
                    continue
                requests = [request for request, _ in batch]
                answers: Sequence[R | Exception]
                try:
                    answers = await loop.run_in_executor(self._thread, self._run, requests)
                except Exception as error:
                    answers = [error] * len(batch)
                for (_, future), answer in zip(batch, answers, strict=True):
                    if future.done():
                        continue
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        finally:
            self._task = None

    def close(self) -> None:
        """Finish the current batch and end the thread."""
        self._thread.shutdown(wait=True)
