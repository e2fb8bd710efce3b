"""From columns of a table to ids, ratings and times, or to a sentence about the first bad row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import IdMap, Rows
from transcf.errors import DataError, shown

#: What ratings have to be: anything, no NaN or missing ones, or finite and none below zero.
RatingRule: TypeAlias = Literal["any", "present", "nonnegative"]

#: Date, maybe time, maybe distance from UTC.
_ISO = (
    r"^(?<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?<clock>[0-9]{2}:[0-9]{2})(?<second>:[0-9]{2})?(?<part>\.[0-9]{1,9})?)?"
    r"(?<zone>Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])?$"
)
_TIME = "a time is an integer or an ISO date"
#: Length of the units in which polars keeps dates.
_MICROSECONDS = {"ns": 0.001, "us": 1.0, "ms": 1e3, "days": 86_400e6}
#: The first and the last moment that Python, and hence tables and messages, can show.
_YEARS = (-62_135_596_800_000_000, 253_402_300_799_999_999)


@dataclass(frozen=True)
class Place:
    """Where a column stands, for messages.

    Attributes:
        label: What the table is called.
        column: Name of the column.
        locate: Names the place of a row, counted from 0 ("events.csv: line 7").
    """

    label: str
    column: str
    locate: Callable[[int], str]

    def wrong(self, row: int, what: str, remedy: str) -> DataError:
        """Return the error about one row, counted from 0."""
        return DataError(f"{self.locate(row)} of column {self.column!r} {what}; {remedy}.")

    def wrong_kind(self, kind: pl.DataType, remedy: str) -> DataError:
        """Return the error about a column that holds another kind of values."""
        return DataError(f"{self.label}: column {self.column!r} holds {kind}; {remedy}.")


def to_ids(
    values: pl.Series, place: Place, *, parse_integers: bool, keep_blanks: bool = False
) -> tuple[IdMap, Rows]:
    """Number a column of ids, all integers or all text.

    Floats are taken if all of them are whole numbers (tables turn integers into floats where
    a value is missing). Text is never changed: surrounding blanks are an error, or part of
    the id with `keep_blanks`.
    """
    values = plain_ids(values, place)
    ids, rows = IdMap.encode(values, parse_integers=parse_integers)
    if ids.is_text and not keep_blanks:
        check_blanks(ids.series, values, place)
    return ids, rows


def plain_ids(values: pl.Series, place: Place) -> pl.Series:
    """Return a column of ids as Int64 or String; works in a forked child (see `finding`)."""
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


def to_ratings(values: pl.Series, place: Place, rule: RatingRule) -> npt.NDArray[np.float32]:
    """Turn a column into float32; a missing rating becomes NaN, an infinite one is an error."""
    kind = values.dtype
    if isinstance(kind, pl.String | pl.Categorical | pl.Enum):
        values = values.cast(pl.String).str.strip_chars()
    elif not (kind.is_numeric() or isinstance(kind, pl.String | pl.Boolean | pl.Null)):
        raise place.wrong_kind(kind, "a rating is a number")
    numbers = values.cast(pl.Float32, strict=False)
    unread = numbers.is_null() & values.is_not_null()
    if unread.any():
        row = _first(unread)
        raise place.wrong(row, f"is {values[row]!r}", "a rating is a number")
    if (infinite := numbers.is_infinite() & numbers.is_not_null()).any():
        row = _first(infinite)
        raise place.wrong(row, f"is {values[row]}", "a rating is a finite number below 3.4e38")
    ratings = numbers.fill_null(float("nan")).to_numpy()
    if rule != "any":
        fine = ~np.isnan(ratings) if rule == "present" else ratings >= 0
        if not fine.all():
            row = int(np.argmin(fine))
            missing = np.isnan(ratings[row])
            what = "has no rating" if missing else f"is {ratings[row]:g}, a negative rating"
            raise place.wrong(row, what, f"ratings have to be {rule} here")
    return ratings


def to_times(values: pl.Series, place: Place) -> tuple[npt.NDArray[np.int64], bool]:
    """Turn a column into int64, and say whether it held dates.

    Integers stay as they are. Dates, and text in ISO form, become microseconds since 1970; a
    time without a zone is taken as UTC.
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
    """Return the categories of each entry of a column, as lists of text.

    Text holds one category or several that are separated by "|". A list holds one category per
    element. Blanks around a category and empty categories are dropped; null stays null.

    Args:
        values: Text, numbers, or lists of them.
        place: Where the column stands.

    Raises:
        DataError: The column holds another type.

    Example:
        >>> place = Place("items.csv", "genres", str)
        >>> category_lists(pl.Series(["Drama|War", "", None]), place).to_list()
        [['Drama', 'War'], [], None]
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
    # The kind of the first value is what the others are held against.
    dated = dates.to_physical()[0] is not None
    row = _first(dates.is_null() if dated else numbers.is_null())
    if dated and numbers[row] is not None:
        raise place.wrong(row, f"is {values[row]!r}, a number among dates", _TIME)
    raise place.wrong(row, f"is {values[row]!r}", _TIME)


def _moments(values: pl.Series, place: Place) -> npt.NDArray[np.int64]:
    """Turn dates into microseconds since 1970, UTC.

    By hand: polars panics, or wraps around, beyond the dates that it knows.
    """
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
    text = pl.concat_str(
        parts.field("day"),
        pl.lit("T"),
        clock.fill_null("00:00"),
        second.fill_null(":00"),
        part.fill_null(".0"),
    )
    zone = parts.field("zone").fill_null("Z").replace("Z", "+00:00").str.replace(":", "")
    minutes = 60 * zone.str.slice(1, 2).cast(pl.Int64) + zone.str.slice(3, 2).cast(pl.Int64)
    sign = pl.when(zone.str.starts_with("-")).then(-1).otherwise(1)
    local = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
    frame = pl.DataFrame({"t": values})
    return frame.select(local - pl.duration(minutes=sign * minutes)).to_series()


def check_blanks(distinct: pl.Series, values: pl.Series, place: Place) -> None:
    """Refuse text ids that are empty or have blanks around them.

    Args:
        distinct: The ids, each once.
        values: The column they come from.
        place: Where it stands.
    """
    if (distinct == "").any():
        raise place.wrong(_first(values == ""), "is an empty id", "fill it in or drop the row")
    if (distinct != distinct.str.strip_chars()).any():
        row = _first(values != values.str.strip_chars())
        raise place.wrong(row, f"is {values[row]!r}, with blanks around it", "strip the ids first")


def _whole_numbers(values: pl.Series, place: Place, remedy: str) -> pl.Series:
    numbers = values.to_numpy()
    # From here on a float of this precision may stand for several integers.
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
