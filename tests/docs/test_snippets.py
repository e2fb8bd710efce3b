"""Every snippet of the documentation runs and prints what the page shows; commands exist."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import click
import pytest
import typer

from transcf.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTPUTS = runpy.run_path(str(DOCS / "outputs.py"))
PAGES = sorted(path for path in DOCS.rglob("*.md") if "tables" not in path.parts)
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
RUN = [page for page in PAGES if OUTPUTS["snippets"](TEXTS[page])]
COMMANDS = [
    (page, line)
    for page in PAGES
    for block in re.findall(r"```(?:sh|bash)\n(.*?)```", TEXTS[page], re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("transcf ")
]
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def words_of(output: str) -> list[str]:
    """The words of an output, without the lines of tables."""
    return re.sub(r"[^\w.,%+:;()'/<>=*^-]+|-{3,}", " ", output).split()


def same(shown: str, printed: str) -> bool:
    """Whether outputs are equal, except for rounding and the widths of columns."""
    pairs = list(zip(words_of(shown), words_of(printed), strict=False))
    return len(words_of(shown)) == len(words_of(printed)) and all(
        _NUMBER.sub("0", one) == _NUMBER.sub("0", other)
        and all(
            float(a.replace(",", "")) == pytest.approx(float(b.replace(",", "")), rel=0.02, abs=1)
            for a, b in zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
        )
        for one, other in pairs
    )


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "88")
    OUTPUTS["write_data"](tmp_path)
    blocks = OUTPUTS["snippets"](TEXTS[page])
    for block, printed in zip(blocks, OUTPUTS["run"](blocks), strict=True):
        if block.shown is not None:
            assert same(block.shown, printed), f"{page.name} shows another output:\n{printed}"


def test_outputs_may_differ_by_rounding_only() -> None:
    shown = "│ i001 ┆ 0.5641 │ 12 users"
    assert same(shown, "| i001 | 0.5642 |    12 users")
    assert not same(shown, "│ i009 ┆ 0.5641 │ 12 users")
    assert not same(shown, "│ i001 ┆ 0.5641 │ 12 items")
    assert not same(shown, "│ i001 ┆ 0.5641 │")


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
