"""Ids of users and items, and the rows that represent them inside the library.

Rows are found without threads. polars searches with a thread pool, which a forked child does not
have: it would wait forever. Servers that load a model and then fork, and multiprocessing, do just
that. What `IdMap.rows` uses (numpy; hashes, equality, filtering and gathering in polars) works in
the calling thread; methods of polars that use an expression, such as `fill_null`, do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.errors import UnknownIdError, shown

Id: TypeAlias = int | str
Rows: TypeAlias = npt.NDArray[np.int32]
#: Takes ids of a comparable type and returns the row of each.
_Finder: TypeAlias = Callable[[pl.Series], Rows]

#: The row of an id that is unknown.
UNKNOWN = -1

_SURROGATE = re.compile("[\ud800-\udfff]")
#: Entries processed at a time.
_PIECE = 1 << 18
#: Integers without leading zeros, within 64 bits.
_PLAIN_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
#: The same with up to 19 digits, for ids that are integers already.
_INTEGER_TEXT = re.compile(r"0|-?[1-9][0-9]{0,18}")


class IdMap:
    """Unique ids in ascending order, Int64 or String; the position of an id is its row.

    Ascending order makes rows independent of the order of the log, so that the same events in
    any order give the same arrays, draws and models.

    Attributes:
        is_text: Whether ids are strings (otherwise integers).

    Example:
        >>> users = IdMap(pl.Series(["ann", "bob"]))
        >>> users.rows(["bob", "zoe"]).tolist()
        [1, -1]
    """

    __slots__ = ("_finder", "_ids", "is_text")

    def __init__(self, ids: pl.Series) -> None:
        self._ids = ids.rename("id")
        self.is_text = ids.dtype == pl.String
        self._finder: _Finder | None = None

    def __reduce__(self) -> tuple[type[IdMap], tuple[pl.Series]]:
        """Pickle the ids alone: the index is rebuilt where it is needed."""
        return IdMap, (self._ids,)

    @classmethod
    def encode(cls, column: pl.Series, *, parse_integers: bool = False) -> tuple[IdMap, Rows]:
        """Number a column of ids (no nulls) and return the map with one row per entry.

        With `parse_integers`, text becomes integers if all of it is written as plain integers:
        digits, maybe a minus, no leading zeros. One "007" keeps all as text.
        """
        distinct, codes = _number(column)
        is_text = distinct.dtype == pl.String
        if parse_integers and is_text and distinct.str.contains(_PLAIN_INTEGER).all():
            distinct = distinct.cast(pl.Int64)
        order = distinct.arg_sort().to_numpy()
        rows_of_codes = np.empty(len(order), dtype=np.int32)
        rows_of_codes[order] = np.arange(len(order), dtype=np.int32)
        return cls(distinct.gather(pl.Series(order))), rows_of_codes[codes]

    def __len__(self) -> int:
        return len(self._ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdMap) and self._ids.equals(other._ids)

    __hash__ = None  # type: ignore[assignment]  # compared by content, never a key

    def __repr__(self) -> str:
        return f"IdMap({len(self):,} {'text' if self.is_text else 'integer'} ids)"

    @property
    def series(self) -> pl.Series:
        """All ids, in row order."""
        return self._ids

    def ids(self, rows: npt.NDArray[np.integer]) -> pl.Series:
        """Return the ids of some rows."""
        if len(rows) == 1:  # 1 microsecond in place of 60
            return self._ids.slice(int(rows[0]), 1)
        return self._ids.gather(pl.Series(rows))

    def rows(self, ids: Iterable[Id] | pl.Series) -> Rows:
        """Return the row of each id, `UNKNOWN` (-1) where there is none.

        Text never equals a number, nor a fraction or a truth value for an integer.
        """
        wanted = ids if isinstance(ids, pl.Series) else self._column(ids)
        if len(wanted) == 0:
            return np.empty(0, dtype=np.int32)
        comparable = wanted.dtype == pl.String if self.is_text else wanted.dtype.is_numeric()
        if not comparable or not len(self):
            return np.full(len(wanted), UNKNOWN, dtype=np.int32)
        if self._finder is None:
            find = _text_finder if self.is_text else _integer_finder
            self._finder = find(self._ids)
        return self._finder(wanted)

    def rows_of_column(self, column: pl.Series) -> Rows:
        """Return the row of each entry of a long column with repeated ids, faster than `rows`."""
        distinct, codes = _number(column)
        return self.rows(distinct)[codes]

    def require(self, ids: Iterable[Id] | pl.Series, what: str) -> Rows:
        """Return the row of each id or raise an error that names the first unknown one."""
        wanted = ids if isinstance(ids, pl.Series) else list(ids)
        rows = self.rows(wanted)
        missing = np.flatnonzero(rows == UNKNOWN)
        if len(missing):
            more = f" ({len(missing):,} of {len(rows):,} are)" if len(rows) > 1 else ""
            raise UnknownIdError(
                f"{what} {shown(wanted[int(missing[0])])} is unknown{more}; {self._known(what)}."
            )
        return rows

    def parse(self, text: str) -> Id:
        """Return the id whose text is exactly this one; "007" is not the integer 7, and stays."""
        return int(text) if not self.is_text and _INTEGER_TEXT.fullmatch(text) else text

    def _column(self, ids: Iterable[Id]) -> pl.Series:
        """Make a column of Python objects, null where one is of another kind than the ids."""
        return pl.Series(
            [value if self._fits(value) else None for value in ids],
            dtype=pl.String if self.is_text else None,
            strict=False,
        )

    def _fits(self, value: object) -> bool:
        if self.is_text:
            # Arguments of a command line that are not UTF-8 contain lone surrogates.
            return isinstance(value, str) and (value.isascii() or not _SURROGATE.search(value))
        if isinstance(value, bool | np.bool_):
            return False
        if isinstance(value, int | np.integer):
            return bool(-(2**63) <= value < 2**63)
        return isinstance(value, float | np.floating)

    def _known(self, what: str) -> str:
        if len(self) < 2:
            known = f"the only known {what} is" if len(self) else f"no {what} is known"
            return " ".join([known, *map(repr, self._ids)])
        kind = "text" if self.is_text else "integers"
        return f"{what} ids are {kind} such as {self._ids[0]!r}, and {len(self):,} are known"


def _number(column: pl.Series) -> tuple[pl.Series, Rows]:
    """Return the distinct ids in any order, and the place of each entry among them.

    Numbering text by hash is several times faster than by its letters. If two ids have the same
    hash, which the comparison at the end shows, another hash function takes over.
    """
    for seed in count():
        hashes = column.hash(seed).alias("hash")
        first = hashes.arg_unique()
        numbers = hashes.gather(first).to_frame().with_row_index("code")
        found = hashes.to_frame().join(numbers, on="hash", how="left", maintain_order="left")
        codes, distinct = found["code"].cast(pl.Int32).to_numpy().copy(), column.gather(first)
        # A piece at a time, to save memory.
        pieces = (slice(start, start + _PIECE) for start in range(0, len(column), _PIECE))
        if all(distinct.gather(pl.Series(codes[p])).equals(column[p]) for p in pieces):
            return distinct, codes
    raise AssertionError("unreachable: `count` does not end")


def plain_integers(text: pl.Series) -> pl.Series:
    """Return text as Int64 where it is written as a plain integer, null where not, as for "007"."""
    return text.str.extract(_PLAIN_INTEGER).cast(pl.Int64)


def _integer_finder(ids: pl.Series) -> _Finder:
    known = ids.to_numpy()

    def find(wanted: pl.Series) -> Rows:
        sought = wanted.cast(pl.Int64, strict=False)
        if not wanted.dtype.is_float() and not sought.null_count():
            return search(sought.to_numpy())
        # The cast cuts fractions off, and values that do not fit are null.
        whole = (sought.is_not_null() & sought.eq_missing(wanted)).to_numpy()
        rows = np.full(len(wanted), UNKNOWN, dtype=np.int32)
        rows[whole] = search(sought.filter(pl.Series(whole)).to_numpy())
        return rows

    def search(values: npt.NDArray[np.int64]) -> Rows:
        places = np.minimum(np.searchsorted(known, values), len(known) - 1)
        return np.where(known[places] == values, places, UNKNOWN).astype(np.int32)

    return find


def _text_finder(ids: pl.Series) -> _Finder:
    """Find text by its hash: eight bytes per id, and several times faster than by its letters."""
    for seed in count():  # the first seed that gives all ids different hashes
        hashes = ids.hash(seed).to_numpy()
        order = np.argsort(hashes).astype(np.int32)
        ordered = hashes[order]
        if (ordered[1:] != ordered[:-1]).all():
            break

    def find(wanted: pl.Series) -> Rows:
        places = np.searchsorted(ordered, wanted.hash(seed).to_numpy())
        rows = order[np.minimum(places, len(ordered) - 1)]
        found = ids.gather(pl.Series(rows)).eq_missing(wanted)  # another id may have the same hash
        return np.where(found.to_numpy(), rows, np.int32(UNKNOWN))

    return find
