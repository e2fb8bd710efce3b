"""What the line at a terminal says, and that there is none elsewhere."""

from __future__ import annotations

import sys
import types

import pytest

from transcf.models.progress import ProgressBar

RECORD = {"epoch": 1, "loss": 0.5, "metric": None, "samples": 1e6, "seconds": 1.0}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make rich draw into the captured stream as into a wide terminal."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)


def test_nothing_is_drawn_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("model", 3, "epochs") as bar:
        bar.note_compiling(True)
        bar.update(RECORD)
    assert capsys.readouterr().err == ""


def test_a_notebook_gets_a_bar_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    with ProgressBar("model", 3, "epochs") as bar:
        bar.update(RECORD | {"epoch": 3})
    shown = capsys.readouterr().err
    assert "3/3 epochs" in shown
    assert "\r" in shown


def test_the_unit_stands_beside_the_count(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("model", 3, "epochs", shown=True) as bar:
        bar.update(RECORD | {"epoch": 2, "metric": 0.1234, "samples": 2e6})
    shown = capsys.readouterr().err
    assert "2/3 epochs" in shown
    assert "loss 0.5  validation 0.1234  2.00 M samples/s" in shown


@pytest.mark.usefixtures("terminal")
def test_a_note_is_shown_until_something_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("model", 3, "items", shown=True) as bar:
        bar.note_compiling(True)
        before = capsys.readouterr().err
        bar.show(1)
        bar.note_compiling(True)  # too late
    after = capsys.readouterr().err
    assert "compiling kernels" in before
    assert "1/3" in after
    assert "compiling kernels" not in after
