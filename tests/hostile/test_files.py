"""Files as people have them, and as nobody should: read as the plain oracle does, or refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polars.exceptions import PolarsError
from tests.hostile import _oracle
from tests.hostile._checks import judge
from tests.hostile._columns import IDS, OTHER_DIGITS, TIMES, Table, tables
from tests.hostile._oracle import Events, Row, UnclearError, WrongError
from tests.hostile._outcomes import cases, outcome_of

from transcf import read_interactions

INTEGERS = ["1", "2", "3", "10", "-4", "0", "123456789012345678"]
TEXTS = ["ann", "bob", "007", "x,y", "a b", "日本", "été", "1", "1e5", "NaN", "null", "-0", "1.0",
         *OTHER_DIGITS, "9223372036854775808", "c:d", "p|q", "s;t", "{}", "=1+1",
         "\u200b"]  # fmt: skip
QUOTED = ['q"q', "two\nlines", '"', "tab\tbed"]
BAD_IDS = ["", " a", "b ", "\t", "\u00a0z"]
RATINGS = [
    "1",
    "5",
    "4.5",
    "0",
    "-1",
    "1e3",
    "",
    "nan",
    ".5",
    "3.",
    " 4",
    "2.5 ",
]
BAD_RATINGS = ["abc", "--1", "4,5", "0x10", "½", "1 2", "true", "1e39", "-1e400", "inf", "-inf",
               *OTHER_DIGITS]  # fmt: skip
WHOLE = ["0", "1600000000", "-5", "9007199254740993", "9223372036854775807"]
FLOATS = ["1600000000.0", "2.0", "7"]
DATES = ["2020-01-01", "2020-01-01T10:00:00", "2020-01-01 10:00+02:00", "2019-12-31T23:59:59.5Z",
         "0001-01-01", "9999-12-31T23:59:59"]  # fmt: skip
BAD_TIMES = ["", "yesterday", "2020-02-30", "2020-13-01", "1.5", "1e30", "9223372036854775808",
             "9999-12-31T23:59:59-12:00", "nan", "2020-01-01T10:00+99:99",
             "2020-01-01T10:00+\u0660\u0662:00", *OTHER_DIGITS]  # fmt: skip
#: Values of columns that have no role, of every kind that a reader may infer.
UNUSED = ["1", "2", "2.5", "word", "", "true", "2020-01-01", "1e400", *OTHER_DIGITS]
#: Names of files: most are patterns, and each of these matches the decoy.
STEMS = ["log", "l[x]g", "l?g", "l*g"]
DECOY = "lxg"
#: Copies of the first row: more than a reader looks at before it decides on types.
MANY = 150
HEADERS = {
    "user": ["user", "User_ID", "uid", "reviewerID"],
    "item": ["item", "movieId", "ASIN", "item id"],
    "rating": ["rating", "Stars", "overall"],
    "time": ["timestamp", "ts", "date"],
    "unused": ["title", "seen on", "x"],
}


@dataclass(frozen=True)
class TextFile:
    """A file of delimited text, and how it is read."""

    name: str
    raw: bytes
    columns: tuple[str, ...]
    header: bool
    separator: str
    options: dict[str, Any]
    encoding: str
    unclear: bool

    def expected(self) -> Events:
        """What it holds, by the oracle."""
        if self.unclear:
            raise UnclearError("damaged")
        try:
            raw = gzip.decompress(self.raw) if self.name.endswith(".gz") else self.raw
            utf8 = raw.decode(self.options.get("encoding", "utf-8")).encode()
        except UnicodeError as error:
            raise UnclearError("not all of it can be decoded") from error
        rows = _oracle.delimited_rows(utf8, self.columns, self.header, self.separator)
        rated, timed = "rating" in self.columns, "time" in self.columns
        return _oracle.events_of(
            rows, rated=rated, timed=timed, from_text=True, bar=self.options.get("min_rating")
        )


@st.composite
def text_files(draw: st.DrawFn) -> TextFile:
    columns = draw(
        st.sampled_from(
            [("user", "item"), ("item", "user"), ("user", "item", "rating"),
             ("user", "item", "rating", "time"), ("time", "item", "user")]
        )
    )  # fmt: skip
    if draw(st.integers(0, 2)) == 0:
        place = draw(st.integers(0, len(columns)))
        columns = (*columns[:place], "unused", *columns[place:])
    separator = draw(st.sampled_from(_oracle.SEPARATORS))
    values = {role: _values(draw, role, separator) for role in columns}
    rows = draw(st.lists(st.tuples(*(st.sampled_from(values[role]) for role in columns)),
                         min_size=0, max_size=8))  # fmt: skip
    if draw(st.integers(0, 3)) == 0:
        rows = rows[:1] * MANY + rows
    header = draw(st.booleans())
    names = [draw(st.sampled_from(HEADERS[role])) for role in columns]
    end = draw(st.sampled_from(["\n", "\r\n", "\n", "\r"]))
    text = _write([names, *rows] if header else rows, separator, end)
    lines = text.split(end)
    for _ in range(draw(st.integers(0, 2))):  # lines with nothing on them, or blanks
        if not any("\n" in field for row in rows for field in row):
            lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(["", "", "  "])))
    text = end.join(lines)
    if draw(st.booleans()):
        text = text.rstrip("\r\n")
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16"]))
    raw = text.encode(encoding, "replace")
    raw, is_hurt = draw(damaged(raw)) if draw(st.integers(0, 3)) == 0 else (raw, False)
    options: dict[str, Any] = {}
    if encoding not in ("utf-8", "utf-8-sig") and draw(st.integers(0, 4)):
        options["encoding"] = encoding
    if not header:
        options["header"] = False
        places = {role: place for place, role in enumerate(columns, 1)}
        options |= {role: places[role] for role in ("user", "item")}
        options |= {"rating": places["rating"]} if "rating" in places else {}
        options |= {"timestamp": places["time"]} if "time" in places else {}
    # Names of columns leave no doubt about the separator; data may hold others.
    others = [mark for mark in _oracle.SEPARATORS if mark != separator]
    if (not header and any(mark in text for mark in others)) or draw(st.booleans()):
        options["separator"] = separator
    if "rating" in columns and draw(st.booleans()):
        options["min_rating"] = draw(st.sampled_from([-math.inf, 0, 3, 4.5]))
    ending = draw(st.sampled_from([".csv", ".tsv", ".dat", ".txt", ".data", ".csv.gz"]))
    raw = gzip.compress(raw, 1) if ending.endswith(".gz") else raw
    if ending.endswith(".gz") and draw(st.integers(0, 5)) == 0:
        raw, is_hurt = draw(damaged(raw))[0], True
    mixed = separator == "::" and any(
        "\n" in field or '"' in field for row in rows for field in row
    )
    return TextFile(
        f"{draw(st.sampled_from(STEMS))}{ending}", raw, columns, header, separator, options,
        encoding,
        unclear=is_hurt or mixed or (ending.endswith(".gz") and is_hurt),
    )  # fmt: skip


def _values(draw: st.DrawFn, role: str, separator: str) -> list[str]:
    """What a column is made of: mostly one kind, and now and then something bad."""
    odd = draw(st.integers(0, 9)) == 0
    if role in ("user", "item"):
        kind = draw(st.sampled_from([INTEGERS, TEXTS, INTEGERS + TEXTS]))
        kind = kind + (QUOTED if separator != "::" and draw(st.integers(0, 4)) == 0 else [])
        kind = [value for value in kind if separator != "::" or "::" not in value]
        return kind + (BAD_IDS if odd else [])
    if role == "unused":
        return UNUSED
    if role == "rating":
        return RATINGS + (BAD_RATINGS if odd else [])
    kind = draw(st.sampled_from([WHOLE, WHOLE[:3] + FLOATS, DATES]))
    return kind + (BAD_TIMES + WHOLE + DATES if odd else [])


def _write(rows: list[Any], separator: str, end: str) -> str:
    if len(separator) > 1:
        return "".join(separator.join(row) + end for row in rows)
    text = io.StringIO()
    csv.writer(text, delimiter=separator, lineterminator=end).writerows(rows)
    return text.getvalue()


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> tuple[bytes, bool]:
    """Cut, change or add bytes; what is right is not clear any more."""
    place = draw(st.integers(0, max(0, len(raw) - 1)))
    how = draw(st.sampled_from(["cut", "flip", "insert", "twice"]))
    if how == "cut":
        return raw[:place], True
    if how == "flip":
        return raw[:place] + bytes([draw(st.integers(0, 255))]) + raw[place + 1 :], True
    if how == "insert":
        odd = draw(st.sampled_from([b"\xff", b"\0", b'"', b"\r", b"\n\n", b",,,,", b"\xc3\x28"]))
        return raw[:place] + odd + raw[place:], True
    return raw + raw[place:], True


def read(folder: Path, name: str, raw: bytes, options: dict[str, Any]) -> Any:
    path = folder / name
    path.write_bytes(raw)
    return outcome_of("files", lambda: read_interactions(path, **options))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that patterns match."""
    place = tmp_path_factory.mktemp("files")
    frame = pl.DataFrame({"user": ["decoy"], "item": ["decoy"]})
    for ending in (".csv", ".tsv", ".dat", ".txt", ".data"):
        frame.write_csv(place / f"{DECOY}{ending}")
    frame.write_ndjson(place / f"{DECOY}.jsonl")
    frame.write_parquet(place / f"{DECOY}.parquet")
    return place


@cases("files", 0.24)
@given(case=text_files())
def test_delimited_text(folder: Path, round_: int, case: TextFile) -> None:
    found = read(folder, case.name, case.raw, case.options)
    judge(found, case.expected, most=1 + len(case.raw) if case.name[-1] != "z" else 10**6)


SCALARS = st.sampled_from(
    [1, 2, -3, 0, 2**53 + 1, 2**63 - 1, "ann", "bob", "1", "", " x", 1.0, 2.5, 1e300, None, True]
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def json_rows(draw: st.DrawFn) -> tuple[list[dict[str, Any]], bool]:
    """Objects with the same keys in each, of kinds that fit or do not."""
    good = {
        "user": draw(st.sampled_from([[1, 2, 3], ["ann", "bob", "007"], [1.0, 2.0, 3]])),
        "item": draw(st.sampled_from([[7, 8, 2**53 + 1], ["x", "y", "日本"]])),
        "rating": [1, 5, 0, -1, 2.5, None],
        "timestamp": draw(st.sampled_from([[1, 2**62, -7], ["2020-01-01", "2021-05-05T10:00Z"]])),
    }
    keys = ["user", "item", *draw(st.lists(st.sampled_from(["rating", "timestamp"]), unique=True))]
    rows = draw(st.lists(st.fixed_dictionaries({key: st.sampled_from(good[key]) for key in keys}),
                         min_size=1, max_size=6))  # fmt: skip
    is_odd = draw(st.integers(0, 2)) == 0
    if is_odd:
        row = draw(st.sampled_from(rows))
        key = draw(st.sampled_from(keys))
        if draw(st.integers(0, 4)):
            row[key] = draw(NESTED)
        else:
            del row[key]
    return rows, is_odd


#: A line with a key twice.
TWICE = '\n{"user": 1, "item": 7, "user": 2}'


@cases("files", 0.08)
@given(
    case=json_rows(),
    blank=st.booleans(),
    tail=st.sampled_from(["", "\n", "\n", '\n{"user', "\nnull", TWICE]),
    start=st.sampled_from(["", "", "\ufeff"]),
    stem=st.sampled_from(STEMS),
)
@example(
    case=([{"user": True, "item": 1}, {"user": 2, "item": 1}], True),
    blank=False, tail="", start="", stem="log",
)  # fmt: skip
def test_json_lines(
    folder: Path,
    round_: int,
    case: tuple[list[dict[str, Any]], bool],
    blank: bool,
    tail: str,
    start: str,
    stem: str,
) -> None:
    rows, is_odd = case
    text = start + ("\n\n" if blank else "\n").join(json.dumps(row) for row in rows) + tail

    def expected() -> Events:
        if tail.strip():
            raise WrongError("the last line is no object, or has a key twice")
        present = {key for row in rows for key in row}
        if not {"user", "item"} <= present:
            raise WrongError("a column is missing")
        named = [Row(row.get("user"), row.get("item"), row.get("rating"), row.get("timestamp"))
                 for row in rows]  # fmt: skip
        events = _oracle.events_of(
            named, rated="rating" in present, timed="timestamp" in present, from_text=False
        )
        odd = [
            value for row in rows for key, value in row.items() if key in ("rating", "timestamp")
        ]
        if any(isinstance(value, str | bool) for value in odd) and is_odd:
            raise UnclearError("numbers as text")
        return events

    judge(read(folder, f"{stem}.jsonl", text.encode(), {}), expected, most=len(rows))


@cases("files", 0.08)
@given(table=tables(), data=st.data())
def test_parquet(folder: Path, round_: int, table: Table, data: st.DataObject) -> None:
    packed = io.BytesIO()
    try:
        table.polars().write_parquet(packed)
    except PolarsError:
        return  # polars itself cannot write such a column
    raw, is_hurt = packed.getvalue(), False
    if data.draw(st.integers(0, 2)) == 0:
        raw, is_hurt = data.draw(damaged(raw))

    def expected() -> Events:
        if is_hurt:
            raise UnclearError("damaged")
        return table.expected()

    stem = data.draw(st.sampled_from(STEMS))
    judge(read(folder, f"{stem}.parquet", raw, {}), expected, most=len(raw))


#: Kinds of times by what they can stand in one log with.
FAMILIES = [["int", "int32", "float"], ["micro", "milli"], ["utc", "zone"], ["dates"], ["text"]]


@cases("files", 0.02)
@given(data=st.data())
def test_folders_of_parquet(tmp_path_factory: Any, round_: int, data: st.DataObject) -> None:
    place = tmp_path_factory.mktemp("l[x]g")
    chosen = [data.draw(st.sampled_from(list(TIMES))) for _ in range(data.draw(st.integers(1, 3)))]
    rows = []
    for number, name in enumerate(chosen):
        times = data.draw(st.lists(st.sampled_from(TIMES[name].values), min_size=1, max_size=2))
        table = Table(
            {"user": [number] * len(times), "item": [*range(len(times))], "timestamp": times},
            {"user": IDS["int64"], "item": IDS["int64"], "timestamp": TIMES[name]},
        )
        table.polars().write_parquet(place / f"{number}.parquet")
        rows += [Row(number, item, None, time) for item, time in enumerate(times)]

    def expected() -> Events:
        if sum(any(name in family for name in chosen) for family in FAMILIES) > 1:
            raise WrongError("times of several kinds")
        if "float" in chosen and 2**62 in [row.time for row in rows]:
            raise WrongError("an integer among floats that is not exact as one")
        return _oracle.events_of(rows, rated=False, timed=True, from_text=False)

    judge(outcome_of("files", lambda: read_interactions(place)), expected, most=len(rows))
