"""Tables in files, by the ending of the name: CSV, TSV, JSON Lines or Parquet, in pieces."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from transcf.data.atomic import atomic_write
from transcf.errors import DataError, shown
from transcf.parallel import check_unforked

#: Forms of delimited text, and what separates their columns.
_SEPARATORS = {"csv": ",", "tsv": "\t"}


def encode(pieces: Iterable[pl.DataFrame], form: str) -> Iterator[bytes]:
    """Encode a table that comes in pieces of the same columns as "csv", "tsv" or "jsonl"."""
    check_unforked("write tables")
    for number, piece in enumerate(pieces):
        if form == "jsonl":
            yield piece.write_ndjson().encode()
        else:
            text = piece.write_csv(include_header=number == 0, separator=_SEPARATORS[form])
            yield text.encode()


def form_of(path: Path) -> str:
    """Return the format of a file name by its ending ("csv" for "lists.CSV.gz"), or raise."""
    stem, _, ending = path.name.lower().removesuffix(".gz").rpartition(".")
    form = "jsonl" if ending == "ndjson" else ending
    forms = (*_SEPARATORS, "jsonl") if _is_packed(path) else (*_SEPARATORS, "jsonl", "parquet")
    if not stem or form not in forms:
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
    """Write a table that comes in pieces, in bounded memory; return its number of rows.

    The file is written atomically; if a piece fails, nothing is changed.

    Raises:
        DataError: The ending is not known, or there is no such folder.
        WriteError: The system refuses to write it.
    """
    check_file(path)
    check_unforked("write tables")
    form, lengths = form_of(path), list[int]()

    def counted() -> Iterator[pl.DataFrame]:
        for piece in pieces:
            lengths.append(len(piece))
            yield piece

    with atomic_write(path) as unfinished:
        if form == "parquet":
            _write_parquet(counted(), unfinished)
        elif _is_packed(path):
            # Without a name and a time, so that the same table gives the same bytes.
            with (
                unfinished.open("wb") as stream,
                gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as packed,
            ):
                packed.writelines(encode(counted(), form))
        else:
            with unfinished.open("wb") as stream:
                stream.writelines(encode(counted(), form))
    return sum(lengths)


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _write_parquet(pieces: Iterable[pl.DataFrame], path: Path) -> None:
    """Write every piece to a file of its own, and stream them into one at the end."""
    files: list[Path] = []
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        for number, piece in enumerate(pieces):
            files.append(Path(scratch, f"{number}.parquet"))
            piece.write_parquet(files[-1])
        if len(files) == 1:
            files[0].rename(path)
        else:
            pl.scan_parquet(files, glob=False).sink_parquet(path)
