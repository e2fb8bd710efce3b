"""Types of columns are decided from all values, and an existing path is never a pattern."""

import polars as pl
import pytest

from transcf.data import leave_one_out, open_data, prepare_parts, read_interactions, synthesize
from transcf.data.splitters import open_split
from transcf.errors import DataError

#: More rows than a reader samples.
MANY = 2_000


def _log(tmp_path, column, first, last, others="user,item"):
    """Write a log whose last rows hold another kind of value than all rows before."""
    columns = [*others.split(","), column]
    rows = [[n, n, first] for n in range(MANY)] + [[n, n, last] for n in range(MANY, MANY + 5)]
    rows = [dict(zip(columns, row, strict=True)) for row in rows]
    path = tmp_path / "log.csv"
    lines = [",".join(columns), *(",".join(map(str, row.values())) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_ratings_may_become_fractions(tmp_path):
    log = read_interactions(_log(tmp_path, "rating", 5, 4.5))
    assert sorted(set(log.ratings.tolist())) == [4.5, 5.0]
    assert len(log) == MANY + 5


def test_integer_ids_may_become_text(tmp_path):
    log = read_interactions(_log(tmp_path, "item", 7, "abc", "user,rating"))
    assert log.items.series.to_list() == ["7", "abc"]


@pytest.mark.parametrize("first", ["1", "2020-01-01", "true", "٣", "\uff11\uff12", "1.5", ""])
@pytest.mark.parametrize("last", ["word", "\uff14", "-1.5", '"a, b"'])
def test_unused_columns_hold_anything(tmp_path, first, last):
    assert len(read_interactions(_log(tmp_path, "title", first, last))) == MANY + 5


@pytest.mark.parametrize(("first", "last"), [("1600000000", "1600000001.0"), ("7", "8.0")])
def test_times_may_become_floats(tmp_path, first, last):
    log = read_interactions(_log(tmp_path, "timestamp", first, last))
    assert log.timestamps.max() == int(float(last))


@pytest.mark.parametrize(
    ("column", "first", "last"),
    [
        ("rating", "5", "good"),
        ("rating", "5", "٣"),
        ("timestamp", "7", "2020-01-01"),
        ("timestamp", "7", "\uff11\uff12"),
        ("timestamp", "2020-01-01", "2020-01-01T10:00+٠٢:00"),
        ("timestamp", "2020-01-01", "\uff12\uff10\uff12\uff10-01-01"),
    ],
)
def test_a_late_value_that_does_not_fit_is_named(tmp_path, column, first, last):
    with pytest.raises(DataError, match=f"line {MANY + 2:,} of column '{column}' is .*{last[-3:]}"):
        read_interactions(_log(tmp_path, column, first, last))


def test_digits_of_other_scripts_are_text_ids(tmp_path):
    log = read_interactions(_log(tmp_path, "item", "١٢", "\uff11\uff12", "user,rating"))
    assert log.items.is_text


@pytest.mark.parametrize("value", [" 4.5", "4.5 ", " 4.5 "])
def test_blanks_around_numbers_do_not_matter(tmp_path, value):
    log = read_interactions(_log(tmp_path, "rating", value, "5"))
    assert log.ratings.min() == 4.5
    times = read_interactions(_log(tmp_path, "time", value.replace(".", ""), "50"))
    assert set(times.timestamps.tolist()) == {45, 50}


def test_the_movies_of_movielens_may_have_titles_of_any_kind(tmp_path):
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,1,4.0,7\n1,200,3,8\n")
    rows = [f"{n},{1900 + n},Drama|War" for n in range(MANY)] + [f"{MANY},Up,(no genres listed)"]
    (tmp_path / "movies.csv").write_text("\n".join(["movieId,title,genres", *rows]))
    assert open_data(tmp_path).category_names == ("Drama", "War")


#: A name with pattern characters, and a name that it matches as a pattern.
NAMES = [("ev[1]", "ev1"), ("q?", "qx"), ("a*", "abc"), ("b{c}", "bc"), ("[!x]", "y")]


@pytest.mark.parametrize(("name", "decoy"), NAMES)
@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl", "csv.gz"])
def test_an_existing_file_is_read_whatever_its_name(tmp_path, name, decoy, ending):
    for stem, user in ((name, "right"), (decoy, "wrong")):
        frame = pl.DataFrame({"user": [user], "item": [1], "rating": [4.5], f"only_{user}": [0]})
        _save(frame, tmp_path / f"{stem}.{ending}")
    path = tmp_path / f"{name}.{ending}"
    for log in (read_interactions(path), open_data(path), read_interactions([path])):
        assert log.users.series.to_list() == ["right"]


@pytest.mark.parametrize(("name", "decoy"), NAMES)
def test_folders_may_be_called_like_patterns(tmp_path, name, decoy):
    logs = {name: synthesize(seed=1), decoy: synthesize(seed=2)}
    for folder, log in logs.items():
        place = tmp_path / folder
        (place / "tables").mkdir(parents=True)
        log.to_frame().write_parquet(place / "tables" / "log.parquet")
        leave_one_out(log).save(place / "split")
        prepare_parts(place / "tables", place / "parts", partitions=2)
    right = leave_one_out(logs[name]).train.to_frame()
    assert open_split(tmp_path / name / "split").train.to_frame().equals(right)
    assert open_split(tmp_path / name / "parts").train.to_frame().equals(right)
    for spec in (tmp_path / name / "tables", tmp_path / name / "tables" / "*.parquet"):
        assert open_data(spec).to_frame().equals(logs[name].to_frame())


def _save(frame, path):
    import gzip

    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".jsonl":
        frame.write_ndjson(path)
    else:
        text = frame.write_csv().encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
