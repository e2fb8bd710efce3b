"""Tables in files, by the ending of the name: CSV, TSV, JSON Lines or Parquet, in pieces."""

from __future__ import annotations

import gzip
import io
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import IO, cast

import polars as pl

from transcf.data.atomic import atomic_write
from transcf.errors import DataError, ParameterError, shown
from transcf.parallel import check_unforked

#: Text formats and their separators.
_SEPARATORS = {"csv": ",", "tsv": "\t", "jsonl": None}


class TextWriter:
    """Writes a table to a stream as "csv", "tsv" or "jsonl", piece by piece."""

    def __init__(self, stream: IO[bytes], form: str) -> None:
        check_unforked("write tables")
        if form not in _SEPARATORS:
            raise ParameterError(f"{form!r} is no form of text: use {', '.join(_SEPARATORS)}.")
        self._stream, self._separator, self._is_first = stream, _SEPARATORS[form], True

    def write(self, piece: pl.DataFrame) -> None:
        """Write the next rows; all pieces have the same columns."""
        # By way of memory: polars would hide the error of a closed pipe.
        text = io.BytesIO()
        if self._separator is None:
            piece.write_ndjson(text)
        else:
            piece.write_csv(text, include_header=self._is_first, separator=self._separator)
        self._stream.write(text.getbuffer())
        self._is_first = False


def form_of(path: Path) -> str:
    """Return the format of a file name by its ending: "csv" for "lists.CSV.gz".

    Raises:
        DataError: The ending is not known.
    """
    stem, _, ending = path.name.lower().removesuffix(".gz").rpartition(".")
    form = "jsonl" if ending == "ndjson" else ending
    is_packed = path.suffix.lower() == ".gz"
    if not stem or not (form in _SEPARATORS or (form == "parquet" and not is_packed)):
        raise DataError(
            f"{path} does not say by its ending what to write: use "
            ".csv, .tsv or .jsonl (any of them with .gz behind it), or .parquet."
        )
    return form


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
    """Write a table that comes in pieces, at least one, in bounded memory; returns its rows.

    The file is written atomically; if a piece fails, nothing is changed.

    Raises:
        DataError: The ending is not known, or there is no such folder.
        WriteError: The system refuses to write it.
    """
    check_file(path)
    source = iter(pieces)
    first = next(source)  # before anything is written: a request may be refused
    check_unforked("write tables")
    form = form_of(path)
    with atomic_write(path) as unfinished:
        if form == "parquet":
            return _write_parquet(chain([first], source), unfinished)
        rows = 0
        with ExitStack() as files:
            stream: IO[bytes] = files.enter_context(unfinished.open("wb"))
            if path.name.lower().endswith(".gz"):
                # Without a name and a time, so that the same table gives the same bytes.
                packed = gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
                stream = cast("IO[bytes]", files.enter_context(packed))
            writer = TextWriter(stream, form)
            for piece in chain([first], source):
                writer.write(piece)
                rows += len(piece)
        return rows


def _write_parquet(pieces: Iterable[pl.DataFrame], path: Path) -> int:
    """Write every piece to a file of its own, and stream them into one at the end."""
    rows, files = 0, []
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        for number, piece in enumerate(pieces):
            files.append(Path(scratch) / f"{number}.parquet")
            piece.write_parquet(files[-1])
            rows += len(piece)
        if len(files) == 1:
            files[0].rename(path)
        else:
            pl.scan_parquet(files, glob=False).sink_parquet(path)
    return rows
