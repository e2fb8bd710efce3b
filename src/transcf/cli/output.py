"""What commands print: tables or JSON on stdout; notes and progress on stderr."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from transcf.data.json_text import to_json
from transcf.errors import ParameterError, TransCFError, brief
from transcf.interrupts import INTERRUPTED, wait_if_ending
from transcf.models.progress import ProgressBar
from transcf.tables import Table, text_of

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.data.partitioned import PartitionedLog
    from transcf.experiments.results import Results


#: Longest word of a text column that keeps a table in one piece.
_LONG_WORD = 20


@dataclass(frozen=True)
class Answer:
    """What a command prints on stdout.

    Options:
        as_json: Print JSON instead.
    """

    as_json: Annotated[bool, typer.Option("--json")] = False

    def show(self, value: Any, *shown: Table | str) -> None:
        """Print tables and lines, or one JSON value in ASCII; NaN and infinity become null."""
        if self.as_json:
            typer.echo(to_json(value))
            return
        for one in shown:
            if isinstance(one, str):
                typer.echo(one)
            else:
                _print_table(one)

    def show_facts(self, title: str, facts: Mapping[str, object]) -> None:
        """Print names and values, one per line."""
        self.show(facts, facts_table(title, facts))


def values_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    notes: Sequence[str] = (),
) -> Table:
    """Return a table of any values."""
    return Table(title, columns, [[_text(cell) for cell in row] for row in rows], notes)


def facts_table(title: str, facts: Mapping[str, object]) -> Table:
    """Return a table of names and values, one per line."""
    return values_table(title, ("", ""), facts.items())


def _print_table(table: Table) -> None:
    """Print a title, a table and notes below it; a wide table comes in several parts."""
    from rich.console import Console
    from rich.table import Table as Grid

    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 10_000  # a pipe has no edge to wrap at
    rows, sides = [list(map(str, row)) for row in table.rows], table.alignment()
    console.print(table.title, style="bold")
    for part in _parts(table.columns, rows, sides, console.width):
        grid = Grid(show_header=any(table.columns))
        for place in part:
            is_number = sides[place] == "r"
            grid.add_column(
                table.columns[place],
                justify="right" if is_number else "left",
                overflow="fold",
                no_wrap=is_number,
            )
        for row in rows:
            grid.add_row(*(row[place] for place in part))
        console.print(grid)
    for line in table.notes:
        console.print(line)


def _parts(
    columns: Sequence[str], rows: Sequence[Sequence[str]], sides: str, width: int
) -> Iterator[list[int]]:
    """Yield the columns that fit on a terminal side by side; the first one is in every part.

    Numbers are not broken, text is broken at blanks.
    """
    needed = []
    for place, (name, side) in enumerate(zip(columns, sides, strict=True)):
        texts = [name, *(row[place] for row in rows)]
        words = texts if side == "r" else [word for text in texts for word in text.split()]
        longest = max(map(len, words), default=0)
        needed.append(longest if side == "r" else min(longest, _LONG_WORD))
    part = [0]
    for place in range(1, len(columns)):
        borders = 3 * len(part) + 4
        if len(part) > 1 and sum(needed[n] for n in (*part, place)) + borders > width:
            yield part
            part = [0]
        part.append(place)
    yield part


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.4g}"
    if isinstance(cell, dict):
        return ", ".join(f"{name} {_text(value)}" for name, value in cell.items())
    return text_of(cell)


def note(text: str) -> None:
    """Print one line on stderr."""
    typer.echo(f"transcf: {text}", err=True)


def end_interrupted(advice: str) -> NoReturn:
    """Say what Ctrl-C has left behind, and end the command."""
    note(f"interrupted{advice}")
    raise typer.Exit(INTERRUPTED)


def note_reading(log: Interactions | PartitionedLog) -> None:
    """Print on stderr what of DATA is not used, and how its ratings are used."""
    from transcf.data.report import reading_notes

    for each in reading_notes(log):
        note(f"note: {each}.")


def check_outputs(paths: Sequence[Path]) -> None:
    """Refuse paths of `--out` that cannot be written, before any work is done."""
    from transcf.experiments.pages import PAGE_SUFFIXES, check_file

    for path in paths:
        if path.suffix in PAGE_SUFFIXES:
            check_file(path)
        elif path.suffix not in ("", ".json") and not path.is_dir():
            raise ParameterError(f"--out {path} is not understood: use .html, .md or .json.")
        if path.suffix in (*PAGE_SUFFIXES, ".json") and path.is_dir():
            raise ParameterError(f"--out {path} is a folder: name a file.")
        if not path.suffix and path.exists() and not path.is_dir():
            raise ParameterError(f"--out {path} is not a folder: name another one.")


def write_outputs(results: Results, paths: Sequence[Path], name: str) -> None:
    """Write results to the paths of `--out`; a folder gets NAME.html, NAME.md and NAME.json."""
    from transcf.experiments.report import write_results

    for path in paths:
        written, missing = write_results(results, path, name)
        if missing:
            note(f"the report is incomplete: {missing}")
        note_written(written)


def note_written(paths: Sequence[Path]) -> None:
    """Print on stderr which files were written."""
    typer.echo(f"Written: {', '.join(map(str, paths))}", err=True)


class Steps(ProgressBar):
    """Progress of a command on stderr: a bar on a terminal, else a line for every finished part."""

    _transient = True

    def __init__(self, total: int, unit: str) -> None:
        super().__init__("", total, unit)
        self._text, self._started = "", monotonic()

    def report(self, text: str) -> None:
        """Show the current step."""
        self.reach(self._done, text)

    def begin(self, part: str) -> None:
        """Show a part that begins; the one before it, if any, is finished."""
        if self._text:
            self.finish(self._text)
        self.report(part)

    def reach(self, done: int, text: str, name: str = "") -> None:
        """Show the number of finished parts and a text; a line has the name of a part instead."""
        if done > self._done and not self.is_shown:
            seconds = monotonic() - self._started
            about = f": {name or text}" if name or text else ""
            note(f"{done}/{self._total} {self._unit} done in {seconds:.0f} s{about}")
        self._text = text
        self.show(done, text)

    def finish(self, name: str) -> None:
        """Count one more part as finished."""
        self.reach(self._done + 1, self._text, name)

    def counted(self, parts: Iterable[str]) -> Iterator[str]:
        """Yield names of parts; each counts as done when the next one is requested."""
        for part in parts:
            yield part
            self.finish(part)


def check_folder(out: Path | None) -> None:
    """Refuse a file as `--out FOLDER`."""
    if out is not None and out.exists() and not out.is_dir():
        raise ParameterError(f"--out {out} is a file: name a folder.")


# -- errors and warnings --------------------------------------------------------------------


@contextmanager
def plain_messages() -> Iterator[None]:
    """Print errors as one sentence, and each warning of the library once, as one line."""
    with warnings.catch_warnings():
        _show_warnings()
        try:
            yield
        except (TransCFError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            wait_if_ending()
            note(_in_options(_sentence(error)))
            raise typer.Exit(2) from error
        except KeyboardInterrupt as error:
            note("interrupted.")
            raise typer.Exit(INTERRUPTED) from error


#: Advice of errors in Python, and on the command line.
_OPTIONS = {
    "on_unknown='skip'": "--on-unknown skip",
    "include_seen=True": "--with-seen",
    "name a folder for it (store=FOLDER)": "leave out --store none",
    "split by leave_one_out(log), or cut it earlier": "evaluate or compare with --protocol "
    "leave-last-out",
}


def _in_options(sentence: str) -> str:
    for python, option in _OPTIONS.items():
        sentence = sentence.replace(python, option)
    return sentence


def _sentence(error: TransCFError | OSError) -> str:
    """Return the message of an error with the page that helps, or the file and the reason."""
    if isinstance(error, TransCFError):
        return f"{error} [docs: {error.page}]" if error.page else str(error)
    if isinstance(error, FileNotFoundError) and not error.filename:  # of os.getcwd
        return "The working folder was removed or replaced: change to it again (cd)."
    if not error.filename or not error.strerror:
        return brief(str(error))
    return brief(f"{error.filename} cannot be used: {error.strerror}.")


def _show_warnings() -> None:
    show_others, shown = warnings.showwarning, set[str]()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UserWarning | FutureWarning):
            if str(message) not in shown:
                note(f"note: {_in_options(str(message))}")
            shown.add(str(message))
        else:
            show_others(message, category, *place, **more)

    warnings.showwarning = show
