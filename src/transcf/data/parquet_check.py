"""Check of a Parquet file for impossible numbers, before polars reads it.

polars allocates memory for as many values as the header of a page announces; a flipped bit there
asks for exabytes, and the process is aborted. The headers are few and short, so they are checked
first. What is not understood here is left to polars, which refuses it by itself.

Only the parts of Thrift's compact protocol that Parquet uses are read; field numbers are those of
`parquet.thrift`.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, TypeAlias

Buffer: TypeAlias = bytes | memoryview | mmap.mmap
Fields: TypeAlias = dict[int, Any]

_MARK = b"PAR1"
_DATA, _DICTIONARY, _DATA_V2 = 5, 7, 8


def damage_of(content: Buffer | Path) -> str | None:
    """Return what is impossible in a file or its contents, or None."""
    if isinstance(content, Path):
        with content.open("rb") as file:
            return damage_of(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        for group in _footer(content).get(4, ()):
            for column in group.get(1, ()):
                if damage := _column_damage(content, column[3]):
                    return damage
    except (IndexError, TypeError, AttributeError, KeyError, ValueError, RecursionError):
        pass  # polars says what is wrong with it
    return None


def _footer(content: Buffer) -> Fields:
    size = len(content)
    if size < 12 or bytes(content[size - 4 : size]) != _MARK:
        raise ValueError("no end of a Parquet file")
    length = int.from_bytes(content[size - 8 : size - 4], "little")
    return _Reader(content, size - 8 - length).fields()


def _column_damage(content: Buffer, about: Fields) -> str | None:
    """Compare the headers of the pages of a column with its metadata."""
    count, packed = about[5], about[7]
    start = min(offset for offset in (about.get(11), about[9]) if offset)
    reader = _Reader(content, start)
    while reader.place < start + packed:
        page = reader.fields()
        length, body = page[2], page[3]
        for header, most in ((_DATA, count), (_DATA_V2, count), (_DICTIONARY, length)):
            if header in page and not 0 <= page[header][1] <= most:
                return "a page announces more values than it can hold"
        if body < 0:
            return "a page has a negative length"
        reader.place += body
    return None


class _Reader:
    """Reads structures of Thrift's compact protocol from a byte on, one after the other."""

    def __init__(self, content: Buffer, place: int) -> None:
        if place < 0:
            raise ValueError("before the file")
        self.content, self.place = content, place

    def fields(self) -> Fields:
        """Read a structure: its fields by their numbers."""
        found: Fields = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            found[number] = self._value(head & 15)
        return found

    def _value(self, kind: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind in (7, 8):  # a double or bytes, which are skipped
            length = 8 if kind == 7 else self._natural()
            self.place += length
            return None
        if kind in (9, 10):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._natural()
            if size > len(self.content):
                raise ValueError("a list longer than the file")
            single = 3 if head & 15 in (1, 2) else head & 15  # flags in lists have a byte each
            return [self._value(single) for _ in range(size)]
        if kind == 12:
            return self.fields()
        raise ValueError("not a kind that Parquet uses")

    def _byte(self) -> int:
        value = self.content[self.place]
        self.place += 1
        return int(value)

    def _natural(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number beyond 64 bits")

    def _integer(self) -> int:
        value = self._natural()
        return (value >> 1) ^ -(value & 1)
