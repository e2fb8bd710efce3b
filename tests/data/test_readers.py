"""Every form of input gives the same log; every bad input gives one clear sentence."""

import gzip
import json
import subprocess
import sys
from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from transcf.data import pair_columns, read_interactions
from transcf.errors import DataError

FRAME = pl.DataFrame(
    {
        "userId": ["ann", "bob", "ann"],
        "movieId": [7, 9, 9],
        "rating": [3.0, 4.5, 1.0],
        "timestamp": [30, 20, 10],
    }
)
EXPECTED = [("ann", 7, 3.0, 30), ("ann", 9, 1.0, 10), ("bob", 9, 4.5, 20)]


def _write(path, ending):
    plain = path / f"log.{ending.removesuffix('.gz')}"
    if ".csv" in plain.name:
        FRAME.write_csv(plain)
    elif ".jsonl" in plain.name:
        FRAME.write_ndjson(plain)
    elif ".parquet" in plain.name:
        FRAME.write_parquet(plain)
    else:
        FRAME.write_csv(plain, separator="\t")
    if not ending.endswith(".gz"):
        return plain
    packed = path / f"log.{ending}"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    return packed


@pytest.mark.parametrize("packing", ["", ".gz"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "dat", "jsonl", "parquet"])
def test_files(tmp_path, ending, packing):
    log = read_interactions(_write(tmp_path, ending + packing))
    assert log.to_frame().rows() == EXPECTED


class Stream:
    """Something that only speaks the Arrow interface."""

    def __arrow_c_stream__(self, requested_schema=None):
        return FRAME.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "table",
    [
        FRAME,
        FRAME.lazy(),
        pd.DataFrame(FRAME.to_dict(as_series=False)),
        pa.Table.from_pydict(FRAME.to_dict(as_series=False)),
        Stream(),
    ],
    ids=["polars", "lazy", "pandas", "pyarrow", "arrow stream"],
)
def test_tables(table):
    assert read_interactions(table).to_frame().rows() == EXPECTED


WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
import pandas as pd
from transcf.data import read_interactions
log = read_interactions(pd.DataFrame({
    "user": ["a", "b"],
    "item": pd.Categorical(["x", "y"]),
    "rating": pd.array([1, 2], dtype="Int64"),
    "date": pd.to_datetime(["2020-01-01", "2020-01-02T01:00:00"], format="ISO8601")
        .tz_localize("CET"),
}))
print(log.to_frame().rows())
"""


def test_pandas_without_pyarrow():
    answer = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYARROW], capture_output=True, text=True, check=True
    )
    expected = [
        ("a", "x", 1.0, datetime(2019, 12, 31, 23)),
        ("b", "y", 2.0, datetime(2020, 1, 2)),
    ]
    assert answer.stdout.strip() == repr(expected)


def test_sparse_matrix_values_are_ratings_unless_all_one():
    matrix = sp.csr_array(np.array([[0, 2.0], [5.0, 0], [0, 1.0]]))
    assert read_interactions(matrix).to_frame().rows() == [(0, 1, 2.0), (1, 0, 5.0), (2, 1, 1.0)]
    assert read_interactions(matrix > 0).ratings is None
    assert read_interactions(sp.csr_matrix(matrix > 1)).users.series.to_list() == [0, 1]


@pytest.mark.parametrize(
    "header",
    ["User-ID;ISBN;Book-Rating", "UID|Item|Stars", "user,asin,score", "Client ID,SKU,Rating"],
)
def test_usual_names_and_separators_are_found(tmp_path, header):
    separator = next(mark for mark in ";|," if mark in header)
    path = tmp_path / "log.csv"
    path.write_text("\n".join([header, separator.join(["1", "034545104X", "5"])]))
    assert read_interactions(path).to_frame().rows() == [(1, "034545104X", 5.0)]


def test_less_usual_names_give_way_to_usual_ones():
    shop = pl.DataFrame({"customer": [1], "sku": ["a"], "when": ["2020-02-03"]})
    assert read_interactions(shop).to_frame().rows() == [(1, "a", datetime(2020, 2, 3))]
    sessions = pl.DataFrame({"session_id": [3], "item_id": [4], "played_at": [5]})
    assert read_interactions(sessions).to_frame().rows() == [(3, 4, 5)]
    assert read_interactions(sessions.with_columns(user_id=1)).to_frame().rows() == [(1, 4, 5)]
    both = shop.with_columns(product_id=7, time=5)
    assert read_interactions(both).to_frame().rows() == [(1, 7, 5)]
    with pytest.raises(DataError, match="several columns"):
        read_interactions(shop.with_columns(stockcode=7))


def test_columns_can_be_named(tmp_path):
    frame = pl.DataFrame({"who": [1], "user": [2], "what": ["x"], "when": ["2020-02-03"]})
    log = read_interactions(frame, user="who", item="what", timestamp="when")
    assert log.to_frame().rows() == [(1, "x", datetime(2020, 2, 3))]


def test_leading_zeros_are_kept(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item\n007,1\n8,2\n")
    log = read_interactions(path)
    assert log.users.series.to_list() == ["007", "8"]
    assert log.items.series.to_list() == [1, 2]


def test_whole_floats_are_integers_and_typed_text_stays_text():
    frame = pl.DataFrame({"user": [1.0, 2.0], "item": ["1", "2"]})
    log = read_interactions(frame)
    assert log.users.series.to_list() == [1, 2]
    assert log.items.series.to_list() == ["1", "2"]


@pytest.mark.parametrize(
    "text",
    [
        "2020-02-03T04:05:06.5Z",
        "2020-02-03 04:05:06.5",
        "2020-02-03T06:05:06.500+02:00",
        "2020-02-02T23:05:06.5-0500",
        "2020-02-03 04:05:06.5 UTC",
    ],
)
def test_iso_times_are_microseconds_since_1970(text):
    log = read_interactions(pl.DataFrame({"user": [1], "item": [1], "ts": [text]}))
    moment = datetime(2020, 2, 3, 4, 5, 6, 500_000, tzinfo=UTC)
    assert log.timestamps[0] == round(moment.timestamp() * 1e6)
    assert log.times_are_dates


def test_dates_and_integers_as_times():
    dates = read_interactions(pl.DataFrame({"user": [1], "item": [1], "date": [date(1970, 1, 2)]}))
    assert dates.timestamps.tolist() == [86_400_000_000]
    texts = read_interactions(pl.DataFrame({"user": [1], "item": [1], "time": ["123"]}))
    assert texts.timestamps.tolist() == [123]
    assert not texts.times_are_dates


def test_categories_come_from_a_column_of_values_or_lists():
    frame = pl.DataFrame({"user": [1, 2], "item": [5, 4], "genre": [["b", "a"], ["a"]]})
    expected = [(4, "a"), (5, "a"), (5, "b")]
    assert read_interactions(frame).categories.rows() == expected
    assert read_interactions(frame.explode("genre")).categories.rows() == expected


BAD_TABLES = {
    "missing column": (
        {"user": [1], "thing": [2]},
        "no item column .* columns are 'user', 'thing'",
    ),
    "two columns": ({"user": [1], "uid": [1], "item": [2]}, r"several columns .*'user', 'uid'"),
    "no rows": ({"user": [], "item": []}, "the table is empty"),
    "null id": ({"user": [1, None], "item": [1, 2]}, "row 2 of column 'user' has no id"),
    "empty id": ({"user": ["a", ""], "item": [1, 2]}, "row 2 of column 'user' is an empty id"),
    "blanks": ({"user": ["a", "b "], "item": [1, 2]}, "row 2 .* 'b ', with blanks around it"),
    "fraction": ({"user": [1.0, 1.5], "item": [1, 2]}, "row 2 .* 1.5 and is not a whole number"),
    "NaN id": ({"user": [1.0, float("nan")], "item": [1, 2]}, "row 2 of column 'user' is nan"),
    "date id": ({"user": [date(2020, 1, 1)], "item": [1]}, "holds Date; ids are integers or text"),
    "rating": ({"user": [1, 2], "item": [1, 2], "rating": ["3", "x"]}, "row 2 .*is 'x'; a rating"),
    "time": ({"user": [1, 2], "item": [1, 2], "ts": ["2020-01-01", "soon"]}, "row 2 .*is 'soon'"),
    "month": ({"user": [1], "item": [1], "ts": ["2020-13-01"]}, "row 1 .*is '2020-13-01'; a time"),
    "two kinds of time": ({"user": [1, 2], "item": [1, 2], "ts": ["5", "2020-01-01"]}, "row 2"),
    "null time": ({"user": [1, 2], "item": [1, 2], "ts": [1, None]}, "row 2 .* has no time"),
    "half time": ({"user": [1], "item": [1], "ts": [1.5]}, "row 1 .* is 1.5"),
    "big id": ({"user": pl.Series([2**63], dtype=pl.UInt64), "item": [1]}, "fit into 64 bits"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables_get_one_sentence(name):
    columns, message = BAD_TABLES[name]
    with pytest.raises(DataError, match=message) as caught:
        read_interactions(pl.DataFrame(columns))
    assert "\n" not in str(caught.value)


BAD_FILES = {
    "zero.csv": (b"", "is empty"),
    "header.csv": (b"user,item\n", "is empty: it has columns but no rows"),
    "blank.csv": (b"  \n", "is empty"),
    "column.csv": (b"a,b\n1,2\n", "no user column .* columns are 'a', 'b'"),
    "null.csv": (b"user,item\n1,2\n,3\n", "line 3 of column 'user' has no id"),
    "quoted.csv": (b'user,item\n1,2\n"",3\n', "line 3 of column 'user'"),
    "blanks.csv": (b"user,item\n1,x\n2, y\n", "line 3 of column 'item' is ' y', with blanks"),
    "rating.csv": (b"user,item,rating\n1,2,3\n1,3,good\n", "line 3 of column 'rating' is 'good'"),
    "time.csv": (b"user,item,ts\n1,2,3\n1,3,noon\n", "line 3 of column 'ts' is 'noon'"),
    "binary.csv": (b"user,item\n\x00\x01\x02,1\n", "binary data"),
    "latin.csv": (
        b"user,item\nJos\xe9,1\n",
        "line 2 is not utf-8 text; .* --read encoding=latin-1",
    ),
    "ragged.csv": (b"user,item\n1,2\n3,4,5\n", "line 3 has 3 columns, but the first line has 2"),
    "not.csv.gz": (b"user,item\n1,2\n", "no intact gzip file"),
    "cut.csv.gz": (gzip.compress(b"user,item\n1,2\n" * 99)[:40], "no intact gzip file"),
    "gzipped.csv": (gzip.compress(b"user,item\n1,2\n"), "is gzipped: rename it to gzipped.csv.gz"),
    "twice.csv.gz": (gzip.compress(gzip.compress(b"user,item\n1,2\n")), "is gzipped twice"),
    "text.parquet": (b"user,item\n1,2\n", "is not a Parquet file"),
    "cut.parquet": (b"PAR1 and no more", "cannot be read as Parquet"),
    "parquet.csv": (b"PAR1....", "is a Parquet file: rename it to parquet.parquet"),
    "text.jsonl": (b'{"user": 1, "item": 2}\nhello\n', "line 2 is not a JSON object: 'hello'"),
    "mixed.jsonl": (
        b'{"user": "a", "item": 2}\n{"user": 1, "item": 2}\n',
        "'user' mixes text and other things .line 2 has 1",
    ),
    "deep.jsonl": (
        b'{"user": 1, "item": ' + b"[" * 5000 + b"]" * 5000 + b"}\n",
        "line 1 is nested too deeply",
    ),
    "lone-return.csv": (b"user,item\rfoo,x\n1,2,3\n", "first line cannot be read as names"),
    "numbers.csv": (
        b"1,31,2.5\n1,10,3.0\n",
        "or say header=False .--read header=no. if the first line",
    ),
    "blank-between.csv": (b"user,item\n\n1,2\n  \n3,\n\n", "line 5 of column 'item' has no id"),
    "multiline.csv": (b'user,item,x\n1,2,"a\n\nb"\n,3,c\n', "line 5 of column 'user' has no id"),
    "mixed-times.jsonl": (
        b'{"user": 1, "item": 2, "ts": "2020-01-01"}\n\n{"user": 1, "item": 3, "ts": 5}\n',
        "line 3 of column 'ts' is '5', a number among dates",
    ),
    "log.xls": (b"x", "ending that is not known"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_get_one_sentence(tmp_path, name):
    content, message = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_interactions(path)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="There is no file"):
        read_interactions(tmp_path / "none.csv")
    with pytest.raises(DataError, match="is a folder"):
        read_interactions(tmp_path)


def test_bad_arguments():
    with pytest.raises(DataError, match="no column 'who'; its columns are"):
        read_interactions(FRAME, user="who")
    with pytest.raises(DataError, match="cannot be both the user and the item"):
        read_interactions(FRAME, user="userId", item="userId")
    with pytest.raises(DataError, match=r"Data of type dict is no event log: .*`read_interact"):
        read_interactions({"user": [1]})


def test_mixed_objects_in_pandas():
    frame = pd.DataFrame({"user": pd.Series(["a", 1], dtype=object), "item": [1, 2]})
    with pytest.raises(DataError, match=r"'user' mixes int and str \(row 2 is 1\)"):
        read_interactions(frame)


def test_pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("user,item\n2,b\n1,a\n2,b\n")
    tables = [[(2, "b"), (1, "a"), (2, "b")], path, pl.read_csv(path), pd.read_csv(path)]
    for pairs in tables:
        users, items = pair_columns(pairs)
        assert users.to_list() == [2, 1, 2]
        assert items.to_list() == ["b", "a", "b"]
    assert [len(column) for column in pair_columns([])] == [0, 0]
    numbers, _ = pair_columns([(np.int64(3), "x")])
    assert numbers.to_list() == [3]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(1, "a"), ("x", "b")], "mixes int and str"),
        ([(1, "a"), 5], "Pair 2 is 5"),
        ([(1, None)], "row 1 of column 'item' has no id"),
    ],
)
def test_bad_pairs(pairs, message):
    with pytest.raises(DataError, match=message):
        pair_columns(pairs)


def test_json_numbers_inside_of_text_are_no_mixture(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"user": "1", "item": "2"}) + "\n")
    assert read_interactions(path).to_frame().rows() == [("1", "2")]


def test_missing_ratings_are_counted():
    frame = pl.DataFrame({"user": [1, 2, 3], "item": [1, 2, 3], "rating": [1.0, None, np.nan]})
    assert read_interactions(frame).report.count("read", "without_rating") == 2


def test_a_name_over_two_columns_is_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text('user,item,rating,"rating"\r\n1,2,3,4\r\n')
    with pytest.raises(DataError, match="names column 'rating' twice"):
        read_interactions(path)
    path.write_text("user,item,,\n1,2,,\n")
    assert len(read_interactions(path)) == 1


def test_messages_say_how_to_name_a_column(tmp_path):
    frame = pl.DataFrame({"who": [1], "item": [1]})
    with pytest.raises(DataError, match=r"read_interactions\(.* user=.* \(in a shell: --read"):
        read_interactions(frame)
