"""Event logs in files: CSV, TSV, JSON Lines and Parquet, plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import TypeAlias

import polars as pl
from polars.exceptions import PolarsError

from transcf.data.columns import Roles
from transcf.data.tables import Source
from transcf.errors import DataError

_DELIMITED = (".csv", ".tsv", ".dat", ".data", ".txt")
_JSON_LINES = (".jsonl", ".ndjson")
_PARQUET = (".parquet", ".pq")
_ENDINGS = (*_DELIMITED, *_JSON_LINES, *_PARQUET)
_SEPARATORS = (",", "\t", ";", "|")
_GZIP, _PARQUET_MARK = b"\x1f\x8b", b"PAR1"
_SAMPLE_ROWS, _SAMPLE_BYTES = 100, 1 << 20

#: A path, or the unpacked contents of a gzipped file.
Content: TypeAlias = Path | bytes


def file_source(path: str | Path) -> Source:
    """Open a file by its ending, and check that it is what the ending says."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"There is no file {path}: check the path.")
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file: name the file inside.")
    if not path.stat().st_size:
        raise DataError(f"{path} is empty: it has 0 bytes.")
    ending = _ending(path)
    content = unpack(path) if path.suffix.lower() == ".gz" else path
    _check_kind(path, content, ending)
    if ending in _PARQUET:
        return _parquet_source(path, content)
    if ending in _JSON_LINES:
        return _json_source(path, content)
    return _delimited_source(path, content)


def unpack(path: Path) -> bytes:
    """Return the contents of a gzipped file."""
    try:
        with gzip.open(path) as packed:
            return packed.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise DataError(
            f"{path} ends in .gz but is no intact gzip file ({problem}): unpack or fetch it again."
        ) from problem


def _ending(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    if not suffixes or suffixes[-1] not in _ENDINGS:
        raise DataError(
            f"{path} has an ending that is not known: it has to be one of {', '.join(_ENDINGS)}, "
            f"with or without .gz."
        )
    return suffixes[-1]


def _start(content: Content, size: int = 1 << 16) -> bytes:
    if isinstance(content, bytes):
        return content[:size]
    with content.open("rb") as file:
        return file.read(size)


def _check_kind(path: Path, content: Content, ending: str) -> None:
    start = _start(content)
    if not start.strip():
        raise DataError(f"{path} is empty: there is nothing in it but blanks.")
    if ending in _PARQUET:
        if not start.startswith(_PARQUET_MARK):
            raise DataError(f"{path} ends in {ending} but is not a Parquet file.")
        return
    for mark, kind in ((_PARQUET_MARK, "a Parquet file"), (_GZIP, "gzipped")):
        if start.startswith(mark):
            raise DataError(f"{path} ends in {path.suffix} but is {kind}: rename it.")
    if b"\0" in start:
        raise DataError(f"{path} ends in {ending} but holds binary data, not UTF-8 text.")


def _delimited_source(path: Path, content: Content) -> Source:
    header = _start(content).lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace")
    separator = max(_SEPARATORS, key=header.count)
    _check_header(path, header, separator)
    try:
        sample = pl.read_csv(
            _start(content, _SAMPLE_BYTES),
            separator=separator,
            n_rows=_SAMPLE_ROWS,
            infer_schema_length=_SAMPLE_ROWS,
        )
    except PolarsError as problem:
        raise _unreadable(path, "delimited text", problem) from problem

    def read(roles: Roles) -> pl.DataFrame:
        kinds: dict[str, pl.DataType | type[pl.DataType]] = dict.fromkeys(roles.values(), pl.String)
        if "timestamp" in roles and sample[roles["timestamp"]].dtype == pl.Int64:
            kinds[roles["timestamp"]] = pl.Int64
        if "rating" in roles:
            kinds[roles["rating"]] = pl.Float32
        try:
            frame = _read_delimited(content, separator, kinds)
        except PolarsError:
            # A number that is none: as text, the row with it can be found and named.
            try:
                frame = _read_delimited(content, separator, dict.fromkeys(kinds, pl.String))
            except PolarsError as problem:
                raise _unreadable(path, "delimited text", problem) from problem
        return _by_role(frame, roles)

    return Source(str(path), tuple(sample.columns), read, is_text=True)


def _check_header(path: Path, header: str, separator: str) -> None:
    """Refuse a name that stands over two columns: there is no telling which one is meant."""
    names = Counter(
        name for name in next(csv.reader([header.strip()], delimiter=separator)) if name
    )
    twice = next((name for name, times in names.items() if times > 1), None)
    if twice is not None:
        raise DataError(f"{path}: its first line names column {twice!r} twice; rename one of them.")


def _read_delimited(
    content: Content, separator: str, kinds: dict[str, pl.DataType | type[pl.DataType]]
) -> pl.DataFrame:
    return pl.read_csv(content, separator=separator, columns=list(kinds), schema_overrides=kinds)


def _parquet_source(path: Path, content: Content) -> Source:
    packed = io.BytesIO(content) if isinstance(content, bytes) else content
    try:
        names = tuple(pl.read_parquet_schema(packed))
    except (PolarsError, OSError) as problem:
        raise _unreadable(path, "Parquet", problem) from problem

    def read(roles: Roles) -> pl.DataFrame:
        packed = io.BytesIO(content) if isinstance(content, bytes) else content
        try:
            return _by_role(pl.read_parquet(packed, columns=list(roles.values())), roles)
        except (PolarsError, OSError) as problem:
            raise _unreadable(path, "Parquet", problem) from problem

    return Source(str(path), names, read)


def _json_source(path: Path, content: Content) -> Source:
    text = content if isinstance(content, bytes) else content.read_bytes()
    try:
        frame = pl.read_ndjson(text, infer_schema_length=None)
    except PolarsError as problem:
        raise _bad_json(path, text) or _unreadable(path, "JSON Lines", problem) from problem

    def read(roles: Roles) -> pl.DataFrame:
        for role in ("user", "item"):
            if role in roles and frame[roles[role]].dtype == pl.String:
                _check_unmixed(path, text, roles[role])
        return _by_role(frame, roles)

    return Source(str(path), tuple(frame.columns), read)


def _check_unmixed(path: Path, text: bytes, column: str) -> None:
    """Refuse numbers among text ids, which the JSON reader would turn into text."""
    number = re.compile(rb'"' + re.escape(column.encode()) + rb'"\s*:\s*(-?[0-9][0-9.eE+-]*)')
    found = number.search(text)
    if found:
        row = text.count(b"\n", 0, found.start()) + 1
        raise DataError(
            f"{path}: column {column!r} mixes numbers and text (row {row:,} is "
            f"{found[1].decode()}); make the ids all integers or all text."
        )


def _bad_json(path: Path, text: bytes) -> DataError | None:
    """Find the first line that is not a JSON object."""
    for number, line in enumerate(text.splitlines()):
        if not line.strip():
            continue
        try:
            fine = isinstance(json.loads(line), dict)
        except ValueError:
            fine = False
        if not fine:
            shown = line[:60].decode("utf-8", "replace")
            return DataError(f"{path}: line {number + 1:,} is not a JSON object: {shown!r}.")
    return None


def _by_role(frame: pl.DataFrame, roles: Roles) -> pl.DataFrame:
    return frame.select(pl.col(column).alias(role) for role, column in roles.items())


def _unreadable(path: Path, kind: str, problem: Exception) -> DataError:
    reason = str(problem).strip().split("\n", 1)[0].rstrip(".")
    return DataError(f"{path} cannot be read as {kind}: {reason}.")
