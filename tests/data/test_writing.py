"""Tables in files: each form reads back equal, and files appear whole or not at all."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from transcf.data.writing import check_file, form_of, write_pieces
from transcf.errors import DataError

TABLE = pl.DataFrame(
    {
        "user_id": ["ann", 'quo"ted', "a,b", "tab\there", "two\nlines", "ünï", "", "007"],
        "item_id": [1, -5, 2**62, 0, 3, 4, 5, 6],
        "score": pl.Series([0.1, -1e-30, 3.4e38, 0, 1 / 3, 2.5, -7, 1e-3], dtype=pl.Float32),
    }
)


def read_text(path: Path, separator: str) -> pl.DataFrame:
    """Read by Python's own reader."""
    with path.open(newline="", encoding="utf-8") as lines:
        head, *rows = csv.reader(lines, delimiter=separator)
    table = pl.DataFrame(rows, schema=dict.fromkeys(head, pl.String), orient="row")
    return table.cast(dict(TABLE.schema))


READERS = {
    "csv": lambda path: read_text(path, ","),
    "tsv": lambda path: read_text(path, "\t"),
    "jsonl": lambda path: pl.read_ndjson(path, schema=TABLE.schema),
    "ndjson": lambda path: pl.read_ndjson(path, schema=TABLE.schema),
    "parquet": pl.read_parquet,
}


def pieces(size: int) -> list[pl.DataFrame]:
    return [TABLE[first : first + size] for first in range(0, len(TABLE), size)]


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("form", READERS)
def test_what_was_written_reads_back_equal(tmp_path: Path, form: str, size: int) -> None:
    path = tmp_path / f"table.{form}"
    path.write_text("as it was")
    assert write_pieces(pieces(size), path) == len(TABLE)
    assert READERS[form](path).equals(TABLE)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_packed_files_are_the_same_bytes_within_and_every_time(tmp_path: Path, form: str) -> None:
    plain, packed = tmp_path / f"table.{form}", tmp_path / f"table.{form}.gz"
    write_pieces(pieces(3), plain)
    write_pieces(pieces(3), packed)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    before = packed.read_bytes()
    write_pieces(pieces(3), packed)
    assert packed.read_bytes() == before


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_empty_tables_keep_their_columns_where_the_form_has_them(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"table.{form}"
    assert write_pieces([TABLE[:0]], path) == 0
    if form == "jsonl":
        assert path.read_bytes() == b""
    else:
        assert READERS[form](path).equals(TABLE[:0])


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet"])
def test_a_piece_that_fails_leaves_the_old_file_alone(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    path.write_text("as it was")

    def failing() -> Iterator[pl.DataFrame]:
        yield TABLE
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_pieces(failing(), path)
    assert path.read_text() == "as it was"
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_other_endings_are_refused(tmp_path: Path) -> None:
    assert form_of(Path("Lists.CSV.GZ")) == "csv"
    for name in ("table", "table.xlsx", "table.parquet.gz", "table.gz", ".csv", "csv"):
        with pytest.raises(DataError, match=r"ending what to write: use \.csv"):
            write_pieces([TABLE], tmp_path / name)
    for place in (tmp_path, tmp_path / "nowhere" / "table.csv"):
        with pytest.raises(DataError, match="cannot be written"):
            write_pieces([TABLE], place)


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        check_file(tmp_path / ("x" * 5000 + ".csv"))
