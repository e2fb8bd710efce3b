"""Ctrl-C ends every command with code 130; benchmarks/interrupts.py measures how soon."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interrupting import Place, press, usual_kernels

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")

FIT = "fit synthetic --model bpr --set epochs=100000 --out model"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Folders of one command, with compiled kernels that are kept for the next test run."""
    return Place(tmp_path, usual_kernels())


@pytest.mark.parametrize("moment", [0.0, 0.3, 1.5])
@pytest.mark.parametrize(
    "command",
    [
        FIT,
        "compare synthetic --models ease,bpr --set bpr.epochs=100000 --out comparison",
        "tune synthetic --model bpr --workers 2 --trials 500",
    ],
)
def test_ctrl_c_ends_a_command(place: Place, command: str, moment: float) -> None:
    outcome = press(command.split(), moment, place)
    assert outcome.problem() == ""
    assert "transcf: interrupted" in outcome.stderr.splitlines()[-1]


def test_ctrl_c_ends_a_compilation(tmp_path: Path) -> None:
    outcome = press(FIT.split(), 6.0, Place(tmp_path, tmp_path / "kernels"))
    assert outcome.problem() == ""


def test_an_interrupted_fit_keeps_a_checkpoint(place: Place) -> None:
    for moment in (8.0, 30.0, 90.0):  # a busy machine takes long to reach the first epoch
        outcome = press(FIT.split(), moment, place)
        assert outcome.problem() == ""
        if "--resume" in outcome.stderr:
            break
    assert "--resume" in outcome.stderr
    assert list((place.root / "model.checkpoint").iterdir())
    assert not (place.root / "model").exists()
