"""Parquet files that announce more than they hold are refused before polars believes them."""

from __future__ import annotations

import io
import subprocess
import sys
from datetime import date
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from transcf import read_interactions
from transcf.data.parquet_check import damage_of
from transcf.errors import DataError

FRAME = pl.DataFrame(
    {
        "user": [f"u{n % 40}" for n in range(3000)],
        "item": list(range(3000)),
        "rating": [n / 7 for n in range(3000)],
        "lists": [[n, n] for n in range(3000)],
        "day": [date(2020, 1, 1)] * 3000,
        "gaps": [None, True] * 1500,
    }
)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "uncompressed"])
def test_files_of_polars_are_fine(compression: str) -> None:
    file = io.BytesIO()
    FRAME.write_parquet(file, compression=compression, row_group_size=700, data_page_size=900)
    assert damage_of(file.getvalue()) is None
    FRAME.head(0).write_parquet(empty := io.BytesIO())
    assert damage_of(empty.getvalue()) is None


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_files_of_pyarrow_are_fine(tmp_path: Path, version: str, dictionary: bool) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(
        FRAME.to_arrow(), path, data_page_version=version, use_dictionary=dictionary,
        row_group_size=700, data_page_size=900,
    )  # fmt: skip
    assert damage_of(path) is None


CHANGED = """
import io, sys
import polars as pl
from transcf import read_interactions
from transcf.errors import TransCFError

pl.DataFrame({"user": ["ann", "bob", "cid"], "item": [1, 2, 3]}).write_parquet(sys.argv[1])
raw = open(sys.argv[1], "rb").read()
for place in range(len(raw)):
    for flip in (1, 0x41, 0x80, 0xFF):
        with open(sys.argv[1], "wb") as file:
            file.write(raw[:place] + bytes([raw[place] ^ flip]) + raw[place + 1 :])
        try:
            assert len(read_interactions(sys.argv[1])) <= 3
        except TransCFError as error:
            assert "\\n" not in str(error)
"""


def test_no_changed_byte_ends_the_process(tmp_path: Path) -> None:
    """One that announces 2^61 values made polars abort."""
    program = [sys.executable, "-c", CHANGED, str(tmp_path / "log.parquet")]
    done = subprocess.run(program, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_too_many_values_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pl.DataFrame({"user": ["ann", "bob"], "item": [1, 2]}).write_parquet(path)
    raw = path.read_bytes()
    for place in range(4, 120):
        changed = raw[:place] + b"\x4b" + raw[place + 1 :]
        if damage_of(changed) is not None:
            path.write_bytes(changed)
            with pytest.raises(DataError, match=r"log\.parquet is damaged \(.*\): fetch or write"):
                read_interactions(path)
            return
    pytest.fail("no byte of the first pages matters")
