"""A progress bar at a terminal and in notebooks, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


def is_watched() -> bool:
    """Whether stderr is shown to a user: at a terminal or in a notebook."""
    return sys.stderr.isatty() or _in_notebook()


def progress_console() -> Console:
    """Return where progress bars are drawn.

    Notebooks understand the control codes for one line; rich's own way there needs ipywidgets.
    """
    from rich.console import Console

    return Console(stderr=True, force_jupyter=False, force_terminal=_in_notebook() or None)


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules


class ProgressBar:
    """Shows the progress of a fit, figures of the last epoch and the time left.

    Args:
        title: What is being trained.
        total: How many units there are.
        unit: What is counted, in the plural: "epochs", "items".
        shown: True, False, or None to show it at a terminal and in notebooks.
    """

    _transient = False  # whether the bar disappears at the end

    def __init__(self, title: str, total: int, unit: str, shown: bool | None = None) -> None:
        self._title, self._total, self._unit = title, total, unit
        self._done = 0
        self.is_shown = is_watched() if shown is None else shown
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if self.is_shown:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                TextColumn(f"{{task.completed}}/{{task.total}} {self._unit}"),
                TextColumn("{task.fields[text]}", markup=False),
                TimeRemainingColumn(),
                console=progress_console(),
                transient=self._transient,
            )
            self._progress.add_task(self._title, total=self._total, text="")
            self._progress.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, record: Mapping[str, Any]) -> None:
        """Show the figures of a finished epoch."""
        metric = "" if record["metric"] is None else f"  validation {record['metric']:.4f}"
        speed = record["samples"] / max(record["seconds"], 1e-9) / 1e6
        self.show(record["epoch"], f"loss {record['loss']:.4g}{metric}  {speed:.2f} M samples/s")

    def show(self, done: int, figures: str = "") -> None:
        """Show that so many units are done."""
        self._done = done
        self._draw(figures)

    def note_compiling(self, is_compiling: bool) -> None:
        """Say before the first unit is done that kernels are compiled; later it is ignored."""
        if not self._done:
            text = "compiling kernels, once for this installation" if is_compiling else ""
            self._draw(text, at_once=True)  # what follows may keep the drawing thread waiting

    def _draw(self, text: str, at_once: bool = False) -> None:
        if self._progress is not None:
            (task,) = self._progress.task_ids
            self._progress.update(task, completed=self._done, text=text, refresh=at_once)
