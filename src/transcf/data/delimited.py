"""Delimited text: CSV, TSV and their relatives, with or without a header, in any encoding."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from transcf.data.columns import Role, Roles
from transcf.data.tables import Source, by_role
from transcf.errors import DataError, ParameterError, shown

#: A path, or the contents of a file where they had to be unpacked or decoded.
Content: TypeAlias = Path | bytes

_SEPARATORS = (",", "\t", ";", "|", "::")
#: Bytes that text does not use, in place of separators that polars cannot part by.
_STAND_INS = (b"\x1f", b"\x1e", b"\x1d", b"\x1c")
_BOM = codecs.BOM_UTF8
#: Lines with nothing but spaces on them; a tab may part columns.
_BLANK_LINES = re.compile(rb"(?: *\r?\n)+")
#: Bytes among which the names of the columns are.
_HEADER_BYTES = 1 << 20
#: Types of columns that hold numbers, if all their values are numbers.
_NUMBERS: Mapping[Role, type[pl.DataType]] = {"rating": pl.Float32, "timestamp": pl.Int64}


@dataclass(frozen=True)
class Dialect:
    """How a file of text is written.

    Attributes:
        header: Whether its first line names the columns; otherwise their numbers do, from 1.
        separator: What parts the columns, of one or more characters; None finds it in the first
            line.
        encoding: Name of a text encoding that Python knows.
    """

    header: bool = True
    separator: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        """Refuse what no file can be."""
        if not isinstance(self.header, bool):
            raise ParameterError(
                f"header={shown(self.header)} is not allowed; it is True or False."
            )
        mark = self.separator
        if mark is not None and (not isinstance(mark, str) or not mark or set(mark) & set('\r\n"')):
            raise ParameterError(
                f"separator={shown(mark)} is not allowed; it is one or more characters, and "
                "neither a "
                f"quote nor the end of a line."
            )
        try:
            "".encode(self.encoding)
        except (LookupError, TypeError, ValueError) as problem:
            raise ParameterError(
                f"encoding={shown(self.encoding)} is not known; 'utf-8', 'latin-1' and "
                "'utf-16' are."
            ) from problem

    @property
    def is_utf8(self) -> bool:
        """Whether bytes can be read as they are."""
        return codecs.lookup(self.encoding).name in ("utf-8", "ascii")


def decode(path: Path, content: Content, encoding: str) -> bytes:
    """Return the text of a file in UTF-8."""
    raw = content if isinstance(content, bytes) else content.read_bytes()
    try:
        return raw.decode(encoding).encode()
    except UnicodeError as problem:
        raise _undecodable(path, raw, encoding, problem) from problem


def delimited_source(path: Path, content: Content, form: Dialect) -> Source:
    """Open delimited text; `content` is in UTF-8."""
    text = _Text.of(path, content, form)
    columns = text.columns()
    names = {name if form.header else str(n): name for n, name in enumerate(columns, 1)}

    def read(roles: Roles) -> pl.DataFrame:
        frame = text.read(
            {names[name]: _NUMBERS.get(role, pl.String) for role, name in roles.items()}
        )
        return by_role(frame, {role: names[name] for role, name in roles.items()})

    return Source(
        str(path), tuple(names), read, is_text=True, has_header=form.header, locate=text.locate
    )


@dataclass(frozen=True)
class _Text:
    """Delimited text that polars can read.

    Attributes:
        path: The file, for messages.
        content: Its text, in UTF-8 and parted by a single byte.
        separator: That byte.
        quote: What fields may be quoted by; with stand-ins for separators, nothing.
        header: Whether the first line names the columns.
        skipped: Lines of the file before the content.
    """

    path: Path
    content: Content
    separator: str
    quote: str | None = '"'
    header: bool = True
    skipped: int = 0

    @classmethod
    def of(cls, path: Path, content: Content, form: Dialect) -> _Text:
        """Find the separator and check the first line."""
        start = start_of(content).removeprefix(_BOM)
        if b"\r" in start and b"\n" not in start:  # lines as old Macs end them
            content = _bytes(content).replace(b"\r", b"\n")
            start = start.replace(b"\r", b"\n")
        above = _BLANK_LINES.match(start)
        blank = above.end() if above else 0
        skipped = start[:blank].count(b"\n")
        first = _first_line(start[blank:], quoted=True)
        separator = form.separator or max(_SEPARATORS, key=first.count)
        text = cls(path, content, separator, header=form.header, skipped=skipped)
        if blank or (not form.header and start_of(content).startswith(_BOM)):
            text = replace(text, content=_bytes(content).removeprefix(_BOM)[blank:])
        if len(separator.encode()) > 1:
            text = text._with_stand_in()
            first = _first_line(start[blank:], quoted=False).replace(separator, text.separator)
        if form.header:
            text._check_header(first)
        return text

    def columns(self) -> list[str]:
        """Return the names of the columns, as polars has them."""
        try:
            return self._parse(start_of(self.content, _HEADER_BYTES), n_rows=0).columns
        except (PolarsError, PanicException) as problem:
            raise self._unreadable(problem) from problem

    def read(self, kinds: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
        """Read some columns, as the given types if all values allow it, else all as text.

        Blank lines are skipped.
        """
        chosen = {"columns": list(kinds)}
        try:
            frame = self._parse(self.content, **chosen, schema_overrides=kinds)
        except (PolarsError, PanicException):
            try:
                frame = self._parse(self.content, **chosen)
            except (PolarsError, PanicException) as problem:
                raise self._unreadable(problem) from problem
        # Of a blank line there is nothing in any column, but maybe blanks in the first.
        if sum(not column.null_count() for column in frame) <= 1:
            blank = self._blank_rows()
            if len(blank) == len(frame):
                frame = frame.filter(pl.Series(~blank))
        return frame

    def locate(self, row: int) -> str:
        """Name the line of a row, as `read` counts them."""
        last = row + self.header
        try:
            for number, (line, _) in enumerate(self._records()):
                if number == last:
                    return f"{self.path}: line {line:,}"
        except csv.Error:
            pass  # fields beyond what the module takes: the row has to do
        return f"{self.path}: row {row + 1:,}"

    def _parse(self, content: Content, **options: Any) -> pl.DataFrame:
        """Parse delimited text; types are never inferred, and a path is never a pattern."""
        return pl.read_csv(
            content,
            separator=self.separator,
            quote_char=self.quote,
            has_header=self.header,
            infer_schema=False,
            glob=False,
            **options,
        )

    def _with_stand_in(self) -> _Text:
        """Put a byte that the text does not have in the place of a longer separator."""
        text = _bytes(self.content)
        stand_in = next((byte for byte in _STAND_INS if byte not in text), None)
        if stand_in is None:
            raise DataError(f"{self.path} holds binary data, not text parted by {self.separator}.")
        return replace(
            self,
            content=text.replace(self.separator.encode(), stand_in),
            separator=stand_in.decode(),
            quote=None,
        )

    def _check_header(self, header: str) -> None:
        """Refuse a name that stands over two columns: there is no telling which one is meant."""
        try:
            fields = next(csv.reader([header], delimiter=self.separator), [])
        except csv.Error as problem:
            raise DataError(
                f"{self.path}: its first line cannot be read as names of columns: "
                f"{str(problem).split(' - ')[0]}."
            ) from problem
        names = Counter(name for name in fields if name)
        twice = next((name for name, times in names.items() if times > 1), None)
        if twice is not None:
            raise DataError(
                f"{self.path}: its first line names column {twice!r} twice; rename one of them."
            )

    def _blank_rows(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(n,) which rows of polars are lines with nothing on them."""
        text = _bytes(self.content)
        if self.quote is None or self.quote.encode() not in text:
            lines = text.removesuffix(b"\n").split(b"\n")
            blank = [not line.strip() for line in lines]
        else:
            try:
                blank = [_is_blank(fields) for fields in self._reader()]
            except csv.Error:
                return np.zeros(0, dtype=bool)
        return np.array(blank[self.header :], dtype=bool)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """First line and fields of each record that is not blank."""
        reader, line = self._reader(), 1 + self.skipped
        for fields in reader:
            if not _is_blank(fields):
                yield line, fields
            line = reader.line_num + 1 + self.skipped

    def _reader(self) -> csv._reader:  # type: ignore[name-defined]  # only stubs know the name
        raw = io.BytesIO(_bytes(self.content))
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="")
        if self.quote is None:
            return csv.reader(text, delimiter=self.separator, quoting=csv.QUOTE_NONE)
        return csv.reader(text, delimiter=self.separator)

    def _unreadable(self, problem: BaseException) -> DataError:
        """Say which line cannot be read, if it can be told, else what polars says."""
        raw = _bytes(self.content)
        try:
            raw.decode()
        except UnicodeDecodeError as odd:
            return _undecodable(self.path, raw, "utf-8", odd, self.skipped)
        if self.quote is not None and (opened := _open_quote(raw)):
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
        reason = str(problem).strip().split("\n", 1)[0].rstrip(".")
        return DataError(f"{self.path} cannot be read as delimited text: {reason}.")


def start_of(content: Content, size: int = 1 << 16) -> bytes:
    """Return the first bytes of a file."""
    if isinstance(content, bytes):
        return content[:size]
    with content.open("rb") as file:
        return file.read(size)


def _first_line(start: bytes, *, quoted: bool) -> str:
    """Return the first line, with the ends of lines that are quoted in it."""
    lines = start.split(b"\n")
    many = 1
    while quoted and many < len(lines) and b"".join(lines[:many]).count(b'"') % 2:
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


def _bytes(content: Content) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def _is_blank(fields: list[str]) -> bool:
    return not fields or (len(fields) == 1 and not fields[0].strip())


def _undecodable(
    path: Path, raw: bytes, encoding: str, problem: UnicodeError, skipped: int = 0
) -> DataError:
    line = raw.count(b"\n", 0, getattr(problem, "start", 0)) + 1 + skipped
    return DataError(
        f"{path}: line {line:,} is not {encoding} text; name its encoding with encoding=... (in a "
        f"shell: --encoding latin-1, for one)."
    )
