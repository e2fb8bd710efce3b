"""What commands print: a table for people, one JSON value for machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.data.partitioned.log import PartitionedLog
    from transcf.experiments.results import Results
    from transcf.models.base import Recommender

#: The `--json` flag of every command; with it, stdout holds JSON and nothing else.
JsonFlag: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


def print_json(value: Any) -> None:
    """Print one JSON value, in ASCII; numbers that JSON does not have become null."""
    from transcf.data.json_text import to_json

    typer.echo(to_json(value))


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    notes: Iterable[str] = (),
) -> None:
    """Print a title, a table with numbers to the right, and notes below it."""
    from rich.console import Console
    from rich.table import Table

    filled = [[_text(cell) for cell in row] for row in rows]
    table = Table(show_header=any(columns))
    for place, column in enumerate(columns):
        numeric = bool(filled) and all(_is_number(row[place]) for row in filled)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in filled:
        table.add_row(*row)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 10_000  # a pipe has no edge to wrap at
    console.print(title, style="bold")
    console.print(table)
    for note in notes:
        console.print(note)


def say_reading(log: Interactions | PartitionedLog) -> None:
    """Print on stderr what of DATA is not used, and how its ratings are used."""
    from transcf.data.report import reading_notes

    for note in reading_notes(log):
        typer.echo(f"transcf: note: {note}.", err=True)


def write_results(results: Results, report: Path | None, file: Path | None) -> None:
    """Write the report of results and the results themselves, where that is asked for."""
    if file is not None:
        results.write(file)
        say_written([file])
    if report is not None:
        from transcf.experiments.report import write_page

        say_written(*write_page(results, report))


def say_written(paths: Sequence[Path], missing: str = "") -> None:
    """Print to stderr which files were written, and what is missing from them."""
    if missing:
        typer.echo(f"transcf: the report is incomplete: {missing}", err=True)
    typer.echo(f"Written: {', '.join(map(str, paths))}", err=True)


def show_saved(
    model: Recommender[Any], folder: Path, as_json: bool, more: Mapping[str, object] | None = None
) -> None:
    """Say what a model is that was saved, and where."""
    from transcf.models.params import values_of

    facts = {"model": model.name, "folder": str(folder), **(more or {}), **model.report_}
    settings = values_of(model.settings_)
    if as_json:
        print_json({**facts, "parameters": settings})
    else:
        print_facts(f"Saved {folder}", {**facts, **settings})


def print_facts(title: str, facts: Mapping[str, object]) -> None:
    """Print names and values, one a line."""
    print_table(title, ("", ""), facts.items())


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return str(cell)


def _is_number(text: str) -> bool:
    return text == "-" or text[:1].isdigit() or text[:2].lstrip("-.")[:1].isdigit()
