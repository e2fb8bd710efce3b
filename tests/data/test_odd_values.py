"""Values that a reader must not change without notice, and sources that it cannot read."""

import os
from datetime import datetime

import numpy as np
import polars as pl
import pytest

from transcf import RecentPopularity
from transcf.data import as_interactions, open_data, prepare_parts, read_interactions
from transcf.errors import DataError, TransCFError
from transcf.models.event_weights import by_age

NOON = datetime(2020, 1, 1, 12)


def _read(tmp_path, name, text, **reading):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return read_interactions(path, **reading)


@pytest.mark.parametrize("rating", ["1e39", "-1e39", "1e400", "inf", "-inf"])
def test_ratings_are_finite(tmp_path, rating):
    table = {"user": [1, 1], "item": [2, 3], "rating": [3.0, float(rating)]}
    with pytest.raises(DataError, match=r"line 3 of column 'rating' is .*finite"):
        _read(tmp_path, "log.csv", f"user,item,rating\n1,2,3\n1,3,{rating}\n")
    with pytest.raises(DataError, match=r"row 2 .*finite"):
        read_interactions(pl.DataFrame(table))


@pytest.mark.parametrize(
    "line", ['{"user":1,"item":2,"user":3}', '{"item":1, "user" : 1,"item":1}']
)
def test_a_key_twice_is_an_error(tmp_path, line):
    with pytest.raises(DataError, match=r"line 2 has the key '.*' twice"):
        _read(tmp_path, "log.jsonl", '{"user":1,"item":2}\n' + line)


def test_keys_of_inner_objects_do_not_count(tmp_path):
    line = '{"user":1,"item":2,"by":{"user":7},"text":"\\"user\\": 5"}'
    assert len(_read(tmp_path, "log.jsonl", line)) == 1


@pytest.mark.parametrize("zone", ["+99:99", "+24:00", "-02:60"])
def test_zones_are_less_than_a_day(tmp_path, zone):
    with pytest.raises(DataError, match=r"line 2 of column 'time' is"):
        _read(tmp_path, "log.csv", f"user,item,time\n1,2,2020-01-01T10:00{zone}\n")


@pytest.mark.parametrize("column", ["user", "time"])
@pytest.mark.parametrize(("kind", "bits"), [(pl.Float32, 24), (pl.Float64, 53)])
def test_floats_are_integers_as_far_as_they_are_exact(column, kind, bits):
    table = {"user": [1.0, 1.0], "item": [1, 2], "time": [1.0, 1.0]}
    fine, odd = ({**table, column: [1.0, value]} for value in (2.0**bits - 1, 2.0**bits))
    types = {column: kind}
    assert len(read_interactions(pl.DataFrame(fine, schema_overrides=types))) == 2
    with pytest.raises(DataError, match=r"row 2 .*too large to be exact"):
        read_interactions(pl.DataFrame(odd, schema_overrides=types))


def test_json_lines_may_begin_with_a_mark(tmp_path):
    assert len(_read(tmp_path, "log.jsonl", '\ufeff{"user":1,"item":2}\n')) == 1


@pytest.mark.parametrize("row", ['1,2,"x', '1,"2,x', '1,2,6" pipe', '"1,2,x'])
def test_an_open_quote_is_named(tmp_path, row):
    rest = "2,3,y\n" * 50
    with pytest.raises(DataError, match=r"line 3 opens a quote .* never closed"):
        _read(tmp_path, "log.csv", f'user,item,note\n1,1,"two words"\n{row}\n{rest}')


def test_pipes_and_devices_are_not_called_empty(tmp_path):
    pipe = tmp_path / "log.csv"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/null"):
        with pytest.raises(DataError, match=r"not a regular file"):
            open_data(path)


@pytest.mark.parametrize("spec", [None, 5, b"log.csv", [], object()])
def test_open_data_takes_paths_and_tables(spec):
    with pytest.raises(DataError, match=r"is no event log|is empty"):
        open_data(spec)


def test_other_things_are_no_logs():
    with pytest.raises(TransCFError):
        as_interactions(None)


def _folder(tmp_path, *types):
    folder = tmp_path / "logs"
    folder.mkdir()
    for number, kind in enumerate(types):
        times = pl.Series([NOON] * 3).dt.replace_time_zone(kind.time_zone).cast(kind)
        table = {"user": [number] * 3, "item": [1, 2, 3], "time": times}
        pl.DataFrame(table).write_parquet(folder / f"{number}.parquet")
    return folder


@pytest.mark.parametrize("in_parts", [False, True])
def test_times_with_and_without_a_zone_do_not_mix(tmp_path, in_parts):
    folder = _folder(tmp_path, pl.Datetime("us"), pl.Datetime("us", "UTC"))
    with pytest.raises(DataError, match=r"'time' holds .*0.parquet.*1.parquet"):
        prepare_parts(folder, tmp_path / "out") if in_parts else read_interactions(folder)


@pytest.mark.parametrize("in_parts", [False, True])
def test_times_of_several_zones_and_units(tmp_path, in_parts):
    zones = [("ms", "Europe/Berlin"), ("us", "UTC"), ("ns", "UTC")]
    folder = _folder(tmp_path, *(pl.Datetime(*zone) for zone in zones))
    log = prepare_parts(folder, tmp_path / "out").read() if in_parts else read_interactions(folder)
    hours = [moment.hour for moment in log.to_frame()["timestamp"]]
    assert hours == [11] * 3 + [12] * 6


def test_units_do_not_cut_times_off(tmp_path):
    moments = [datetime(1969, 12, 31, 23, 59, 59, 1), datetime(2020, 1, 1, 12, 0, 0, 7)]
    for number, unit in enumerate(["us", "ms", "ns"]):
        times = pl.Series(moments).cast(pl.Datetime(unit))
        table = pl.DataFrame({"user": [number] * 2, "item": [1, 2], "time": times})
        table.write_parquet(tmp_path / f"{number}.parquet")
    found = read_interactions(tmp_path).to_frame()["timestamp"].dt.microsecond().to_list()
    assert found == [1, 7, 0, 0, 1, 7]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("half_life", [1e-300, 1.0])
def test_ages_may_be_longer_than_an_integer(half_life):
    times = np.linspace(-(2**63), 2**63 - 1025, 200).astype(np.int64)
    table = {"user": range(200), "item": [n % 7 for n in range(200)], "timestamp": times}
    log = read_interactions(pl.DataFrame(table))
    weights = by_age(log, half_life, "days")
    assert np.isfinite(weights).all()
    assert weights[np.argmax(log.timestamps)] == weights.max() == 1
    model = RecentPopularity(half_life=half_life, age_in="days").fit(log)
    assert model.recommend(0, 1)["score"].is_finite().all()
