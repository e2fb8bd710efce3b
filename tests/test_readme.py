"""The lines of the README run, word for word, on a log that has what they name."""

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

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
#: The search of `auto` gets a few seconds instead of ten minutes.
QUICK = README.replace("minutes=10", "minutes=0.05").replace("--minutes 10", "--minutes 0.05")
PYTHON = re.findall(r"```python\n(.*?)```", QUICK, re.DOTALL)
SHELL = [line.strip() for line in QUICK.splitlines() if line.startswith("    transcf ")]


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


def excludes_seen_items(folder: str, events: pl.DataFrame) -> bool:
    owned = set(events.select("user_id", "item_id").iter_rows())
    listed = transcf.load(folder).recommend(k=10).select("user_id", "item_id")
    return len(listed) > 0 and not owned & set(listed.iter_rows())


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_its_links_exist() -> None:
    for target, anchor in re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", README):
        assert (ROOT / target).exists(), target
        titles = re.findall(r"^#+ (.*)", (ROOT / target).read_text("utf-8"), re.M) if anchor else []
        slugs = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
        assert not anchor or anchor in slugs, f"{target} has no title {anchor}"


def test_the_lines_of_python_run(shop: pl.DataFrame) -> None:
    (lines,) = PYTHON
    assert len(lines.strip().splitlines()) <= 12
    exec(lines, {})
    assert excludes_seen_items("models/tea-shop", shop)


def test_the_lines_of_the_shell_run(shop: pl.DataFrame) -> None:
    commands = [line.split()[1] for line in SHELL]
    assert commands == ["auto", "compare", "fit", "recommend", "serve"]
    for line in SHELL[:-1]:  # `serve` does not end: its own tests run it
        result = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert result.exit_code == 0, result.output
    assert excludes_seen_items("models/tea-shop", shop)
