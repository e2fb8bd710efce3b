"""Who does the steps of a preparation: this process alone, or others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Run(Protocol):
    """Does one step, task by task; tasks share nothing but files."""

    def __call__(
        self, title: str, work: Callable[..., T], tasks: Sequence[tuple[Any, ...]]
    ) -> Iterable[T]:
        """Do the work for each of the tasks, its arguments.

        Args:
            title: What the step does, for people.
            work: A function of a module.
            tasks: What it is called with.

        Returns:
            What came of it, in the order of the tasks.
        """


def one_by_one(title: str, work: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> Iterator[T]:
    """Do one task after the other, here.

    Example:
        >>> list(one_by_one("add", lambda a, b: a + b, [(1, 2), (3, 4)]))
        [3, 7]
    """
    for task in tasks:
        yield work(*task)
