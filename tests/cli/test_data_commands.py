from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import Result

from transcf.data.split import Split

Answer = Callable[..., Any]
Refusal = Callable[..., str]


def test_info_counts_what_the_file_holds(answer: Answer, log_file: Path) -> None:
    frame = pl.read_csv(log_file)
    found = answer("data", "info", log_file)
    assert found["users"] == frame["user_id"].n_unique()
    assert found["items"] == frame["item_id"].n_unique()
    assert found["interactions"] == len(frame)
    assert found["ratings"]
    assert found["report"][0] == {"step": "read", "rows": len(frame)}


def test_info_for_people_shows_the_same(command: Callable[..., Result], log_file: Path) -> None:
    result = command("data", "info", log_file, "--filter", "8-core")
    assert result.exit_code == 0
    assert "interactions" in result.stdout
    assert "k-core" in result.stdout


SIZES = {
    ("delicious", "none"): (1050, 1196, 7698),
    ("ciao", "none"): (6760, 11166, 146996),
    ("bookcrossing", "paper"): (19571, 39702, 605178),
}


@pytest.mark.parametrize(("name", "filter_name"), SIZES)
def test_published_sizes(
    name: str, filter_name: str, answer: Answer, real_data: Callable[[str], Path]
) -> None:
    found = answer("data", "info", real_data(name), "--filter", filter_name)
    counts = tuple(found[key] for key in ("users", "items", "interactions"))
    assert counts == SIZES[name, filter_name]


@pytest.mark.parametrize("split", ["time", "position", "paper", "random", "cut", "ratio"])
def test_prepare_saves_a_split(split: str, answer: Answer, log_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "split"
    found = answer("data", "prepare", log_file, "--out", folder, "--split", split)
    saved = Split.load(folder)
    parts = {name: len(getattr(saved, name)) for name in ("train", "validation", "test")}
    assert {name: found[name] for name in parts} == parts
    assert sum(parts.values()) == 2500
    assert saved.candidates is not None
    assert answer("data", "info", folder)["interactions"] == 2500


def test_prepare_without_candidates(answer: Answer, log_file: Path, tmp_path: Path) -> None:
    answer("data", "prepare", log_file, "--out", tmp_path / "s", "--candidates", 0)
    assert Split.load(tmp_path / "s").candidates is None


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_synthesize_writes_what_info_reads(ending: str, answer: Answer, tmp_path: Path) -> None:
    file = tmp_path / f"log.{ending}"
    size = ("--users", 50, "--items", 30, "--interactions", 500)
    written = answer("data", "synthesize", file, *size, "--seed", 7)
    again = answer("data", "synthesize", tmp_path / f"b.{ending}", *size, "--seed", 7)
    assert file.read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    assert written["users"] == again["users"] == 50
    assert answer("data", "info", file)["interactions"] == 500


def test_the_catalog_is_listed(answer: Answer) -> None:
    names = [entry["name"] for entry in answer("data", "download")]
    assert {"delicious", "ciao", "movietweetings", "ml-latest-small"} <= set(names)


def test_wrong_input_gets_one_sentence(refusal: Refusal, log_file: Path, tmp_path: Path) -> None:
    assert "missing.csv" in refusal("data", "info", "missing.csv")
    assert "nowhere" in refusal("data", "info", "nowhere")
    assert "--filter odd" in refusal("data", "info", log_file, "--filter", "odd")
    out = ("--out", tmp_path / "x")
    assert "--split odd" in refusal("data", "prepare", log_file, *out, "--split", "odd")
    assert "unknown ending" in refusal("data", "synthesize", tmp_path / "log.xls")
    assert "no dataset 'odd'" in refusal("data", "download", "odd")
