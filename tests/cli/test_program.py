"""The program as a shell runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import transcf
from transcf.cli.about import EXTRAS
from transcf.cli.app import GROUPS, app
from transcf.models.registry import HOMES

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numpy", "polars", "numba", "scipy", "rich.table")


def program(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "transcf", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("words", [(), ("data",), ("evaluate",), ("fit",), ("recommend",)])
def test_help_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    script = (
        "import sys; from transcf.cli.app import app\n"
        f"try: app({[*words, '--help']!r})\n"
        f"finally: print([n for n in {HEAVY!r} if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "Usage" in done.stdout
    assert done.stderr.strip() == "[]"


def test_help_names_every_command() -> None:
    done = program("--help")
    assert done.returncode == 0
    for title, commands in GROUPS.items():
        assert f"\n{title}:\n" in done.stdout
        for name, summary in commands.items():
            assert f"  {name:<11}  {summary}\n" in done.stdout


def _pages(command: Any, parent: Any = None, name: str = "transcf") -> Iterator[tuple[str, str]]:
    """Yield the help page of every command, 100 columns wide."""
    context = typer.Context(
        command, parent=parent, info_name=name, terminal_width=100, max_content_width=100
    )
    for below in getattr(command, "list_commands", lambda _: ())(context):
        yield from _pages(command.get_command(context, below), context, below)
    if not hasattr(command, "list_commands"):
        yield context.command_path, command.get_help(context)


def test_every_command_fits_on_two_screens_and_shows_an_example() -> None:
    pages = dict(_pages(get_command(app)))
    assert len(pages) == 30
    summaries = {name: text for group in GROUPS.values() for name, text in group.items()}
    for name, text in pages.items():
        lines = [line.strip() for line in text.splitlines()]
        assert len(lines) <= 70, name
        assert any(line.startswith(f"Example: {name}") for line in lines), name
        assert summaries.get(name.removeprefix("transcf "), "") in lines, name


def test_every_argument_and_option_has_help() -> None:
    def walk(command: Any, name: str) -> Iterator[str]:
        for below in getattr(command, "list_commands", lambda _: ())(None):
            yield from walk(command.get_command(None, below), f"{name} {below}")
        yield from (f"{name} {each.name}" for each in command.params if not each.help)

    assert list(walk(get_command(app), "transcf")) == []


def test_no_argument_says_what_to_do_first() -> None:
    done = program()
    assert done.returncode == 0
    assert done.stdout.count("\n") == 3


def test_wrong_input_ends_with_code_2_and_one_sentence() -> None:
    done = program("evaluate", "no-such-file.csv", "--model", "ease", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("transcf: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("[docs: start/your-data]\n")


def test_wrong_usage_ends_with_code_2() -> None:
    done = program("fit", "--no-such-option")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_stdout_is_pure_json() -> None:
    assert json.loads(program("models", "--json").stdout)


def test_an_ascii_terminal_gets_a_table_and_whole_json(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    rows = (f"u{user},\u00e9{item}" for user in range(5) for item in range(user, user + 4))
    file.write_text("\n".join(("user,item", *rows)), encoding="utf-8")
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    shown = program("compare", str(file), "--out", "none", "--models", "popularity", **ascii_only)
    assert shown.returncode == 0, shown.stderr
    assert "popularity" in shown.stdout
    folder = str(tmp_path / "model")
    program("fit", str(file), "--model", "popularity", "--out", folder)
    found = program("recommend", folder, "--user", "u0", "--json", **ascii_only)
    assert all(row["item_id"].startswith("\u00e9") for row in json.loads(found.stdout))


def test_version() -> None:
    assert program("--version").stdout == f"transcf {transcf.__version__}\n"


def test_versions_and_extras_agree_with_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == transcf.__version__
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"dev", "docs"}


def test_public_names_exist_and_are_typed() -> None:
    head = (ROOT / "src" / "transcf" / "__init__.py").read_text().partition("__version__")[0]
    for name in transcf.__all__:
        assert getattr(transcf, name) is not None
        assert name in head, f"{name} is missing under TYPE_CHECKING"
    assert {*transcf._HOMES, *HOMES} == set(transcf.__all__) - {"datasets"}
    assert set(transcf._HOMES).isdisjoint(HOMES), "models are listed in the registry alone"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = transcf.nonsense


def test_import_is_light() -> None:
    script = f"import sys, transcf; print([n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(sys.platform == "win32", reason="the folder of a process cannot be removed")
def test_a_working_folder_that_is_gone_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    result = CliRunner().invoke(app, ["fit", "synthetic", "--model", "popularity", "--out", "m"])
    assert result.exit_code == 2
    assert "working folder was removed" in result.stderr


def test_an_interruption_ends_with_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transcf.Popularity, "fit", interrupt)
    result = CliRunner().invoke(app, ["evaluate", "synthetic", "--model", "popularity"])
    assert result.exit_code == 130
    assert result.stderr.endswith("transcf: interrupted.\n")
