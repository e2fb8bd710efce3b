"""The line that a long command shows."""

from __future__ import annotations

import re

import pytest

from transcf.cli.output import Answer, Steps, values_table
from transcf.tables import Table


def test_parts_are_counted_by_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("transcf.models.progress.is_watched", lambda: True)
    with Steps(2, "models") as steps:
        for part in steps.counted(["ease", "bpr"]):
            steps.report(f"{part} now")
    shown = capsys.readouterr().err
    assert "2/2 models" in shown
    assert "bpr now" in shown


def test_a_pipe_gets_a_line_for_every_finished_part(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps(2, "models") as steps:
        for part in steps.counted(["ease", "bpr"]):
            steps.report(f"{part} now")
            assert f"models done in 0 s: {part}" not in capsys.readouterr().err
        lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "2/2 models" in lines[0]
    assert "bpr" in lines[0]


def test_a_pipe_gets_a_line_for_every_trial(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps(3, "trials") as steps:
        for done in (0, 1, 1, 2):
            steps.reach(done, f"best so far {done}")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["1/3", "2/3"]
    assert "best so far 2" in lines[1]


def test_a_part_is_finished_when_the_next_one_begins(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps(3, "parts") as steps:
        for part in ("reading", "evaluating", "writing"):
            steps.begin(part)
    assert capsys.readouterr().err.splitlines() == [
        "transcf: 1/3 parts done in 0 s: reading",
        "transcf: 2/3 parts done in 0 s: evaluating",
    ]


def test_a_pipe_gets_whole_tables(capsys: pytest.CaptureFixture[str]) -> None:
    wide = ["x" * 60] * 5
    columns = [f"column {number}" for number in range(5)]
    Answer().show(None, values_table("title " * 40, columns, [wide]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert "x" * 60 in lines[4]


def test_a_narrow_terminal_gets_a_wide_table_in_parts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    metrics = [f"NDCG@{length}" for length in (1, 5, 10, 20, 50)]
    rows = [[name, *["0.1234 ± 0.0123 *"] * 5] for name in ("transcf-mixture", "ease")]
    Answer().show(None, Table("Models", ["model", *metrics], rows))
    lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("transcf-mixture" in line for line in lines) == 2, "the first column is repeated"
    assert sum(line.count("0.1234 ± 0.0123 *") for line in lines) == 10
    assert all(any(metric in line for line in lines) for metric in metrics)
