"""Every snippet of the documentation runs; every command in it exists with its options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import polars as pl
import pytest
import typer

from transcf.cli.app import app
from transcf.data.synthetic import synthesize

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "tables" not in path.parts)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]
COMMANDS = [
    (page, line)
    for page in PAGES
    for block in blocks(page, "sh")
    for line in block.splitlines()
    if line.startswith("transcf ")
]


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with `events.csv`, in which ann has tea and cups."""
    log = synthesize(users=60, items=30, interactions=700, seed=2).to_frame()
    users, items = ["ann", "bob", "cid"], ["tea", "cups", "pots"]
    monkeypatch.chdir(tmp_path)
    log.with_columns(
        pl.col("user_id").replace(log["user_id"].unique().sort()[:3].to_list(), users),
        pl.col("item_id").replace(log["item_id"].unique().sort()[:3].to_list(), items),
    ).write_csv("events.csv")


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
@pytest.mark.usefixtures("events")
def test_python_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec("\n".join(blocks(page, "python")), {})
    assert capsys.readouterr().out


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=lambda value: str(value)[-40:])
def test_commands_exist(page: Path, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = typer.main.get_command(app)
    while hasattr(command, "get_command"):
        name = words.pop(0)
        command = command.get_command(click.Context(command), name)
        assert command is not None, f"{page.name}: there is no command {name}"
    options = {option for param in command.params for option in param.opts}
    used = {
        word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)
    }
    assert used <= options, f"{page.name}: {line}"


@pytest.mark.parametrize("page", [*PAGES, DOCS.parent / "README.md"], ids=lambda page: page.stem)
def test_pages_are_in_plain_english(page: Path) -> None:
    words = r"\b(somebody|nobody|everybody|whoever|anew|mend|told|beside|people)\b"
    assert not re.findall(words, page.read_text(encoding="utf-8"), re.IGNORECASE)
