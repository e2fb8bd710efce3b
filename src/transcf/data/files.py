"""Event logs in files: paths and patterns; delimited text, JSON Lines and Parquet, or gzipped."""

from __future__ import annotations

import codecs
import glob
import gzip
import json
import os
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, islice
from os import PathLike
from pathlib import Path

import polars as pl
from polars.exceptions import PanicException, PolarsError

from transcf.data.csv_dialect import (
    Content,
    Dialect,
    all_bytes,
    delimited_source,
    read_utf8,
    start_of,
)
from transcf.data.parquet_check import damage_of
from transcf.data.tables import TableSource, by_role, first_line
from transcf.data.validate import Roles
from transcf.errors import DataError, ParameterError, shown

#: Endings of file names, by kind of content.
DELIMITED = (".csv", ".tsv", ".dat", ".data", ".txt")
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
_KINDS = (DELIMITED, JSON_LINES, PARQUET)
ENDINGS = (*DELIMITED, *JSON_LINES, *PARQUET)
_GZIP, _PARQUET_MARK = b"\x1f\x8b", b"PAR1"


def path_of(value: str | PathLike[str]) -> Path:
    """Return a path with `~` expanded; raise a `ParameterError` if it cannot be one."""
    if not isinstance(value, str | PathLike):
        raise ParameterError(f"{shown(value)} is not a path: give text or a pathlib.Path.")
    try:
        return Path(value).expanduser()
    except (TypeError, RuntimeError) as error:
        raise ParameterError(f"{shown(value)} cannot be used as a path: {error}") from error


def user_path(spec: str | PathLike[str]) -> Path:
    """Return the path of a source of data, with `~` expanded; raise if the system rejects it."""
    path = path_of(spec)
    try:
        path.exists()
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise DataError(f"{shown(str(path))} is no path that can be read: {reason}.") from problem
    return path


def ending_of(path: Path) -> str | None:
    """Return the known ending of a file name, `.gz` aside, or None."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return suffixes[-1] if suffixes and suffixes[-1] in ENDINGS else None


def files_of(spec: str | PathLike[str]) -> list[Path]:
    """Return the files of a path, a pattern such as `logs/*.csv`, or a folder, in order.

    Of a folder these are all files with a known ending, including those in subfolders, except
    for names that start with a dot or an underscore; all have to be of one kind.
    """
    path = user_path(spec)
    if path.is_dir():
        return _folder_files(path)
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    # The part of the path that exists is not a pattern.
    folder = next(parent for parent in path.parents if parent.exists())
    pattern = Path(glob.escape(str(folder)), path.relative_to(folder))
    found = [Path(match) for match in sorted(glob.glob(str(pattern), recursive=True))]
    files = [match for match in found if match.is_file()]
    if not files:
        raise DataError(f"No file is called {path}: check the pattern.")
    return files


def _folder_files(folder: Path) -> list[Path]:
    if (folder / "model.json").is_file():
        raise DataError(f"{folder} is a saved model, not data: name the events.")
    files = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        visible = (Path(place, name) for name in names if not name.startswith((".", "_")))
        files += [path for path in visible if ending_of(path)]
    if not files:
        raise DataError(
            f"{folder} is a folder without files that end in {', '.join(ENDINGS)}: name a file."
        )
    files.sort()
    kinds = {kind: path for path in reversed(files) for kind in _KINDS if ending_of(path) in kind}
    if len(kinds) > 1:
        one, other = sorted(path.relative_to(folder) for path in kinds.values())[:2]
        raise DataError(
            f"{folder} is a folder with files of several kinds ({one}, {other}): name those that "
            f"belong to the log, such as {folder}/*{one.suffix}."
        )
    return files


def files_source(paths: Sequence[Path], dialect: Dialect) -> TableSource:
    """Open files, which are read one after the other as if they were one."""
    sources = [file_source(path, dialect) for path in paths]
    first = sources[0]
    if len(sources) == 1:
        return first
    if any(source.is_text != first.is_text for source in sources):
        raise DataError(f"{first.label} and the files after it are of several kinds: read one.")
    ends: list[int] = []

    def read(roles: Roles) -> pl.DataFrame:
        check_names(sources, roles)
        frames = [source.read(roles) for source in sources]
        ends[:] = accumulate(map(len, frames))
        return _concat(frames, sources, roles)

    def locate(row: int) -> str:
        file = bisect_right(ends, row)
        return sources[file].where(row - (ends[file - 1] if file else 0))

    label = f"{first.label} and {len(sources) - 1} more"
    return replace(first, label=label, read=read, locate=locate)


def file_source(path: Path, dialect: Dialect | None = None) -> TableSource:
    """Open a file by its ending, and check that its content is what the ending says."""
    dialect = dialect or Dialect()
    if not path.exists():
        raise DataError(f"There is no file {path}: check the path.")
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file: name the file inside.")
    if not path.is_file():
        raise DataError(
            f"{path} is a pipe or a device, not a regular file: save the data to a file first."
        )
    if not path.stat().st_size:
        raise DataError(f"{path} is empty: it has 0 bytes.")
    if (ending := ending_of(path)) is None:
        raise DataError(
            f"{path} has an ending that is not known: it has to be one of {', '.join(ENDINGS)}, "
            "with or without .gz."
        )
    content: Content = unpack(path) if path.suffix.lower() == ".gz" else path
    _check_mark(path, content, ending)
    if ending in PARQUET:
        return _parquet_source(path, content)
    content = read_utf8(path, content, dialect.encoding)
    start = start_of(content)
    if not start.strip():
        raise DataError(f"{path} is empty: there is nothing in it but blanks.")
    if b"\0" in start:
        raise DataError(
            f"{path} ends in {ending} but holds binary data, not UTF-8 text: if it is text, name "
            "its encoding with encoding=... (in a shell: --read encoding=utf-16, for one)."
        )
    if ending in JSON_LINES:
        return _json_source(path, content)
    return delimited_source(path, content, dialect)


def unpack(path: Path) -> bytes:
    """Return the contents of a gzipped file."""
    try:
        return gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise DataError(
            f"{path} ends in .gz but is no intact gzip file ({problem}): unpack or fetch it again."
        ) from problem


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Convert errors of polars and of the system to a `DataError` about a file."""
    try:
        yield
    except (PolarsError, PanicException, OSError) as problem:
        raise DataError(f"{path} cannot be read as {kind}: {first_line(problem)}.") from problem


def _check_mark(path: Path, content: Content, ending: str) -> None:
    """Compare the first bytes with what the ending says."""
    start, packed = start_of(content, 4), isinstance(content, bytes)
    if start.startswith(_GZIP):
        found = "is gzipped" + (" twice" if packed else f": rename it to {path.name}.gz")
    elif (start == _PARQUET_MARK) == (ending in PARQUET):
        return
    elif ending in PARQUET:
        found = "is not a Parquet file"
    else:
        better = path.with_suffix(".parquet").name if not packed else f"{path.stem}.parquet.gz"
        found = f"is a Parquet file: rename it to {better}"
    raise DataError(f"{path} ends in {path.suffix} but {found}.")


def check_names(sources: Sequence[TableSource], roles: Roles) -> None:
    """Raise if a file lacks a column that the first one has."""
    for source in sources:
        if lacking := [name for name in roles.values() if name not in source.columns]:
            raise DataError(
                f"{source.label} has no column {lacking[0]!r}, which {sources[0].label} has."
            )


def check_kinds(column: str, kinds: Sequence[pl.DataType], sources: Sequence[TableSource]) -> None:
    """Raise if columns of one name hold different kinds of values."""
    for kind, source in zip(kinds, sources, strict=True):
        if _kind(kind) != _kind(kinds[0]):
            raise DataError(
                f"Column {column!r} holds {kinds[0]} in {sources[0].label} and {kind} in "
                f"{source.label}: make it the same in both."
            )


def _kind(dtype: pl.DataType) -> str:
    if dtype.is_numeric():
        return "number"
    if isinstance(dtype, pl.Datetime):
        return "moment" if dtype.time_zone is None else "moment with a time zone"
    return "text" if isinstance(dtype, pl.Categorical | pl.Enum) else str(dtype.base_type())


def _concat(
    frames: Sequence[pl.DataFrame], sources: Sequence[TableSource], roles: Roles
) -> pl.DataFrame:
    """Concatenate the rows of files; values must be of the same kind in all of them."""
    for role, column in roles.items():
        kinds = [frame[role].dtype for frame in frames]
        common: pl.DataType | None = None
        if not sources[0].is_text:
            check_kinds(column, kinds, sources)
        elif len({_kind(kind) for kind in kinds}) > 1:
            common = pl.String()  # as text, a value of the other kind can be found and named
        if isinstance(kinds[0], pl.Datetime) and len(set(kinds)) > 1:
            common = pl.Datetime("us", None if kinds[0].time_zone is None else "UTC")
        if common is not None:
            frames = [f.with_columns(f[role].cast(common, strict=False)) for f in frames]
    return pl.concat(frames, how="vertical_relaxed")


def parquet_schema(content: Content) -> pl.Schema:
    """Return the columns of a Parquet file with their types."""
    return pl.scan_parquet(content, glob=False).collect_schema()


def _parquet_source(path: Path, content: Content) -> TableSource:
    if damage := damage_of(content):
        raise DataError(f"{path} is damaged ({damage}): fetch or write it again.")
    with reading(path, "Parquet"):
        names = tuple(parquet_schema(content))

    def read(roles: Roles) -> pl.DataFrame:
        with reading(path, "Parquet"):
            frame = pl.read_parquet(content, columns=list(roles.values()), glob=False)
            return by_role(frame, roles)

    return TableSource(str(path), names, read)


def _json_source(path: Path, content: Content) -> TableSource:
    text = all_bytes(content).removeprefix(codecs.BOM_UTF8)
    with reading(path, "JSON Lines"):
        try:
            frame = pl.read_ndjson(text, infer_schema_length=None)
        except (PolarsError, PanicException):
            _check_lines(path, text)
            raise

    def read(roles: Roles) -> pl.DataFrame:
        _check_json(path, text, frame, roles)
        return by_role(frame, roles)

    def locate(row: int) -> str:
        number, _ = next(islice(_filled_lines(text), row, None))
        return f"{path}: line {number:,}"

    return TableSource(str(path), tuple(frame.columns), read, locate=locate)


def _check_json(path: Path, text: bytes, frame: pl.DataFrame, roles: Roles) -> None:
    """Raise for what polars reads without notice: a key twice, or other values among text ids."""
    keys = {c: re.escape(json.dumps(c, ensure_ascii=False).encode()) for c in roles.values()}
    twice = {c for c, k in keys.items() if re.search(k + rb"\s*:[^\n]*" + k + rb"\s*:", text)}
    ids = [roles[role] for role in ("user", "item") if role in roles]
    texts = [column for column in ids if frame[column].dtype == pl.String]
    mixed = {c for c in texts if re.search(keys[c] + rb'\s*:\s*[^\s"n]', text)}
    for number, line in _filled_lines(text) if twice or mixed else ():
        try:
            pairs = json.loads(line, object_pairs_hook=tuple)
            names = [name for name, _ in pairs]
        except (ValueError, TypeError, RecursionError):
            continue  # polars accepts it
        if double := next((column for column in twice if names.count(column) > 1), None):
            raise DataError(f"{path}: line {number:,} has the key {double!r} twice; keep one.")
        for name, value in pairs:
            if name in mixed and value is not None and not isinstance(value, str):
                raise DataError(
                    f"{path}: column {name!r} mixes text and other things (line {number:,} has "
                    f"{json.dumps(json.loads(line)[name])[:60]}); make the ids all integers or "
                    "all text."
                )


def _filled_lines(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the text of each line that is not blank."""
    lines = enumerate(text.split(b"\n"), 1)
    return ((number, line) for number, line in lines if line.strip())


def _check_lines(path: Path, text: bytes) -> None:
    """Raise if a line is not a JSON object."""
    for number, line in _filled_lines(text):
        what = "not a JSON object"
        try:
            if isinstance(json.loads(line), dict):
                continue
        except ValueError:
            pass
        except RecursionError:
            what = "nested too deeply"
        start = line[:60].decode("utf-8", "replace")
        raise DataError(f"{path}: line {number:,} is {what}: {start!r}.")
