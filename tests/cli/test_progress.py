"""The line that a long command shows."""

from __future__ import annotations

import pytest

from transcf.cli._progress import show_steps


def test_parts_are_counted_by_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    with show_steps(2, "models") as steps:
        for part in steps.counted(["ease", "bpr"]):
            steps.report(f"{part} now")
    shown = capsys.readouterr().err
    assert "2/2 models" in shown
    assert "bpr now" in shown
