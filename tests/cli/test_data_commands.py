from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import Result

from transcf import load
from transcf.data.datasets import describe
from transcf.data.split import Split
from transcf.data.splitters import leave_one_out
from transcf.data.synthetic import synthesize

Answer = Callable[..., Any]
Refusal = Callable[..., str]


def test_info_counts_what_the_file_holds(answer: Answer, log_file: Path) -> None:
    frame = pl.read_csv(log_file)
    found = answer("data", "info", log_file)
    assert found["users"] == frame["user_id"].n_unique()
    assert found["items"] == frame["item_id"].n_unique()
    assert found["interactions"] == len(frame)
    assert found["ratings"]
    assert found["first_time"] == str(frame["timestamp"].min())
    assert found["last_time"] == str(frame["timestamp"].max())
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
    assert found["recipe"] == {k: v for k, v in saved.recipe.items() if v is not None}
    assert sum(parts.values()) == 2500
    assert saved.candidates is not None
    assert answer("data", "info", folder)["interactions"] == 2500


def test_prepare_in_partitions(answer: Answer, refusal: Refusal, tmp_path: Path) -> None:
    log, out = synthesize(users=80, items=40, interactions=1200), ("--out", tmp_path / "parts")
    log.to_frame().write_parquet(tmp_path / "log.parquet")
    words = ("data", "prepare", tmp_path / "log.parquet", *out, "--filter", "5-core")
    found = answer(*words, "--partitions", 3)
    assert (found["partitions"], found["users"], found["train"]) == (3, 80, 1040)
    assert found["report"][2]["step"] == "k-core"
    assert answer("data", "info", tmp_path / "parts")["interactions"] == 1200
    fitted = ("--model", "popularity", "--out", tmp_path / "model")
    assert answer("fit", tmp_path / "parts", *fitted)["interactions"] == 1200
    assert "looks at all events at once" in refusal(*words, "--partitions", 3, "--split", "cut")
    assert "header does not go" in refusal(*words, "--partitions", 3, "--read", "header=no")
    named = ("--model", "bpr", "--out", tmp_path / "other", "--workers", 2)
    assert "does not go with" in refusal("fit", tmp_path / "parts", *named, "--protocol", "paper")
    assert "is split already" in refusal("fit", tmp_path / "parts", *named, "--read", "user=u")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_synthesize_writes_what_info_reads(ending: str, answer: Answer, tmp_path: Path) -> None:
    file = tmp_path / f"log.{ending}"
    size = ("--users", 50, "--items", 30, "--interactions", 500)
    written = answer("data", "synthesize", file, *size, "--seed", 7)
    again = answer("data", "synthesize", tmp_path / f"b.{ending}", *size, "--seed", 7)
    assert file.read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
    assert written["users"] == again["users"] == 50
    read = answer("data", "info", file)
    assert read["interactions"] == 500
    assert set(written) - {"file", "seed"} == set(read) - {"dataset", "report", "notes"}


ON_A_FULL_DISK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
from transcf.cli import main
sys.argv = ["transcf", "data", "synthesize", sys.argv[1]]
main()
"""


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_that_does_not_fit_is_not_left_behind(ending: str, tmp_path: Path) -> None:
    out = tmp_path / "folder" / f"log.{ending}"
    program = [sys.executable, "-c", ON_A_FULL_DISK, str(out)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith("transcf: ")
    assert "Traceback" not in done.stderr
    assert list(out.parent.iterdir()) == []


def test_the_catalog_is_listed(answer: Answer) -> None:
    names = [entry["name"] for entry in answer("data", "download")]
    assert {"delicious", "ciao", "movietweetings", "ml-latest-small"} <= set(names)


def test_wrong_input_gets_one_sentence(refusal: Refusal, log_file: Path, tmp_path: Path) -> None:
    assert "missing.csv" in refusal("data", "info", "missing.csv")
    assert "nowhere" in refusal("data", "info", "nowhere")
    assert "odd" in refusal("data", "info", log_file, "--filter", "odd")
    out = ("--out", tmp_path / "x")
    assert "--split='odd'" in refusal("data", "prepare", log_file, *out, "--split", "odd")
    assert "unknown ending" in refusal("data", "synthesize", tmp_path / "log.xls")
    assert "no dataset 'odd'" in refusal("data", "download", "odd")


def test_columns_and_ratings_from_the_shell(
    answer: Answer, refusal: Refusal, log_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "odd.csv"
    frame = pl.read_csv(log_file)
    frame = frame.rename({"user_id": "who", "item_id": "what", "timestamp": "when"})
    frame.with_columns(rating=-pl.col("rating")).write_csv(file)
    columns = ("--read", "user=who", "--read", "item=what", "--read", "timestamp=when")
    assert "--read user=NAME" in refusal("data", "info", file)
    assert "0 or below" in refusal("data", "info", file, *columns)
    assert answer("data", "info", file, *columns, "--min-rating", "-inf")["timestamps"]
    frame.write_csv(file)
    assert "--read='buyer'" in refusal("data", "info", file, "--read", "buyer=who")
    out = ("--out", tmp_path / "split")
    assert answer("data", "prepare", file, *columns, *out)["recipe"]["rule"].endswith("by time")
    assert "is no file" in refusal("data", "info", "synthetic", *columns)
    plain = answer("evaluate", log_file, "--model", "popularity")["metrics"]
    assert answer("evaluate", file, *columns, "--model", "popularity")["metrics"] == plain
    compared = answer("compare", file, "--out", "none", *columns, "--models", "popularity")[
        "models"
    ]
    assert compared[0]["metrics"] == plain
    model = tmp_path / "model"
    answer("fit", file, *columns, "--model", "popularity", "--out", model, "--hold-out")
    assert answer("evaluate", model)["metrics"] == plain


def test_files_as_they_are_from_the_shell(answer: Answer, refusal: Refusal, tmp_path: Path) -> None:
    file = tmp_path / "u.dat"
    file.write_bytes("1::é::0::5\n2::x::4::6\n1::x::5::7\n\n".encode("latin-1"))
    words = ("data", "info", file, "--read", "header=no", "--read", "encoding=latin-1")
    assert answer(*words)["interactions"] == 3
    rated = answer(*words, "--read", "rating=3", "--read", "separator=::")
    assert rated["interactions"] == 2
    assert rated["report"][-1]["step"] == "leave out ratings of 0 or below"
    assert answer(*words, "--read", "rating=3", "--min-rating", "5")["interactions"] == 1
    assert "no column '9'; they are counted from 1 to 4" in refusal(*words, "--read", "user=9")
    assert "line 1 is not utf-8 text" in refusal("data", "info", file, "--read", "header=no")
    tabs = tmp_path / "tabs.txt"
    tabs.write_text("user\titem\n1\t2,3\n")
    for tab in ("tab", "\\t", "\t"):
        assert answer("data", "info", tabs, "--read", f"separator={tab}")["items"] == 1
    assert answer("data", "info", tmp_path / "t*.txt")["items"] == 1
    assert answer("data", "info", "synthetic", "--min-rating", 4)["interactions"] < 20_000


def test_prepare_says_how_it_split(answer: Answer, refusal: Refusal, tmp_path: Path) -> None:
    file, out = tmp_path / "log.csv", ("--out", tmp_path / "split")
    frame = synthesize(users=30, items=20, interactions=300).to_frame().drop("timestamp")
    frame.write_csv(file)
    found = answer("data", "prepare", file, *out, "--seed", 4)
    assert found["split"].endswith("seed 4 (the log has no timestamps)")
    assert found["split"] == leave_one_out(file, seed=4).how == Split.load(out[1]).how
    assert "no timestamps" in refusal("data", "prepare", file, *out, "--split", "time")


def test_info_of_a_name_says_what_to_cite(
    answer: Answer, command: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tradesy"
    folder.mkdir()
    line = "{'lists': {'bought': ['1'], 'selling': [], 'want': ['2'], 'sold': []}, 'uid': '9'}\n"
    (folder / "tradesy.json").write_text(line)
    monkeypatch.setenv("TRANSCF_DATA", str(tmp_path))
    known = describe("tradesy")
    found = answer("data", "info", "tradesy")
    assert (found["citation"], found["terms"]) == (known.citation, known.terms)
    assert known.terms in command("data", "info", "tradesy").stdout


def test_a_path_that_hides_a_dataset_is_noted_in_one_line(
    command: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    leave_one_out(synthesize(users=20, items=20, interactions=150)).save("ciao")
    words = ("fit", "ciao", "--model", "popularity", "--out", "model")
    result = command(*words)
    assert result.exit_code == 0, result.output
    line, ratings = result.stderr.splitlines()
    assert line.startswith("transcf: note: ciao is a path here")
    assert ratings.startswith("transcf: note: ratings from")
    assert load(tmp_path / "model").report_["dataset"] == str(tmp_path / "ciao")
    found = command("data", "info", "ciao", "--json")
    assert found.stderr.startswith("transcf: note: ciao is a path here")
    assert "citation" not in json.loads(found.stdout)


def test_unused_columns_and_the_use_of_ratings_are_named(
    command: Callable[..., Result], answer: Answer, log_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "events.csv"
    frame = pl.read_csv(log_file).rename({"timestamp": "seen_on"})
    frame.with_columns(rating=pl.col("rating") - 0.5, title=pl.lit("x")).write_csv(file)
    shown = command("data", "info", file).stdout
    noted = " ".join(answer("data", "info", file)["notes"])
    fitted = command("fit", file, "--model", "ease", "--out", tmp_path / "model").stderr
    judged = command("--store", "none", "evaluate", file, "--model", "ease").stderr
    compared = command(
        "--store", "none", "compare", file, "--models", "ease", "--out", "none"
    ).stderr
    for text in (shown, noted, fitted, judged, compared):
        assert text.count("not used: 'seen_on', 'title'") == 1
        assert text.count("ratings from 0.5 to 4.5") == 1
        assert "--min-rating" in text
    named = command("data", "info", file, "--read", "timestamp=seen_on", "--min-rating", 3).stdout
    assert "not used: 'title'" in named
    assert "ratings from 3.5 to 4.5" in named


def test_parts_name_unused_columns_too(answer: Answer, log_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "events.parquet"
    pl.read_csv(log_file).rename({"timestamp": "seen_on"}).write_parquet(file)
    options = ("--out", tmp_path / "parts", "--partitions", 2)
    steps = answer("data", "prepare", file, *options)["report"]
    assert any("'seen_on'" in step["step"] for step in steps)
    assert "seen_on" in answer("data", "info", tmp_path / "parts")["notes"][0]
