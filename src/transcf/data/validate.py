"""Columns of a table: their roles, and conversion of their values with clear errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.errors import DataError, shown

Role: TypeAlias = Literal["user", "item", "rating", "timestamp", "category"]
Roles: TypeAlias = dict[Role, str]
#: A column as callers give it: its name, its number from 1, or None to find it.
Column: TypeAlias = str | int | None

#: Roles of an event log.
ROLES: tuple[Role, ...] = ("user", "item", "rating", "timestamp", "category")

#: Usual names of the columns, without case, blanks and punctuation.
_USUAL: Mapping[Role, str] = {
    "user": "user userid uid username reviewerid customer customerid member memberid visitor "
    "visitorid account accountid",
    "item": "item itemid iid movie movieid isbn product productid asin book bookid artist artistid "
    "track trackid song songid business businessid article articleid bookmarkid",
    "rating": "rating ratings score stars overall bookrating preference",
    "timestamp": "timestamp time date datetime ts unixtime unixtimestamp unixreviewtime createdat "
    "eventtime",
    "category": "category categories categoryid genre genres",
}
#: Names that are looked for where no column has one of those.
_LESS_USUAL: Mapping[Role, str] = {
    "user": "client clientid buyer buyerid shopper shopperid subscriber subscriberid listener "
    "listenerid player playerid reader readerid session sessionid",
    "item": "sku skuid stockcode productcode itemcode video videoid game gameid recipe recipeid "
    "content contentid",
    "timestamp": "when eventdate eventtimestamp orderdate orderedat purchasedate purchasedat "
    "invoicedate playedat listenedat ratedat clickedat",
}
#: Column numbers of a source without names.
_UNNAMED: Mapping[Role, int] = {"user": 1, "item": 2}

#: Date, optional time, optional offset from UTC.
_ISO = (
    r"^(?<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?<clock>[0-9]{2}:[0-9]{2})(?<second>:[0-9]{2})?(?<part>\.[0-9]{1,9})?)?"
    r"(?: ?(?<zone>Z|UTC|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9]))?$"
)
_TIME = "a time is an integer or an ISO date such as 2026-03-15 10:00:00"
#: Microseconds in the units of polars dates.
_MICROSECONDS = {"ns": 0.001, "us": 1.0, "ms": 1e3, "days": 86_400e6}
#: The first and the last microsecond that `datetime` can represent.
_YEARS = (-62_135_596_800_000_000, 253_402_300_799_999_999)


def find_columns(
    names: Sequence[str],
    given: Mapping[Role, Column],
    label: str,
    roles: Sequence[Role],
    *,
    has_header: bool = True,
) -> Roles:
    """Choose a column for each role: the one given, else the one with a usual name.

    User and item are required. Without a header columns are called by their numbers.
    """
    chosen: Roles = {}
    for role in roles:
        wanted = given.get(role)
        if wanted is None:
            wanted = _usual_column(names, role, label) if has_header else _UNNAMED.get(role)
        if wanted is not None:
            column = _column(names, wanted, label, has_header)
            if other := next((r for r, taken in chosen.items() if taken == column), None):
                raise DataError(
                    f"{label}: column {column!r} cannot be both the {other} and the {role}."
                )
            chosen[role] = column
    return chosen


def usual_roles(names: Sequence[str]) -> list[Role | None]:
    """Return the roles that columns of such names ("User ID") usually have."""
    roles = [_role(name, _USUAL) for name in names]
    less_usual = [_role(name, _LESS_USUAL) for name in names]
    return [
        other if role is None and other not in roles else role
        for role, other in zip(roles, less_usual, strict=True)
    ]


def _role(name: str, known: Mapping[Role, str]) -> Role | None:
    bare = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((role for role, usual in known.items() if bare in usual.split()), None)


def looks_like_data(name: str) -> bool:
    """Return whether a column name is a number, as in a file without a header."""
    return re.fullmatch(r"-?[0-9.]+", name) is not None


def naming(role: Role) -> str:
    """Return the hint how to name a column, in Python and in a shell."""
    return f"name one with read_interactions(..., {role}=...) (in a shell: --read {role}=NAME)"


def list_names(names: Sequence[str]) -> str:
    """Return at most a dozen quoted names."""
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _column(names: Sequence[str], wanted: str | int, label: str, has_header: bool) -> str:
    """Return the name of a column given by name or by number."""
    if isinstance(wanted, str) and wanted in names:
        return wanted
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 1 <= wanted <= len(names):
        return names[wanted - 1]
    known = f"they are counted from 1 to {len(names)}"
    if isinstance(wanted, str) and has_header:
        known = f"its columns are {list_names(names)}"
    raise DataError(f"{label} has no column {wanted!r}; {known}.")


def _usual_column(names: Sequence[str], role: Role, label: str) -> str | None:
    found = [name for name, usual in zip(names, usual_roles(names), strict=True) if usual == role]
    if len(found) > 1:
        raise DataError(
            f"{label} has several columns that could be the {role} ({list_names(found)}): "
            f"{naming(role)}."
        )
    if not found and role in _UNNAMED:
        no_header = ", or say header=False (--read header=no) if the first line is data"
        is_likely = any(map(looks_like_data, names)) or not any(usual_roles(names))
        raise DataError(
            f"{label} has no {role} column with a usual name such as '{role}_id'; its columns are "
            f"{list_names(names)}: {naming(role)}{no_header * is_likely}."
        )
    return found[0] if found else None


@dataclass(frozen=True)
class Place:
    """A column for error messages.

    `locate` names a row, counted from 0 ("events.csv: line 7"); None names the label and the row.
    """

    label: str
    column: str
    locate: Callable[[int], str] | None = None

    def wrong(self, row: int, what: str, remedy: str) -> DataError:
        """Return the error about one row, counted from 0."""
        where = self.locate(row) if self.locate else f"{self.label}: row {row + 1:,}"
        return DataError(f"{where} of column {self.column!r} {what}; {remedy}.")

    def wrong_kind(self, kind: pl.DataType, remedy: str) -> DataError:
        """Return the error about a column of another type."""
        return DataError(f"{self.label}: column {self.column!r} holds {kind}; {remedy}.")


def plain_ids(values: pl.Series, place: Place) -> pl.Series:
    """Return a column of ids as Int64 or String; works in a forked child (see `ids`)."""
    if values.null_count():
        raise place.wrong(_first(values.is_null()), "has no id", "fill it in or drop the row")
    if isinstance(values.dtype, pl.Categorical | pl.Enum):
        return values.cast(pl.String)
    if values.dtype.is_float():
        return _whole_numbers(values, place, "ids are integers or text")
    if values.dtype.is_integer():
        return _as_int64(values, place)
    if values.dtype != pl.String:
        raise place.wrong_kind(values.dtype, "ids are integers or text")
    return values


def check_blanks(distinct: pl.Series, values: pl.Series, place: Place) -> None:
    """Raise if a text id is empty or has blanks around it; `distinct` has each id once."""
    if (distinct == "").any():
        raise place.wrong(_first(values == ""), "is an empty id", "fill it in or drop the row")
    if (distinct != distinct.str.strip_chars()).any():
        row = _first(values != values.str.strip_chars())
        raise place.wrong(row, f"is {values[row]!r}, with blanks around it", "strip the ids first")


def checked_ids(values: pl.Series, place: Place) -> pl.Series:
    """Return a column of ids as Int64 or String without blanks around them."""
    ids = plain_ids(values, place)
    if ids.dtype == pl.String:
        check_blanks(ids.unique(), ids, place)
    return ids


def checked_values(
    frame: pl.DataFrame, places: Mapping[Role, Place], item_ids: pl.Series
) -> dict[str, Any]:
    """Convert all columns but the ids; return them as attributes of `Interactions`."""
    values: dict[str, Any] = {}
    if "rating" in frame.columns:
        values["ratings"] = _to_ratings(frame["rating"], places["rating"])
    if "timestamp" in frame.columns:
        times = to_times(frame["timestamp"], places["timestamp"])
        values["timestamps"], values["times_are_dates"] = times
    if "category" in frame.columns:
        values["categories"] = to_categories(item_ids, frame["category"], places["category"])
    return values


def _to_ratings(values: pl.Series, place: Place) -> npt.NDArray[np.float32]:
    """Convert a column to float32; a missing rating becomes NaN, an infinite one is an error."""
    kind = values.dtype
    if isinstance(kind, pl.String | pl.Categorical | pl.Enum):
        values = values.cast(pl.String).str.strip_chars()
    elif not (kind.is_numeric() or isinstance(kind, pl.Boolean | pl.Null)):
        raise place.wrong_kind(kind, "a rating is a number")
    numbers = values.cast(pl.Float32, strict=False)
    if (unread := numbers.is_null() & values.is_not_null()).any():
        row = _first(unread)
        raise place.wrong(row, f"is {values[row]!r}", "a rating is a number")
    if (infinite := numbers.is_infinite() & numbers.is_not_null()).any():
        row = _first(infinite)
        raise place.wrong(row, f"is {values[row]}", "a rating is a finite number below 3.4e38")
    return numbers.fill_null(float("nan")).to_numpy()


def to_times(values: pl.Series, place: Place) -> tuple[npt.NDArray[np.int64], bool]:
    """Convert a column to int64, and return whether it held dates.

    Integers stay. Dates and ISO text become microseconds since 1970, UTC if they have no zone.
    """
    if values.null_count():
        raise place.wrong(_first(values.is_null()), "has no time", "fill it in or drop the row")
    if values.dtype == pl.String:
        return _text_times(values, place)
    if values.dtype.is_integer():
        return _as_int64(values, place).to_numpy(), False
    if values.dtype.is_float():
        return _whole_numbers(values, place, _TIME).to_numpy(), False
    if isinstance(values.dtype, pl.Date | pl.Datetime):
        return _moments(values, place), True
    raise place.wrong_kind(values.dtype, _TIME)


def to_categories(item_ids: pl.Series, values: pl.Series, place: Place) -> pl.DataFrame:
    """Return the distinct pairs `item_id, category`; see `category_lists`."""
    table = pl.DataFrame({"item_id": item_ids, "category": category_lists(values, place)})
    table = table.explode("category").drop_nulls("category")
    return table.unique().sort("item_id", "category")


def category_lists(values: pl.Series, place: Place) -> pl.Series:
    """Return the categories of each entry, lists or text separated by "|", as lists of text.

    Blanks around a category and empty categories are dropped; null stays null.
    """
    kind = values.dtype.inner if isinstance(values.dtype, pl.List) else values.dtype
    named = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Null)
    if not (isinstance(kind, named) or kind.is_numeric()):
        raise place.wrong_kind(values.dtype, "a category is text or a number, or a list of them")
    if isinstance(values.dtype, pl.List):
        lists = values.cast(pl.List(pl.String))
    else:
        lists = values.cast(pl.String).str.split("|")
    names = pl.element().str.strip_chars()
    return lists.list.eval(names.filter(names != "")).list.unique(maintain_order=True)


def _text_times(values: pl.Series, place: Place) -> tuple[npt.NDArray[np.int64], bool]:
    integers = values.cast(pl.Int64, strict=False)
    if not integers.null_count():
        return integers.to_numpy(), False
    numbers = values.cast(pl.Float64, strict=False)  # 1600000000.0, as programs write it
    if not numbers.null_count():
        return _whole_numbers(numbers, place, _TIME).to_numpy(), False
    dates = _iso_dates(values)
    if not dates.null_count():
        return _moments(dates, place), True
    stripped = values.str.strip_chars()
    if not stripped.equals(values):
        return _text_times(stripped, place)
    # The other values have to be of the same kind as the first.
    dated = dates.to_physical()[0] is not None
    row = _first(dates.is_null() if dated else numbers.is_null())
    among = ", a number among dates" if dated and numbers[row] is not None else ""
    raise place.wrong(row, f"is {values[row]!r}{among}", _TIME)


def _moments(values: pl.Series, place: Place) -> npt.NDArray[np.int64]:
    """Convert dates to microseconds since 1970, UTC."""
    # With integers: polars panics or wraps around beyond the dates that it can represent.
    numbers = values.to_physical().cast(pl.Int64).to_numpy()
    scale = _MICROSECONDS[getattr(values.dtype, "time_unit", "days")]
    low, high = (math.floor(bound / scale) for bound in _YEARS)
    fine = (numbers >= low) & (numbers <= high)
    if not fine.all():
        row = int(np.argmin(fine))
        raise place.wrong(row, "is a date beyond the years 1 to 9999", "correct it or drop the row")
    return np.floor_divide(numbers, 1000) if scale < 1 else numbers * int(scale)


def _iso_dates(values: pl.Series) -> pl.Series:
    """Parse ISO dates to Datetime("us") in UTC, null where it cannot be done."""
    parts = pl.col("t").str.extract_groups(_ISO).struct
    clock, second, part = (parts.field(name) for name in ("clock", "second", "part"))
    time = (clock.fill_null("00:00"), second.fill_null(":00"), part.fill_null(".0"))
    text = pl.concat_str(parts.field("day"), pl.lit("T"), *time)
    zone = parts.field("zone").fill_null("Z").replace(["Z", "UTC"], "+00:00").str.replace(":", "")
    minutes = 60 * zone.str.slice(1, 2).cast(pl.Int64) + zone.str.slice(3, 2).cast(pl.Int64)
    sign = pl.when(zone.str.starts_with("-")).then(-1).otherwise(1)
    local = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
    frame = pl.DataFrame({"t": values})
    return frame.select(local - pl.duration(minutes=sign * minutes)).to_series()


def _whole_numbers(values: pl.Series, place: Place, remedy: str) -> pl.Series:
    numbers = values.to_numpy()
    # From here on a float of this precision may represent several integers.
    inexact = 2.0 ** (np.finfo(numbers.dtype).nmant + 1)
    whole = (numbers == np.floor(numbers)) & (np.abs(numbers) < inexact)
    if not whole.all():
        row = int(np.argmin(whole))
        value = values[row]
        what = "is not a whole number"
        if abs(value) >= inexact and math.isfinite(value):
            what, remedy = "is too large to be exact as a float", "write it as an integer or text"
        raise place.wrong(row, f"is {shown(value)} and {what}", remedy)
    return values.cast(pl.Int64)


def _as_int64(values: pl.Series, place: Place) -> pl.Series:
    converted = values.cast(pl.Int64, strict=False)
    if converted.null_count():
        row = _first(converted.is_null())
        raise place.wrong(row, f"is {values[row]!r}", "integers must fit into 64 bits with sign")
    return converted


def _first(mask: pl.Series) -> int:
    """Return the first row of a mask; null counts as true."""
    return int(np.argmax(np.not_equal(mask.to_numpy(), False)))
