"""Progress of long commands on stderr: a bar at a terminal, else a line for each finished part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

import typer

T = TypeVar("T")


class Steps:
    """What is being done, and how many of the parts are.

    Args:
        show: Called with (parts done, text) whenever one of them changes.
        names_parts: Whether the text after a part is its name, and not what was done last.
    """

    def __init__(self, show: Callable[[int, str], None], names_parts: bool = False) -> None:
        """Start with nothing done."""
        self._show, self._done, self._text = show, 0, ""
        self._names_parts = names_parts

    def report(self, text: str) -> None:
        """Show what is being done now."""
        self._text = text
        self._show(self._done, text)

    def reach(self, done: int, text: str) -> None:
        """Show that so many parts are done, and something beside it."""
        self._done, self._text = done, text
        self._show(done, text)

    def counted(self, parts: Iterable[T]) -> Iterator[T]:
        """Yield parts, and count each as done when the next one is asked for."""
        for part in parts:
            yield part
            self._done += 1
            name = str(getattr(part, "name", part))
            self._show(self._done, name if self._names_parts else self._text)


class _Lines:
    """Prints a line for every finished part.

    Args:
        total: How many parts there are.
        unit: What they are, in the plural.
    """

    def __init__(self, total: int, unit: str) -> None:
        """Start the clock."""
        self._total, self._unit, self._shown, self._started = total, unit, 0, monotonic()

    def show(self, done: int, text: str) -> None:
        """Print a line if a part was finished."""
        if done > self._shown:
            self._shown, seconds = done, monotonic() - self._started
            about = f": {text}" if text else ""
            line = f"transcf: {done}/{self._total} {self._unit} done in {seconds:.0f} s{about}"
            typer.echo(line, err=True)


@contextmanager
def show_steps(total: int, unit: str) -> Iterator[Steps]:
    """Show a bar for so many parts on stderr if that is a terminal, and remove it at the end.

    Elsewhere every finished part is one line, so that the output of a pipe shows how far it is.

    Args:
        total: How many parts there are.
        unit: What they are, in the plural.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Steps(_Lines(total, unit).show, names_parts=True)
        return
    text_column = TextColumn("{task.description}", markup=False)
    count_column = TextColumn(f"{{task.completed}}/{{task.total}} {unit}")
    layout = (BarColumn(), count_column, TimeElapsedColumn(), text_column)
    with Progress(*layout, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield Steps(lambda done, text: bar.update(task, completed=done, description=text))
