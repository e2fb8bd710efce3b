"""The README's lines, word for word, on a log that has what they name."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import transcf
from transcf.cli.app import app
from transcf.data.synthetic import synthesize

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = [line.strip() for line in README.splitlines() if line.startswith("    transcf ")]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    """A folder with `events.csv`, in which ann buys tea and cups."""
    log = synthesize(users=60, items=30, interactions=700, seed=2).to_frame()
    users, items = ["ann", "bob", "cid"], ["tea", "cups", "pots"]
    named = log.with_columns(
        pl.col("user_id").replace(log["user_id"].unique().sort()[:3].to_list(), users),
        pl.col("item_id").replace(log["item_id"].unique().sort()[:3].to_list(), items),
    )
    monkeypatch.chdir(tmp_path)
    named.write_csv("events.csv")
    return named


def nobody_gets_what_they_have(folder: str, events: pl.DataFrame) -> bool:
    owned = set(events.select("user_id", "item_id").iter_rows())
    listed = transcf.load(folder).recommend(k=10).select("user_id", "item_id")
    return len(listed) > 0 and not owned & set(listed.iter_rows())


def test_the_lines_of_python_run(shop: pl.DataFrame) -> None:
    assert len(PYTHON) == 2
    assert len(PYTHON[0].strip().splitlines()) <= 13
    exec("\n".join(PYTHON), {})
    assert nobody_gets_what_they_have("models/tea-shop", shop)


def test_the_lines_of_the_shell_run(shop: pl.DataFrame) -> None:
    at_once = ["evaluate", "fit", "recommend", "compare"]
    # These take long, or do not end: their own tests run them.
    later = ["serve", "tune", "report", "fit", "data"]
    assert [line.split()[1] for line in SHELL] == at_once + later
    for line in SHELL[: len(at_once)]:
        words = shlex.split(line, comments=True)[1:]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    for line in SHELL[len(at_once) :]:
        words = shlex.split(line, comments=True)[1:]
        command = words[: 2 if words[0] == "data" else 1]
        told = CliRunner().invoke(app, [*command, "--help"]).output.split()
        assert all(word in told for word in words if word.startswith("--")), line
    assert nobody_gets_what_they_have("models/tea-shop", shop)
    assert Path("comparison/comparison.md").is_file()
