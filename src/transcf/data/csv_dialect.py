"""Delimited text: CSV, TSV and similar files, with or without a header, in any encoding."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl
from polars.exceptions import PanicException, PolarsError

from transcf.data.tables import TableSource, by_role, first_line
from transcf.data.validate import Role, Roles
from transcf.errors import DataError, ParameterError, check_flag, shown

#: A path, or the contents of a file that had to be unpacked or decoded.
Content: TypeAlias = Path | bytes

_SEPARATORS = (",", "\t", ";", "|", "::")
#: Bytes that replace separators of several bytes, which polars cannot split by.
_STAND_INS = (b"\x1f", b"\x1e", b"\x1d", b"\x1c")
_BOM = codecs.BOM_UTF8
#: Lines with nothing but spaces on them; a tab may separate columns.
_BLANK_LINES = re.compile(rb"(?: *\r?\n)*")
#: The names of the columns are within this many bytes.
_HEADER_BYTES = 1 << 20
#: Types of numeric columns.
_NUMBERS: Mapping[Role, type[pl.DataType]] = {"rating": pl.Float32, "timestamp": pl.Int64}


@dataclass(frozen=True)
class Dialect:
    """How a text file is written."""

    header: bool = True  # whether its first line names the columns; else they are numbered from 1
    separator: str | None = None  # between columns; None finds it in the first line
    encoding: str = "utf-8"  # a name that Python knows

    def __post_init__(self) -> None:
        check_flag("header", self.header)
        mark = self.separator
        if mark is not None and (not isinstance(mark, str) or not mark or set(mark) & set('\r\n"')):
            raise ParameterError(
                f"separator={shown(mark)} is not allowed; it is one or more characters, and "
                "neither a quote nor the end of a line."
            )
        try:
            "".encode(self.encoding)
        except (LookupError, TypeError, ValueError) as problem:
            raise ParameterError(
                f"encoding={shown(self.encoding)} is not known; 'utf-8', 'latin-1' and "
                "'utf-16' are."
            ) from problem


def start_of(content: Content, size: int = 1 << 16) -> bytes:
    """Return the first bytes of a file."""
    if isinstance(content, bytes):
        return content[:size]
    with content.open("rb") as file:
        return file.read(size)


def all_bytes(content: Content) -> bytes:
    """Return all bytes of a file."""
    return content if isinstance(content, bytes) else content.read_bytes()


def read_utf8(path: Path, content: Content, encoding: str) -> Content:
    """Return the contents of a text file in UTF-8; a file that is in UTF-8 is not read."""
    if codecs.lookup(encoding).name in ("utf-8", "ascii"):
        return content
    raw = all_bytes(content)
    try:
        return raw.decode(encoding).encode()
    except UnicodeError as problem:
        raise _undecodable(path, raw, encoding, problem) from problem


def delimited_source(path: Path, content: Content, dialect: Dialect) -> TableSource:
    """Open delimited text in UTF-8; without a header, columns are called by their numbers."""
    text = _Text(path, content, dialect)
    names = text.columns
    if not dialect.header:
        names = [str(number) for number in range(1, len(names) + 1)]
    return TableSource(
        str(path), tuple(names), text.read, True, has_header=dialect.header, locate=text.locate
    )


class _Text:
    """Delimited text that polars can read: in UTF-8, with a separator of one byte."""

    def __init__(self, path: Path, content: Content, dialect: Dialect) -> None:
        """Find the separator and the names of the columns."""
        start = start_of(content).removeprefix(_BOM)
        if b"\r" in start and b"\n" not in start:  # line ends of old Macs
            content, start = all_bytes(content).replace(b"\r", b"\n"), start.replace(b"\r", b"\n")
        blank = len(_BLANK_LINES.match(start)[0])  # type: ignore[index]  # it matches nothing, too
        first = _first_line(start[blank:])
        separator, quote = dialect.separator or max(_SEPARATORS, key=first.count), '"'
        if blank:
            content = all_bytes(content).removeprefix(_BOM)[blank:]
        if len(separator.encode()) > 1:
            content = all_bytes(content)
            stand_in = next((byte for byte in _STAND_INS if byte not in content), None)
            if stand_in is None:
                raise DataError(f"{path} holds binary data, not text parted by {separator}.")
            content = content.replace(separator.encode(), stand_in)
            first = first.split("\n")[0].rstrip("\r")  # quotes mean nothing here
            first = first.replace(separator, stand_in.decode())
            separator, quote = stand_in.decode(), ""
        if dialect.header:
            _check_header(path, first, separator)
        self.path, self.content, self.header = path, content, dialect.header
        self.separator, self.quote = separator, quote
        self.skipped = start[:blank].count(b"\n")
        # Types are never inferred, and a path is never a pattern.
        self._options: dict[str, Any] = {"separator": separator, "quote_char": quote or None}
        self._options |= {"has_header": dialect.header, "infer_schema": False, "glob": False}
        try:
            start = start_of(content, _HEADER_BYTES)
            self.columns = pl.read_csv(start, n_rows=0, **self._options).columns
        except (PolarsError, PanicException) as problem:
            raise self._unreadable(problem) from problem

    def read(self, roles: Roles) -> pl.DataFrame:
        """Read the columns of some roles, as numbers if all values allow it, else all as text.

        Blank lines are skipped.
        """
        if not self.header:
            roles = {role: self.columns[int(number) - 1] for role, number in roles.items()}
        options = {**self._options, "columns": list(roles.values())}
        kinds = {name: _NUMBERS.get(role, pl.String) for role, name in roles.items()}
        try:
            frame = pl.read_csv(self.content, schema_overrides=kinds, **options)
        except (PolarsError, PanicException):
            try:
                frame = pl.read_csv(self.content, **options)
            except (PolarsError, PanicException) as problem:
                raise self._unreadable(problem) from problem
        # A blank line has no value in any column, but maybe blanks in the first.
        if sum(not column.null_count() for column in frame) <= 1:
            blank = self._blank_rows()
            if len(blank) == len(frame):
                frame = frame.filter(~pl.Series(blank, dtype=pl.Boolean))
        return by_role(frame, roles)

    def locate(self, row: int) -> str:
        """Name the line of a row, as `read` counts them."""
        try:
            for number, (line, _) in enumerate(self._records()):
                if number == row + self.header:
                    return f"{self.path}: line {line:,}"
        except csv.Error:
            pass  # a field is longer than the module accepts: name the row
        return f"{self.path}: row {row + 1:,}"

    def _blank_rows(self) -> list[bool]:
        """Return which rows of polars are blank lines."""
        text = all_bytes(self.content)
        if not self.quote or self.quote.encode() not in text:
            blank = [not line.strip() for line in text.removesuffix(b"\n").split(b"\n")]
        else:
            try:
                blank = [_is_blank(fields) for fields in self._reader()]
            except csv.Error:
                return []
        return blank[self.header :]

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the first line and the fields of each record that is not blank."""
        reader, line = self._reader(), 1 + self.skipped
        for fields in reader:
            if not _is_blank(fields):
                yield line, fields
            line = reader.line_num + 1 + self.skipped

    def _reader(self) -> csv._reader:  # type: ignore[name-defined]  # only stubs know the name
        raw = io.BytesIO(all_bytes(self.content))
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="")
        if self.quote:
            return csv.reader(text, delimiter=self.separator)
        return csv.reader(text, delimiter=self.separator, quoting=csv.QUOTE_NONE)

    def _unreadable(self, problem: BaseException) -> DataError:
        """Return an error about the line that cannot be read, or else the reason of polars."""
        raw = all_bytes(self.content)
        try:
            raw.decode()
        except UnicodeDecodeError as odd:
            return _undecodable(self.path, raw, "utf-8", odd, self.skipped)
        if self.quote and (opened := _open_quote(raw)):
            return DataError(
                f'{self.path}: line {opened + self.skipped:,} opens a quote (") that is never '
                "closed; close it, or write the quote twice inside a quoted field."
            )
        try:
            records = self._records()
            _, first = next(records)
            for line, fields in records:
                if len(fields) > len(first):
                    return DataError(
                        f"{self.path}: line {line:,} has {len(fields)} columns, but the first "
                        f"line has {len(first)}; quote fields that hold {self.separator!r}."
                    )
        except (csv.Error, StopIteration):
            pass
        return DataError(f"{self.path} cannot be read as delimited text: {first_line(problem)}.")


def _check_header(path: Path, header: str, separator: str) -> None:
    """Raise if two columns have the same name."""
    try:
        fields = next(csv.reader([header], delimiter=separator), [])
    except csv.Error as problem:
        reason = str(problem).split(" - ")[0]
        raise DataError(
            f"{path}: its first line cannot be read as names of columns: {reason}."
        ) from problem
    if double := next((n for n, times in Counter(fields).items() if n and times > 1), None):
        raise DataError(
            f"{path}: its first line names column {double!r} twice; rename one of them."
        )


def _first_line(start: bytes) -> str:
    """Return the first line, including line ends inside quotes."""
    lines = start.split(b"\n")
    many = 1
    while many < len(lines) and b"".join(lines[:many]).count(b'"') % 2:
        many += 1
    whole = many if many < len(lines) else 1  # a quote that is never closed is no quote
    return b"\n".join(lines[:whole]).decode("utf-8", "replace").rstrip("\r")


def _open_quote(raw: bytes) -> int | None:
    """Return the line, counted from 1, of a quote that is never closed."""
    opened = None
    for number, line in enumerate(raw.split(b"\n"), 1):
        if line.count(b'"') % 2:
            opened = None if opened else number
    return opened


def _is_blank(fields: list[str]) -> bool:
    return not fields or (len(fields) == 1 and not fields[0].strip())


def _undecodable(
    path: Path, raw: bytes, encoding: str, problem: UnicodeError, skipped: int = 0
) -> DataError:
    line = raw.count(b"\n", 0, getattr(problem, "start", 0)) + 1 + skipped
    return DataError(
        f"{path}: line {line:,} is not {encoding} text; name its encoding with encoding=... (in a "
        "shell: --read encoding=latin-1, for one)."
    )
