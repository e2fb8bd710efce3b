"""How an event log is to be read, and how items are to be ranked: slow, plain, and by itself.

Nothing here uses numpy, polars or the library. A rule is written down as the documentation of
`read_interactions` has it, not as the code does it.
"""

from __future__ import annotations

import csv
import io
import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, TypeAlias

Id: TypeAlias = int | str
Pair: TypeAlias = tuple[Id, Id]
#: Rating (None where there is none) and time (None where the log has none) of each pair.
Events: TypeAlias = dict[Pair, tuple[float | None, int | None]]

SEPARATORS = (",", "\t", ";", "|", "::")
EXACT = 2**53


class WrongError(Exception):
    """The log has to be refused."""


class UnclearError(Exception):
    """No rule says what is right: a refusal will do, and any log that is not larger."""


@dataclass(frozen=True)
class Row:
    """One event as it stands in a source; None is a missing value."""

    user: Any
    item: Any
    rating: Any = None
    time: Any = None


# -- values ------------------------------------------------------------------------------------


def text_ids(values: Sequence[str | None]) -> list[Id]:
    """Ids of a file without types: integers if all are written as plain ones, else text."""
    if any(value is None or value == "" for value in values):
        raise WrongError("an id is missing")
    present = [str(value) for value in values]
    if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", value) for value in present):
        return [int(value) for value in present]
    return _unblanked(present)


def typed_ids(values: Sequence[Any]) -> list[Id]:
    """Ids of a table with types: all integers, all text, or floats that are whole."""
    if any(value is None for value in values):
        raise WrongError("an id is missing")
    if all(isinstance(value, str) for value in values):
        return _unblanked(values)
    if any(isinstance(value, float) for value in values):  # a column is of one type
        values = [
            _whole(value) if isinstance(value, bool) else float(value)
            for value in values
            if isinstance(value, int | float) or _whole(value)
        ]
    return [_whole(value) for value in values]


def _unblanked(values: Sequence[str]) -> list[Id]:
    if any(value == "" or value != value.strip() for value in values):
        raise WrongError("an id is empty or has blanks around it")
    return list(values)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongError(f"{value!r} is neither a number nor text")
    if isinstance(value, float) and (not math.isfinite(value) or value != math.floor(value)):
        raise WrongError(f"{value!r} is not whole")
    if isinstance(value, float) and abs(value) >= EXACT:
        raise WrongError(f"{value!r} is not exact")
    if not -(2**63) <= value < 2**63:
        raise WrongError(f"{value!r} does not fit into 64 bits")
    return int(value)


def rating_of(value: Any) -> float | None:
    """A number in single precision; None where it is missing or NaN."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        value = value.strip()
        if not re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|nan|NaN", value):
            raise WrongError(f"{value!r} is no number")
        value = float(value)
    if not isinstance(value, int | float):
        raise WrongError(f"{value!r} is no number")
    return single(float(value))


def single(value: float) -> float | None:
    """Round to single precision; what is not finite there is wrong."""
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError as error:
        raise WrongError(f"{value!r} is too large") from error
    if math.isinf(rounded):
        raise WrongError(f"{value!r} is not finite")
    return None if math.isnan(rounded) else rounded


def times_of(values: Sequence[Any]) -> list[int]:
    """Integers as they are; dates as microseconds since 1970."""
    if any(value is None or value == "" for value in values):
        raise WrongError("a time is missing")
    if all(isinstance(value, str) for value in values):
        return _text_times(values)
    if all(isinstance(value, date) for value in values):
        return [microseconds(value) for value in values]
    return [_whole(value) for value in values]


def _text_times(values: Sequence[str]) -> list[int]:
    values = [value.strip() for value in values]
    if all(re.fullmatch(r"-?[0-9]+", value) and abs(int(value)) < 2**63 for value in values):
        return [int(value) for value in values]
    if all(re.fullmatch(r"-?[0-9]+(\.[0-9]*)?([eE]\+?[0-9]+)?", value) for value in values):
        return [_whole(float(value)) for value in values]
    try:
        return [microseconds(datetime.fromisoformat(value)) for value in values]
    except ValueError as error:
        raise WrongError(str(error)) from error


def microseconds(moment: date) -> int:
    """Microseconds since 1970 in UTC."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    local = moment.replace(tzinfo=None) - datetime(1970, 1, 1)
    shift = moment.utcoffset()
    micros = (local.days * 86_400 + local.seconds) * 1_000_000 + local.microseconds
    if shift is not None:
        micros -= (shift.days * 86_400 + shift.seconds) * 1_000_000
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
    if shift is not None and not microseconds_utc(first) <= micros <= microseconds_utc(last):
        raise WrongError(f"{moment} is beyond all years")
    return micros


def microseconds_utc(moment: datetime) -> int:
    """Microseconds since 1970 of a moment in UTC."""
    return microseconds(moment.replace(tzinfo=None))


# -- logs --------------------------------------------------------------------------------------


def events_of(
    rows: Sequence[Row], *, rated: bool, timed: bool, from_text: bool, bar: float | None = None
) -> Events:
    """Merge rows to distinct pairs, and keep those whose rating is a sign of liking."""
    if not rows:
        raise WrongError("there are no rows")
    ids = text_ids if from_text else typed_ids
    users, items = ids([row.user for row in rows]), ids([row.item for row in rows])
    ratings = [rating_of(row.rating) if rated else None for row in rows]
    times: Sequence[int | None] = (
        times_of([row.time for row in rows]) if timed else [None] * len(rows)
    )
    newest: dict[Pair, tuple[Any, ...]] = {}
    for place, (user, item, rating, time) in enumerate(
        zip(users, items, ratings, times, strict=True)
    ):
        order = (time or 0, rating is not None, rating or 0.0, place)
        if (user, item) not in newest or order > newest[user, item][0]:
            newest[user, item] = (order, rating, time)
    kept = {pair: (rating, time) for pair, (_, rating, time) in newest.items()}
    if rated:
        kept = {pair: event for pair, event in kept.items() if _is_liked(event[0], bar)}
    if not kept:
        raise WrongError("nothing is left")
    return kept


def _is_liked(rating: float | None, bar: float | None) -> bool:
    if bar is None:
        return rating is None or rating > 0
    return bar == -math.inf or (rating is not None and rating >= bar)


def delimited_rows(raw: bytes, columns: Sequence[str], header: bool, separator: str) -> list[Row]:
    """Part text into rows by the csv module; `columns` are the roles in their order."""
    text = raw.decode()
    if text.startswith("\ufeff"):
        text = text[1:]
    if "\r" in text.replace("\r\n", "\n") and "\n" in text:
        raise UnclearError("line ends of two kinds")
    if len(separator) > 1:
        lines = re.split(r"\r\n|\n|\r", text)
        records = [line.split(separator) for line in lines if line.strip()]
    else:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        records = [fields for fields in reader if any(field.strip() for field in fields[:1])
                   or len(fields) > 1]  # fmt: skip
    if header:
        records = records[1:]
    rows = []
    for fields in records:
        if len(fields) > len(columns):
            raise WrongError("a line is too long")
        named = dict(zip(columns, fields, strict=False))
        rows.append(Row(*(named.get(role) for role in ("user", "item", "rating", "time"))))
    return rows


# -- ranking -----------------------------------------------------------------------------------


def best(
    scores: Mapping[Id, float], k: int, *, without: Iterable[Id] = (), among: Any = None
) -> list[Id]:
    """The k items with the highest scores, equal ones by id."""
    hidden = set(without)
    allowed = [item for item in scores if item not in hidden and (among is None or item in among)]
    return sorted(allowed, key=lambda item: (-scores[item], item))[:k]


def pessimistic_rank(scores: Mapping[Id, float], target: Id, hidden: Iterable[Id]) -> int:
    """How many items are before the target, which loses all ties, and itself."""
    left_out = set(hidden) - {target}
    return sum(scores[item] >= scores[target] for item in scores if item not in left_out)


def hit(rank: int, n: int) -> float:
    """H@n of a single held-out item."""
    return float(rank <= n)


def gain(rank: int, n: int) -> float:
    """N@n of a single held-out item."""
    return 1 / math.log2(rank + 1) if rank <= n else 0.0
