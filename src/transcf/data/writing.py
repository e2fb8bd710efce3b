"""Tables in files, by the ending of the name: CSV, JSON lines or Parquet, a piece at a time."""

from __future__ import annotations

import gzip
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TypeAlias, cast

import polars as pl

from transcf.data.atomic import atomic_write
from transcf.errors import DataError, ParameterError, shown
from transcf.parallel import check_unforked

#: Takes the next piece of a table.
TakePiece: TypeAlias = Callable[[pl.DataFrame], None]

#: What can be written as text, and what parts the columns.
_SEPARATORS = {"csv": ",", "tsv": "\t", "jsonl": None}
#: Forms by the ending of a name.
_ENDINGS = {
    **{f".{form}": form for form in _SEPARATORS},
    ".ndjson": "jsonl",
    **{f".{form}.gz": form for form in _SEPARATORS},
    ".ndjson.gz": "jsonl",
    ".parquet": "parquet",
}


class TableWriter:
    """Takes a table piece by piece, and counts.

    Attributes:
        rows: Rows that were written.
    """

    def __init__(self, take: TakePiece) -> None:
        """Begin with nothing."""
        self._take, self.rows = take, 0

    def write(self, piece: pl.DataFrame) -> None:
        """Write the next rows; all pieces have the same columns."""
        self._take(piece)
        self.rows += len(piece)


def text_form(form: str) -> str:
    """Return the form of a table as text, or raise a `ParameterError`."""
    if form not in _SEPARATORS:
        raise ParameterError(f"{form!r} is no form of text: use {', '.join(_SEPARATORS)}.")
    return form


def form_of(path: Path) -> str:
    """Return the form that the ending of a name asks for.

    Raises:
        DataError: There is none for it.

    Example:
        >>> form_of(Path("lists.CSV.gz"))
        'csv'
    """
    name = path.name.lower()
    for ending, form in _ENDINGS.items():
        if name.endswith(ending) and name != ending:
            return form
    raise DataError(
        f"{path} does not say by its ending what to write: use "
        ".csv, .tsv or .jsonl (any of them with .gz behind it), or .parquet."
    )


def check_file(path: Path) -> None:
    """Raise a `DataError` if no table can be written there, before any work is done."""
    try:
        is_possible = not path.is_dir() and path.parent.is_dir()
    except OSError:  # such as a name that is too long
        is_possible = False
    if not is_possible:
        raise DataError(
            f"{shown(str(path))} cannot be written: name a file in a folder that exists."
        )
    form_of(path)


def write_pieces(pieces: Iterable[pl.DataFrame], path: Path) -> int:
    r"""Write a table that comes in pieces, at least one, in bounded memory; returns its rows.

    The file takes its name when it is whole; if a piece fails, nothing is changed.

    Raises:
        DataError: The ending has no form, or there is no such folder.
        WriteError: The system refuses to write it.

    Example:
        >>> write_pieces([pl.DataFrame({"item_id": ["tea"], "rank": [1]})], Path("one.jsonl"))
        1
        >>> Path("one.jsonl").read_text()
        '{"item_id":"tea","rank":1}\n'
    """
    check_file(path)
    source = iter(pieces)
    first = next(source)  # before anything is written: a request may be refused
    with _table_file(path) as writer:
        for piece in chain([first], source):
            writer.write(piece)
    return writer.rows


@contextmanager
def _table_file(path: Path) -> Iterator[TableWriter]:
    """Give a writer for a file that takes its name when it is whole."""
    check_unforked("write tables")
    form = form_of(path)
    with atomic_write(path) as unfinished:
        if form == "parquet":
            with _parquet(unfinished) as writer:
                yield writer
            return
        with ExitStack() as open_files:
            stream: IO[bytes] = open_files.enter_context(unfinished.open("wb"))
            if path.name.lower().endswith(".gz"):
                # Without a name and a time, so that the same table gives the same bytes.
                packed = gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
                stream = cast("IO[bytes]", open_files.enter_context(packed))
            yield text_writer(stream, form)


def text_writer(stream: IO[bytes], form: str) -> TableWriter:
    """Return a writer of text; form is "csv", "tsv" or "jsonl"."""
    check_unforked("write tables")
    separator = _SEPARATORS[text_form(form)]
    is_first = True

    def take(piece: pl.DataFrame) -> None:
        nonlocal is_first
        # By way of memory: what a stream says of a closed pipe would not get through polars.
        text = io.BytesIO()
        if separator is None:
            piece.write_ndjson(text)
        else:
            piece.write_csv(text, include_header=is_first, separator=separator)
        stream.write(text.getbuffer())
        is_first = False

    return TableWriter(take)


@contextmanager
def _parquet(unfinished: Path) -> Iterator[TableWriter]:
    """Write every piece to a file of its own, and stream them into one at the end."""
    with tempfile.TemporaryDirectory(dir=unfinished.parent) as scratch:
        pieces: list[Path] = []

        def take(piece: pl.DataFrame) -> None:
            pieces.append(Path(scratch) / f"{len(pieces)}.parquet")
            piece.write_parquet(pieces[-1])

        yield TableWriter(take)
        if len(pieces) == 1:
            pieces[0].rename(unfinished)
        else:
            pl.scan_parquet(pieces, glob=False).sink_parquet(unfinished)
