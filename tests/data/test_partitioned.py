"""A log prepared in parts has the rows and the split of the same log in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from transcf import Interactions, Split, k_core, leave_one_out, open_data, open_split
from transcf.data import PartitionedLog, open_parts, prepare_parts, read_interactions
from transcf.data.splitters import Order
from transcf.errors import DataError, ParameterError

FEW = {"partitions": 5}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transcf.data.partitioned.CHUNK_ROWS", 37)


def events(seed: int, *, text: bool = False) -> pl.DataFrame:
    """Repeated pairs, equal times, missing and bad ratings, and a tail that takes rounds to go."""
    random = np.random.default_rng(seed)
    users = (60 * random.random(900) ** 2).astype(int)
    items = (45 * random.random(900) ** 2).astype(int)
    ratings = random.integers(-1, 6, 900).astype(float)
    frame = pl.DataFrame(
        {
            "user_id": users * 7 - 20,
            "item_id": items * 3,
            "rating": pl.Series(np.where(random.random(900) < 0.05, np.nan, ratings)),
            "timestamp": random.integers(0, 40, 900),
            "category": [f"shelf {item % 4}" for item in items],
        }
    )
    # Chains in which each that is left out takes the next one with it.
    chain = [(1000 + n, 500 + n + step) for n in range(6) for step in (0, 1)]
    tail = pl.DataFrame(chain, schema=["user_id", "item_id"], orient="row")
    tail = tail.with_columns(rating=pl.lit(4.0), timestamp=pl.lit(5), category=pl.lit("shelf 9"))
    frame = pl.concat([frame, tail.cast(dict(frame.schema))])[random.permutation(912)]
    if text:
        frame = frame.with_columns(pl.col("user_id", "item_id").cast(pl.String) + "x")
    return frame


def write(frame: pl.DataFrame, folder: Path) -> Path:
    """Write files of different lengths, one of them empty."""
    folder.mkdir()
    for number, (start, end) in enumerate([(0, 300), (300, 300), (300, 431), (431, 912)]):
        frame[start:end].write_parquet(folder / f"{number}.parquet", row_group_size=50)
    return folder


def check_same(found: Interactions, expected: Interactions) -> None:
    assert found.digest == expected.digest  # ids, rows, order, ratings, times, categories
    assert np.array_equal(found.positions, expected.positions)
    assert found.report == expected.report


def check_split(found: Split, expected: Split) -> None:
    for part in ("train", "validation", "test"):
        check_same(getattr(found, part), getattr(expected, part))
    assert (found.recipe, found.report) == (expected.recipe, expected.report)


@pytest.mark.parametrize("by", ["time", "position", "random"])
@pytest.mark.parametrize("text", [False, True])
def test_rows_and_split_are_those_of_one_process(tmp_path: Path, by: Order, text: bool) -> None:
    folder = write(events(seed=1, text=text), tmp_path / "log")
    log = prepare_parts(folder, tmp_path / "parts", by=by, k_core=2, seed=3, **FEW)
    expected = k_core(read_interactions(folder), 2, 2)
    assert expected.report.count("k-core", "rounds") > 2
    assert expected.report.count("merge repeats", "repeats") > 100
    assert log.n_partitions == 5
    check_split(log.split(), leave_one_out(expected, by, seed=3))
    check_same(log.read(), expected)
    assert np.array_equal(log.item_counts, expected.by_item.counts)
    check_same(log.before_test.read(), leave_one_out(expected, by, seed=3).before_test)


@pytest.mark.parametrize(
    ("options", "reading"),
    [
        ({"k_core": 3}, {"min_rating": 3}),
        ({}, {"min_rating": -np.inf, "rating": "rating"}),
        ({}, {"timestamp": "rating", "rating": "timestamp"}),
    ],
)
def test_filters_and_readings(
    tmp_path: Path, options: dict[str, Any], reading: dict[str, Any]
) -> None:
    frame = events(seed=2).with_columns(pl.col("rating").fill_nan(0))
    folder = write(frame, tmp_path / "log")
    log = prepare_parts(folder, tmp_path / "parts", **options, **reading, **FEW)
    expected = read_interactions(folder, **reading)
    expected = k_core(expected, 3, 3) if options else expected
    check_split(log.split(), leave_one_out(expected))


def test_logs_without_times_and_with_dates(tmp_path: Path) -> None:
    frame = events(seed=4)
    dated = frame.with_columns(pl.from_epoch("timestamp", time_unit="d"))
    for name, some in (("plain", frame.select("user_id", "item_id")), ("dated", dated)):
        folder = write(some, tmp_path / name)
        log = prepare_parts(folder, tmp_path / f"{name}-parts", **FEW)
        check_split(log.split(), leave_one_out(read_interactions(folder)))


@pytest.fixture
def prepared(tmp_path: Path) -> PartitionedLog:
    folder = write(events(seed=1), tmp_path / "log")
    return prepare_parts(folder, tmp_path / "parts", k_core=2, **FEW)


def test_commands_take_the_folder_as_data(prepared: PartitionedLog, tmp_path: Path) -> None:
    expected = k_core(read_interactions(tmp_path / "log"), 2, 2)
    check_same(open_data(prepared.folder), expected)
    check_split(open_split(prepared.folder, "leave-last-out"), leave_one_out(expected))
    assert str(prepared.train).startswith(f"PartitionedLog({prepared.folder}: train, ")


def test_events_are_read_by_partition(prepared: PartitionedLog) -> None:
    whole, parts = prepared.train.read(), list(prepared.train.partitions())
    assert [row for part in parts for row in part.users.series] == list(range(whole.n_users))
    assert np.array_equal(np.concatenate([part.item_rows for part in parts]), whole.item_rows)
    assert np.array_equal(prepared.train.by_user.indices, whole.by_user.indices)
    assert np.array_equal(prepared.train.histories.items, whole.histories.items)


@pytest.mark.parametrize("name", ["part-00002.parquet", "users.parquet", "parted.json"])
def test_damage_is_found(prepared: PartitionedLog, name: str) -> None:
    path = prepared.folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{name} is missing or damaged: prepare .* again"):
        open_parts(prepared.folder).read()


def test_what_fails_leaves_the_folder_as_it_was(prepared: PartitionedLog, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in prepared.folder.iterdir()}
    with pytest.raises(DataError, match="k-core leaves nothing of"):
        prepare_parts(tmp_path / "log", prepared.folder, k_core=99)
    assert {path.name: path.read_bytes() for path in prepared.folder.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "parts"]
    with pytest.raises(DataError, match="is not a log in parts"):
        prepare_parts(tmp_path / "log", tmp_path / "log")


def test_wrong_input_gets_a_sentence(tmp_path: Path) -> None:
    frame = events(seed=1)
    folder = write(frame, tmp_path / "log")

    def fail(match: str, **options: Any) -> None:
        error = ParameterError if "not allowed" in match or "at once" in match else DataError
        with pytest.raises(error, match=match):
            prepare_parts(folder, tmp_path / "parts", **options)

    fail("whole number of at least 1|not allowed", partitions=0)
    fail("not allowed", k_core=-1)
    fail("all events at once", by="paper")
    fail("has no column 'shop'", item="shop")
    frame[:3].with_columns(item_id=pl.Series(["a", "b", "c"])).write_parquet(folder / "9.parquet")
    fail("holds Int64 in .*0.parquet and String in .*9.parquet")
    nobody = frame[:60].with_columns(user_id=pl.Series([1] * 51 + [None] * 9))
    nobody.write_parquet(folder / "9.parquet")
    fail(r"9.parquet: row 52 of column 'user_id' has no id", **FEW)
    (folder / "9.parquet").rename(folder / "9.csv")
    (folder / "9.csv").write_text("user_id,item_id\n1,2\n")
    fail("several kinds")
    with pytest.raises(DataError, match="is no Parquet file: only Parquet is prepared in parts"):
        prepare_parts(folder / "9.csv", tmp_path / "parts")
