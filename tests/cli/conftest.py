"""Running commands in this process, and a small log to run them on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from transcf.cli.app import app
from transcf.data.synthetic import synthesize, write_csv


@pytest.fixture(scope="session")
def command() -> Callable[..., Result]:
    def run(*words: object) -> Result:
        return CliRunner().invoke(app, [str(word) for word in words])

    return run


@pytest.fixture(scope="session")
def answer(command: Callable[..., Result]) -> Callable[..., Any]:
    """Run a command with --json and return what it printed."""

    def run(*words: object) -> Any:
        result = command(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return run


@pytest.fixture(scope="session")
def refusal(command: Callable[..., Result]) -> Callable[..., str]:
    """Run a command that has to fail politely and return its sentence."""

    def run(*words: object) -> str:
        result = command(*words)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        return result.stderr

    return run


@pytest.fixture(scope="session")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = synthesize(users=150, items=60, interactions=2500, seed=3)
    return write_csv(log, tmp_path_factory.mktemp("log") / "events.csv")
