"""A progress bar on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class EpochBar:
    """Shows epoch, loss, validation metric, samples per second and the time left.

    A fit that has no epochs shows how many of its parts are done.

    Args:
        title: What is being trained.
        total: Number of epochs, or of parts.
        shown: True, False, or None to show it if stderr is a terminal.
    """

    def __init__(self, title: str, total: int, shown: bool | None) -> None:
        """Prepare; nothing is drawn before `with`."""
        self._title, self._total = title, total
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        """Draw the bar."""
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._progress.start()
            self._task = self._progress.add_task(self._title, total=self._total, figures="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the last state on the screen."""
        if self._progress is not None:
            self._progress.stop()

    def update(self, epoch: int, loss: float, metric: float | None, per_second: float) -> None:
        """Show the figures of a finished epoch."""
        shown_metric = "" if metric is None else f"  validation {metric:.4f}"
        figures = f"loss {loss:.4g}{shown_metric}  {per_second / 1e6:.2f} M triples/s"
        self.show(epoch, figures)

    def show(self, done: int, figures: str = "") -> None:
        """Show that so many epochs or parts are done."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, figures=figures)
