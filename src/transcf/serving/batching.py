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

from transcf.errors import TransCFError

T = TypeVar("T")
R = TypeVar("R")


class OverloadedError(TransCFError):
    """More work is queued than is allowed."""


class Batcher(Generic[T, R]):
    """Runs a function on batches of queued requests, on a thread of its own.

    Args:
        run: Maps requests to as many answers, in order; an answer that is an exception is raised
            for its request. An exception that `run` raises is raised for all requests.
        max_size: Largest batch, in units of cost; a request of more is a batch of its own.
        name: Name of the thread.
        max_queued: Largest cost of all requests that are not answered yet.

    Attributes:
        cost: Cost of the requests that are not answered yet.

    Example:
        >>> async def twice() -> list[int]:
        ...     batcher = Batcher(lambda numbers: [2 * n for n in numbers], 8, "doubler")
        ...     return await asyncio.gather(batcher.submit(1), batcher.submit(2))
        >>> asyncio.run(twice())
        [2, 4]
    """

    def __init__(
        self,
        run: Callable[[Sequence[T]], Sequence[R | Exception]],
        max_size: int,
        name: str,
        max_queued: float = float("inf"),
    ) -> None:
        self._run, self._max_size, self._max_queued = run, max_size, max_queued
        self.name, self.cost = name, 0.0
        self._queue: deque[tuple[T, float, asyncio.Future[R]]] = deque()
        self._thread = ThreadPoolExecutor(1, name)
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len(self._queue)

    async def submit(self, request: T, cost: float = 1.0) -> R:
        """Return the answer to a request.

        Args:
            request: The request.
            cost: What it costs, about milliseconds of processor time.

        Raises:
            OverloadedError: Too much work is queued already.
        """
        if self.cost and self.cost + cost > self._max_queued:
            raise OverloadedError(
                "Too much work is waiting: try again in a moment, or ask for less."
            )
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._queue.append((request, cost, answer))
        self.cost += cost
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        """Answer requests until the queue is empty."""
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                taken = self._take()
                batch = [(request, future) for request, _, future in taken if not future.done()]
                if batch:  # otherwise all were cancelled meanwhile
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
                self.cost -= sum(cost for _, cost, _ in taken)
        finally:
            self._task = None

    def _take(self) -> list[tuple[T, float, asyncio.Future[R]]]:
        """Take the requests of the next batch from the queue."""
        taken = [self._queue.popleft()]
        size = taken[0][1]
        while self._queue and size + self._queue[0][1] <= self._max_size:
            taken.append(self._queue.popleft())
            size += taken[-1][1]
        return taken

    def close(self) -> None:
        """Finish the current batch and end the thread."""
        self._thread.shutdown(wait=True)
