"""Columns of tables, of kinds that fit and kinds that do not, for polars, pandas and Parquet."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
from hypothesis import strategies as st
from tests.hostile._oracle import Events, Row, UnclearError, WrongError, events_of

NOON = dt.datetime(2020, 1, 1, 12, 0, 0, 1)
#: From here on a number of single precision may stand for several integers.
INEXACT = 2.0**24
#: Digits that no parser of numbers takes, though Unicode calls them digits.
OTHER_DIGITS = ("\u0663\u0664", "\uff11\uff12")


@dataclass(frozen=True)
class Kind:
    """A kind of column: what it is made of, and what polars and pandas call it.

    Attributes:
        values: To choose from.
        polars: Type there; None lets it choose.
        pandas: Type there; None lets it choose.
        unclear: Whether the rules leave open what it means.
    """

    values: tuple[Any, ...]
    polars: Any = None
    pandas: str | None = None
    unclear: bool = False


IDS = {
    "int64": Kind((1, 2, 3, -(2**63), 2**63 - 1), pl.Int64, "int64"),
    "int8": Kind((1, 2, -3), pl.Int8, "int8"),
    "uint64": Kind((1, 2, 2**63), pl.UInt64, "uint64"),
    "float": Kind((1.0, 2.0, -3.0), pl.Float64, "float64"),
    "float32": Kind((1.0, 2.0, 16777215.0, INEXACT), pl.Float32, "float32"),
    "text": Kind(("ann", "bob", "日本", "1", "007"), pl.String, "str"),
    "categories": Kind(("ann", "bob"), pl.Categorical, "category"),
}
BAD_IDS = {
    "fractions": Kind((1.0, 2.5), pl.Float64, "float64"),
    "not finite": Kind((1.0, float("inf"), float("nan")), pl.Float64, "float64"),
    "beyond": Kind((1.0, 2.0**60), pl.Float64, "float64"),
    "missing": Kind((1, None), pl.Int64, "Int64"),
    "missing text": Kind(("ann", None), pl.String, "object"),
    "blanks": Kind(("ann", "", " b"), pl.String, "object"),
    "bool": Kind((True, False), pl.Boolean, "bool"),
    "dates": Kind((dt.date(2020, 1, 1),), pl.Date),
    "moments": Kind((NOON,), pl.Datetime("us"), "datetime64[ns]"),
    "spans": Kind((dt.timedelta(1),), pl.Duration("us"), "timedelta64[ns]"),
    "bytes": Kind((b"ann", b"\xff"), pl.Binary, "object"),
    "lists": Kind(([1], [2, 3], []), pl.List(pl.Int64), "object"),
    "objects": Kind(({"a": 1}, {"a": 2}), None, "object"),
    "decimals": Kind((Decimal("1.5"), Decimal(2)), pl.Decimal(10, 2), "object", unclear=True),
    "nothing": Kind((None,), pl.Null, "object"),
}
RATINGS = {
    "float": Kind((1.0, 4.5, 0.0, -1.0, None, float("nan")), pl.Float64, "float64"),
    "huge": Kind((1.0, 1e300, float("-inf")), pl.Float64, "float64"),
    "float32": Kind((1.0, 2.5, -0.5), pl.Float32, "float32"),
    "int": Kind((1, 5, 0, -1), pl.Int64, "int64"),
    "uint8": Kind((1, 5, 0), pl.UInt8, "uint8"),
    "missing": Kind((1, None), pl.Int16, "Int16"),
    "text": Kind(("1", "4.5", " 2 ", "nan", None), pl.String, "object"),
}
BAD_RATINGS = {
    "words": Kind(("good", "1"), pl.String, "object", unclear=True),
    "dates": Kind((dt.date(2020, 1, 1),), pl.Date),
    "moments": Kind((NOON,), pl.Datetime("ns"), "datetime64[ns]"),
    "spans": Kind((dt.timedelta(1),), pl.Duration("us"), "timedelta64[ns]"),
    "lists": Kind(([1.0], [2.0]), pl.List(pl.Float64), "object"),
    "structs": Kind(({"a": 1.0},), None, "object"),
    "bytes": Kind((b"1",), pl.Binary, "object"),
    "complex": Kind((1 + 2j,), pl.Object, "complex128"),
    "bool": Kind((True, False), pl.Boolean, "bool", unclear=True),
    "decimals": Kind((Decimal("1.5"),), pl.Decimal(10, 2), "object", unclear=True),
}
TIMES = {
    "int": Kind((0, 1, 2**62, -5), pl.Int64, "int64"),
    "int32": Kind((0, 7, -5), pl.Int32, "int32"),
    "float": Kind((1.6e9, 2.0), pl.Float64, "float64"),
    "text": Kind(("2020-01-01", "2020-01-01T10:00:00+02:00"), pl.String, "object"),
    "micro": Kind((NOON, dt.datetime(1969, 1, 1)), pl.Datetime("us"), "datetime64[us]"),
    "milli": Kind((dt.datetime(2020, 1, 1), dt.datetime(1, 1, 1)), pl.Datetime("ms"),
                  "datetime64[s]"),
    "dates": Kind((dt.date(2020, 1, 1), dt.date(1, 1, 1)), pl.Date, "object"),
    "utc": Kind((NOON.replace(tzinfo=dt.UTC),), pl.Datetime("us", "UTC"), "datetime64[us, UTC]"),
    "zone": Kind((NOON.replace(tzinfo=dt.UTC),), pl.Datetime("ns", "Asia/Kolkata"),
                 "datetime64[ns, Asia/Kolkata]"),
}  # fmt: skip
BAD_TIMES = {
    "missing": Kind((1, None), pl.Int64, "Int64"),
    "no moment": Kind((NOON, None), pl.Datetime("us"), "datetime64[us]"),
    "fractions": Kind((1.5, 2.0), pl.Float64, "float64", unclear=True),
    "mixed": Kind(("2020-01-01", "1577836800"), pl.String, "object", unclear=True),
    "clock": Kind((dt.time(10),), pl.Time, "object"),
    "bool": Kind((True,), pl.Boolean, "bool"),
    "zones": Kind((NOON, NOON.replace(tzinfo=dt.UTC)), pl.Object, "object", unclear=True),
    "lists": Kind(([1],), pl.List(pl.Int64), "object"),
}


@dataclass(frozen=True)
class Table:
    """Columns by name, and what they are made of."""

    columns: dict[str, list[Any]]
    kinds: dict[str, Kind]

    def polars(self) -> pl.DataFrame:
        """The table as polars has it."""
        return pl.DataFrame(
            [pl.Series(name, values, dtype=self.kinds[name].polars, strict=False)
             for name, values in self.columns.items()]
        )  # fmt: skip

    def pandas(self) -> pd.DataFrame:
        """The table as pandas has it."""
        return pd.DataFrame(
            {name: pd.Series(values, dtype=self.kinds[name].pandas)
             for name, values in self.columns.items()}
        )  # fmt: skip

    def expected(self) -> Events:
        """What it holds, by the oracle."""
        if any(kind.unclear for kind in self.kinds.values()):
            raise UnclearError("the rules leave it open")
        for name in ("user", "item"):
            if self.kinds[name] is IDS["float32"] and INEXACT in self.columns[name]:
                raise WrongError("ids that are not exact")
            if any(self.kinds[name] is kind for kind in BAD_IDS.values()):
                chosen = self.columns[name]
                if not all(type(value) in (int, float, str) for value in chosen):
                    raise WrongError("no ids")
        for name, bad in (("rating", BAD_RATINGS), ("timestamp", BAD_TIMES)):
            kind = self.kinds.get(name)
            odd = {id(entry) for entry in bad.values()} - {id(BAD_TIMES["missing"])}
            if id(kind) in odd - {id(BAD_TIMES["no moment"])}:
                raise WrongError(f"no {name}")
        rows = [
            Row(**{("time" if name == "timestamp" else name): values[place]
                   for name, values in self.columns.items()})
            for place in range(len(self.columns["user"]))
        ]  # fmt: skip
        return events_of(
            rows, rated="rating" in self.columns, timed="timestamp" in self.columns, from_text=False
        )


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Tables that are mostly fine, with one odd column now and then."""
    odd = draw(st.sampled_from(["", "", "user", "item", "rating", "timestamp"]))
    names = ["user", "item", *draw(st.lists(st.sampled_from(["rating", "timestamp"]), unique=True))]
    pools = {
        "user": (IDS, BAD_IDS),
        "item": (IDS, BAD_IDS),
        "rating": (RATINGS, BAD_RATINGS),
        "timestamp": (TIMES, BAD_TIMES),
    }
    kinds = {name: draw(st.sampled_from(list(pools[name][name == odd].values()))) for name in names}
    size = draw(st.integers(0, 6)) if draw(st.booleans()) else 3
    columns = {
        name: draw(st.lists(st.sampled_from(kind.values), min_size=size, max_size=size))
        for name, kind in kinds.items()
    }
    return Table(columns, kinds)
