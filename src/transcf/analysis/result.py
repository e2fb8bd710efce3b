"""`Analysis`: what an analysis found, as a table, as figures and for machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from transcf.data.atomic import atomic_write
from transcf.data.json_text import to_json
from transcf.pages import Drawing, Table


@dataclass(frozen=True, eq=False)
class Analysis:
    """What was found.

    Attributes:
        name: One word, as `transcf analyze --what` has it.
        title: One line.
        frame: The figures.
        facts: Single figures that matter most, by name; JSON values.
        notes: Sentences that say how to read it.
        draw: Draws the figures; needs matplotlib.
        digits: Behind the point of the table's numbers.
    """

    name: str
    title: str
    frame: pl.DataFrame
    draw: Callable[[], Sequence[Drawing]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    digits: int = 2

    @cached_property
    def figures(self) -> tuple[Drawing, ...]:
        """The figures, drawn when they are first asked for."""
        return tuple(self.draw())

    @property
    def table(self) -> Table:
        """The figures as a table of text, columns named for people."""
        words = {
            name: name.replace("_percent", " %").replace("_", " ") for name in self.frame.columns
        }
        return Table.of(self.frame.rename(words), self.title, self.notes, digits=self.digits)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "analysis": self.name,
            "title": self.title,
            "facts": dict(self.facts),
            "rows": self.frame.to_dicts(),
            "notes": list(self.notes),
        }

    def write(self, folder: Path) -> list[Path]:
        """Write the JSON form and the figures into a folder, each file whole or not at all.

        Returns:
            What was written: `NAME.json`, `NAME.csv` and an SVG for each figure.
        """
        texts = {f"{self.name}.json": to_json(self.to_dict()) + "\n"}
        texts[f"{self.name}.csv"] = self.frame.write_csv()
        for number, drawing in enumerate(self.figures, start=1):
            place = "" if len(self.figures) == 1 else f"-{number}"
            texts[f"{self.name}{place}.svg"] = drawing.to_file()
        for name, text in texts.items():
            with atomic_write(folder / name) as path:
                path.write_text(text, encoding="utf-8")
        return [folder / name for name in texts]
