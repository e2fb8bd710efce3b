"""Files as they are, tables as they come, and ratings that mean something."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from transcf.data import as_interactions, leave_one_out, open_data, read_interactions, synthesize
from transcf.errors import DataError, ParameterError

PAIRS = [(1, "x"), (2, "y")]
KEEP_ALL = float("-inf")


def pairs_of(log):
    return log.to_frame().select("user_id", "item_id").rows()


def sentence(call, *words, **more):
    """Return the one sentence that a call is refused with."""
    with pytest.raises((DataError, ParameterError)) as caught:
        call(*words, **more)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


@pytest.mark.parametrize(
    "content",
    [
        b"user,item\n1,x\n2,y\n\n\n",
        b"user,item\r\n1,x\r\n\r\n2,y\r\n\r\n",
        b"\n\nuser,item\n1,x\n   \n2,y\n",
        b"user::item\n1::x\n2::y\n",
        b"user|item\n1|x\n2|y\n",
        b"user,item\r1,x\r2,y\r",
        b"\xef\xbb\xbfuser;item\n1;x\n2;y",
        b'user,item,note\n1,x,"a\n\nb"\n\n2,y,\n\n',
    ],
)
def test_text_as_it_is(tmp_path, content):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    assert pairs_of(read_interactions(path)) == PAIRS


@pytest.mark.parametrize(
    ("content", "reading"),
    [
        (b"1,x\n2,y\n", {}),
        (b"\xef\xbb\xbf1,x\n2,y\n\n", {}),
        (b"\n1::x::4\n2::y::5\n", {"rating": 3}),
        (b"x\t9\t1\ny\t8\t2\n", {"user": 3, "item": 1, "timestamp": "2"}),
        (b"1#x\n2#y\n", {"separator": "#"}),
        (b"1 and x\n2 and y\n", {"separator": " and "}),
    ],
)
def test_files_without_a_header(tmp_path, content, reading):
    path = tmp_path / "log.dat"
    path.write_bytes(content)
    log = read_interactions(path, header=False, **reading)
    assert pairs_of(log) == PAIRS
    assert (log.ratings is not None) == ("rating" in reading)
    assert (log.timestamps is not None) == ("timestamp" in reading)


def test_columns_by_number():
    frame = pl.DataFrame({"what": ["x", "y"], "who": [1, 2]})
    assert pairs_of(read_interactions(frame, user=2, item=1)) == PAIRS
    assert "no column 3; they are counted from 1 to 2" in sentence(
        read_interactions, frame, user=3, item=1
    )
    assert "no column 0" in sentence(read_interactions, frame, user=0, item=1)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_encodings(tmp_path, encoding, name):
    path = tmp_path / name
    text = "user,item\nJosé,1\n" if name == "log.csv" else '{"user": "José", "item": 1}\n'
    path.write_text(text, encoding=encoding)
    assert pairs_of(read_interactions(path, encoding=encoding)) == [("José", 1)]
    assert "line 1 is not utf-32 text" in sentence(read_interactions, path, encoding="utf-32")


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"encoding": "klingon"}, "encoding='klingon' is not known"),
        ({"encoding": "base64"}, "encoding='base64' is not known"),
        ({"separator": ""}, "separator='' is not allowed"),
        ({"separator": "\n"}, "is not allowed"),
        ({"header": "no"}, "header='no' is not allowed"),
    ],
)
def test_forms_that_no_file_has(tmp_path, form, message):
    path = tmp_path / "log.csv"
    path.write_text("user,item\n1,2\n")
    assert message in sentence(read_interactions, path, **form)


def test_forms_are_for_files():
    frame = pl.DataFrame({"user": [1], "item": [1]})
    assert "only be given for files" in sentence(read_interactions, frame, header=False)


def test_times_as_programs_write_them(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item,ts\n1,x,1600000000.0\n2,y,1600000001\n")
    assert read_interactions(path).timestamps.tolist() == [1_600_000_000, 1_600_000_001]
    path.write_text("user,item,ts\n1,x,1600000000.0\n2,y,1600000001.5\n")
    assert "line 3 of column 'ts' is 1600000001.5 and is not a whole" in sentence(
        read_interactions, path
    )


def test_floats_beyond_exactness_are_said_to_be_so():
    frame = pl.DataFrame({"user": [9007199254740994.0], "item": [1]})
    said = sentence(read_interactions, frame)
    assert "row 1 of column 'user' is 9007199254740994.0 and is too large to be exact" in said


@pytest.fixture
def parts(tmp_path):
    folder = tmp_path / "parts"
    (folder / "day=2").mkdir(parents=True)
    pl.DataFrame({"user": [1], "item": ["x"]}).write_parquet(folder / "a.parquet")
    pl.DataFrame({"user": [2], "item": ["y"]}).write_parquet(folder / "day=2" / "b.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def test_folders_patterns_and_lists(parts, monkeypatch):
    files = [parts / "a.parquet", parts / "day=2" / "b.parquet"]
    for source in (parts, str(parts), f"{parts}/**/*.parquet", files, tuple(map(str, files))):
        assert pairs_of(read_interactions(source)) == PAIRS
        assert pairs_of(as_interactions(source)) == PAIRS
    assert pairs_of(open_data(parts, user="user")) == PAIRS
    monkeypatch.setenv("HOME", str(parts))
    assert (
        pairs_of(open_data("~/a.parquet")) == pairs_of(read_interactions("~/a.par*")) == PAIRS[:1]
    )
    assert "No file is called" in sentence(open_data, f"{parts}/*.csv")


def test_files_that_do_not_go_together(parts, tmp_path):
    odd = parts / "c.parquet"
    pl.DataFrame({"user": ["z"], "item": ["y"]}).write_parquet(odd)
    assert "'user' holds Int64 in" in sentence(read_interactions, parts)
    pl.DataFrame({"user": [3], "thing": ["y"]}).write_parquet(odd)
    assert "has no column 'item', which" in sentence(read_interactions, parts)
    (parts / "d.csv").write_text("user,item\n1,2\n")
    assert "of several kinds (a.parquet, d.csv)" in sentence(read_interactions, parts)


def test_the_line_is_that_of_the_right_file(tmp_path):
    one, other = tmp_path / "1.csv", tmp_path / "2.csv"
    one.write_text("user,item,ts\n1,x,2020-01-01\n\n")
    other.write_text("user,item,ts\n\n2,y,7\n")
    said = sentence(read_interactions, [one, other])
    assert said.startswith(f"{other}: line 3 of column 'ts' is '7', a number among dates")
    other.write_text("ts,item,user\n2020-01-02,y,2\n")
    assert pairs_of(read_interactions([one, other])) == PAIRS


@pytest.mark.parametrize(
    "path", ["a" * 5000, "a" * 300 + ".csv", "a\0.csv", "~nobody-at-all/x.csv"]
)
def test_paths_that_cannot_be(path):
    for read in (read_interactions, open_data, as_interactions, leave_one_out):
        assert len(sentence(read, path)) < 500


@pytest.mark.parametrize(
    "thing",
    [
        5, None, {"user": [1]}, np.eye(3), pd.Series([1, 2]), pl.Series([1, 2]), [1, 2], {1, 2},
        [("ann", 7, 3)], object(), pd.Series([1, 2], name="user"), leave_one_out(synthesize()),
    ],
)  # fmt: skip
def test_what_is_no_log_is_told_about_read_interactions(thing):
    assert "`read_interactions`" in sentence(as_interactions, thing)


def test_a_log_stays_as_it_is():
    log = synthesize(users=20, items=20, interactions=100)
    assert as_interactions(log) is log
    assert len(as_interactions("synthetic")) == 20_000


@pytest.mark.parametrize(
    "matrix",
    [sp.csr_array(np.array([[1j, 2]])), sp.coo_array(np.array([1, 0, 2]))],
)
def test_matrices_of_other_things(matrix):
    assert "real numbers as values" in sentence(as_interactions, matrix)


@pytest.mark.parametrize(
    "ratings",
    [
        pl.Series([[1], [2]]),
        pl.Series([{"a": 1}, {"a": 2}]),
        pl.Series([datetime(2020, 1, 1), datetime(2020, 1, 2)]),
        pl.Series([datetime(2020, 1, 1), datetime(2020, 1, 2)]).dt.date(),
        pl.Series([timedelta(1), timedelta(2)]),
        pl.Series([1j, 2j]),
    ],
)
def test_columns_that_are_no_ratings(ratings):
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": ratings})
    assert "a rating is a number" in sentence(read_interactions, frame)


@pytest.mark.parametrize("ratings", [np.array([1j, 2]), pd.to_datetime(["2020-01-01"] * 2)])
def test_columns_of_pandas_that_are_no_ratings(ratings):
    frame = pd.DataFrame({"user": [1, 2], "item": [1, 2], "rating": ratings})
    assert "a rating is a number" in sentence(read_interactions, frame)


@pytest.mark.parametrize(
    "categories", [pl.Series([b"a"]), pl.Series([1j]), pl.Series([{"a": 1}]), pl.Series([[[1]]])]
)
def test_columns_that_are_no_categories(categories):
    frame = pl.DataFrame({"user": [1], "item": [1], "category": categories})
    assert "a category is text or a number" in sentence(read_interactions, frame)


def test_names_of_pandas_columns():
    frame = pd.DataFrame(np.array([[7, 1], [8, 2]]))
    assert pairs_of(read_interactions(frame, user=2, item=1)) == [(1, 7), (2, 8)]
    frame = pd.DataFrame([[1, 7, 8]], columns=["user", "item", "item"])
    assert "names column 'item' twice" in sentence(read_interactions, frame, item="item")
    assert "is no event log" in sentence(read_interactions, pl.scan_csv("nowhere.csv"))


def test_ratings_that_have_to_be_there():
    frame = pl.DataFrame({"user": [1], "item": [1]})
    assert "min_rating=3 cannot be met" in sentence(read_interactions, frame, min_rating=3)


FAR = [
    pl.Series([2**62, 0]).cast(pl.Datetime("ms")),
    pl.Series([2**62, 0]).cast(pl.Datetime("us")),
    pl.Series([2**30, 0], dtype=pl.Int32).cast(pl.Date),
    pl.Series(["0000-01-01", "2020-01-01"]),
]


@pytest.mark.parametrize("times", FAR)
def test_dates_out_of_range(tmp_path, times):
    path = tmp_path / "log.parquet"
    pl.DataFrame({"user": [1, 2], "item": [1, 2], "ts": times}).write_parquet(path)
    said = sentence(read_interactions, path)
    assert "row 1 of column 'ts' is a date beyond the years 1 to 9999" in said


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_of_pandas_in_any_unit(unit):
    dates = np.array(["2020-01-01", "2020-01-02"], dtype=f"datetime64[{unit}]")
    frame = pd.DataFrame({"user": [1, 2], "item": [1, 2], "ts": dates})
    log = read_interactions(frame)
    assert log.to_frame()["timestamp"].to_list() == [datetime(2020, 1, 1), datetime(2020, 1, 2)]
    frame["ts"] = np.array(["NaT", "2020-01-01"], dtype=dates.dtype)
    assert "row 1 of column 'ts' has no time" in sentence(read_interactions, frame)
    if unit != "ns":
        frame["ts"] = np.array([2**54, 0], dtype=np.int64).view("datetime64[s]")
        assert "beyond the years" in sentence(read_interactions, frame)


def test_zones_are_brought_together():
    cet = timezone(timedelta(hours=1))
    times = [datetime(2020, 1, 1, 1, tzinfo=cet), datetime(2020, 1, 1, tzinfo=UTC)]
    frame = pd.DataFrame({"user": [1, 2], "item": [1, 2], "ts": pd.Series(times, dtype=object)})
    log = read_interactions(frame)
    assert log.to_frame()["timestamp"].to_list() == [datetime(2020, 1, 1)] * 2
    frame["ts"] = pd.Series([times[0], datetime(2020, 1, 1)], dtype=object)
    assert "row 2 of column 'ts' has no time zone" in sentence(read_interactions, frame)
    frame["ts"] = pd.Series([times[0], 5], dtype=object)
    assert "column 'ts' mixes Timestamp and int" in sentence(
        read_interactions, frame
    ) or "column 'ts' mixes datetime and int" in sentence(read_interactions, frame)


RATED = pl.DataFrame(
    {"user": [1, 1, 2, 3, 4], "item": [1, 2, 1, 9, 2], "rating": [0.0, 4, -1, 2.5, None]}
)


def test_a_rating_of_zero_or_below_is_no_sign_of_liking():
    log = read_interactions(RATED)
    assert pairs_of(log) == [(1, 2), (3, 9), (4, 2)]
    assert log.users.series.to_list() == [1, 3, 4]
    assert log.report.to_list()[-1] == {
        "step": "leave out ratings of 0 or below", "interactions": 2, "users": 1, "items": 1
    }  # fmt: skip
    assert log.ratings.tolist()[:2] == [4.0, 2.5]
    assert len(read_interactions(RATED, min_rating=KEEP_ALL)) == 5


def test_another_bar_of_ratings(tmp_path):
    log = read_interactions(RATED, min_rating=2.5)
    assert pairs_of(log) == [(1, 2), (3, 9)]
    step = log.report.to_list()[-1]
    assert (step["step"], step["without_rating"]) == ("leave out ratings below 2.5", 1)
    assert "All 5 ratings are below 9" in sentence(read_interactions, RATED, min_rating=9)
    for bar in ("3", float("nan"), True):
        assert "it must be a number" in sentence(read_interactions, RATED, min_rating=bar)
    saved = leave_one_out(synthesize(users=30, items=20, interactions=300)).save(tmp_path / "s")
    whole = open_data(saved)
    assert len(open_data(saved, min_rating=4)) == int((whole.ratings >= 4).sum())


def test_zeros_of_a_matrix_are_left_out():
    matrix = sp.csr_array((np.array([0, 1, 3]), ([0, 0, 1], [0, 1, 1])), shape=(2, 2))
    assert as_interactions(matrix).to_frame().rows() == [(0, 1, 1.0), (1, 1, 3.0)]


def test_one_of_a_kind_is_written_so():
    assert (
        repr(as_interactions([(1, 2)]))
        == "Interactions(1 user, 1 item, 1 interaction, density 100 %)"
    )


def test_lines_of_blanks_before_the_header(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("  \n\n   \nuser\titem\n1\t7\n\t8\n")
    assert f"{path}: line 6 of column 'user' has no id" in sentence(read_interactions, path)
    path.write_text("  \n\n   \nuser\titem\n1\t7\n2\t8\n")
    assert pairs_of(read_interactions(path)) == [(1, 7), (2, 8)]


@pytest.mark.parametrize("odd", ["[]", "true", "{}", "1.5"])
def test_other_things_among_text_ids_of_json(tmp_path, odd):
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"user": "ann", "item": 1}}\n{{"user": {odd}, "item": 1}}\n')
    said = sentence(read_interactions, path)
    assert f"column 'user' mixes text and other things (line 2 has {odd})" in said


def test_the_same_name_inside_of_a_value_is_no_id(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"user": "ann", "item": 1, "more": {"user": 5}}\n')
    assert pairs_of(read_interactions(path)) == [("ann", 1)]


def test_integers_that_became_floats_on_the_way(tmp_path):
    """2^53 + 1 among floats is read as 2^53: another id."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"user": 9007199254740993, "item": 1}\n{"user": 1.0, "item": 1}\n')
    assert "too large to be exact as a float" in sentence(read_interactions, path)


def test_hidden_folders_are_not_read(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n1,2\n")
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "_hidden" / "b.csv").touch()
    assert len(read_interactions(tmp_path)) == 1


def test_bars_beyond_all_floats():
    assert "it must be a number" in sentence(read_interactions, RATED, min_rating=10**400)


def test_a_quoted_line_end_in_the_first_line(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text('"two\nlines"\t1\r\nbob\t2\r\n', newline="")
    log = read_interactions(path, header=False)
    assert pairs_of(log) == [("bob", 2), ("two\nlines", 1)]
    path.write_text('user::item\n"ann::1\nbob::2\n')
    assert pairs_of(read_interactions(path)) == [('"ann', 1), ("bob", 2)]
    path.write_text(
        'user::item::6" or 7"::a "note\r\nann::1::x::"y\r\nbob::2::x::y\r\n', newline=""
    )
    assert pairs_of(read_interactions(path)) == [("ann", 1), ("bob", 2)]
