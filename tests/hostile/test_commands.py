"""Command lines that somebody might type: an answer, or one sentence and the exit code 2."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile._outcomes import Answered, cases, checked_sentence, counts, outcome_of
from tests.hostile.test_parameters import EVENTS, ITEMS, USERS, fitted
from typer.main import get_command
from typer.testing import CliRunner, Result

from transcf.cli.app import app

WORDS = [
    "ann", "bob", "zoe", "", " ", "1", "2", "99", "-1", "0", "1e3", "nan", "inf", "2.5",
    "None", "9223372036854775808", "9" * 5000, "\udcff\udcfe", "é", "a,b", "1,2", "1,,2", ",",
    "--", "--json", "a\nb", "*", "~", "~nobody", ".", "/", "/dev/null", "x" * 5000, "x/" *
    3000, "model", "log.csv", "log.parquet", "cut.csv", "synthetic", "ease", "popularity",
    "strict", "paper", "=", "user=item", "user=user", "user=", "rating=time", "dim=3",
    "k=2**70", "utf-16", "latin-1", "rot13", "::", "tab", "\u202e", "\x1b[31m", "5-core",
    "99999999999999999999-core", "-core", "random", "position",
]  # fmt: skip
#: Lines that are fine; one word more, less or other may make them wrong.
LINES = [
    "recommend model --user ann",
    "recommend model --user bob -k 3",
    "recommend model --user cid -k 0",
    "recommend model --history 1,2 --with-seen",
    "recommend model --users-file users.txt -k 2",
    "recommend model --user zoe --skip-unknown",
    "similar model --item 1",
    "similar model --item 2 -k 3",
    "similar model --user ann",
    "explain model --item 4 --user ann --top 2",
    "models",
    "models ease",
    "evaluate log.csv --model popularity",
    "evaluate log.csv --model popularity --at 1,5 --part validation",
    "evaluate log.csv --model popularity --ties realistic --seed 3",
    "data info log.csv",
    "data info rated.csv --min-rating 2",
    "data info log.csv --filter 2-core",
    "data info log.csv --separator , --encoding utf-8 --ratings any",
    "data info lines.txt --no-header",
    "study nothing",
    "export model --to parquet",
    "evaluate model",
]


@pytest.fixture(scope="module", autouse=True)
def desk(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with a log and a model, where commands are run."""
    place = tmp_path_factory.mktemp("desk")
    lines = ["user,item,time", *(",".join(map(str, event)) for event in EVENTS)]
    (place / "log.csv").write_text("\n".join(lines) + "\n")
    (place / "cut.csv").write_text("\n".join(lines)[:40])
    (place / "log.parquet").write_bytes(b"PAR1 and no more")
    (place / "lines.txt").write_text("\n".join(lines[1:]))
    (place / "rated.csv").write_text("\n".join(lines).replace("time", "rating"))
    (place / "users.txt").write_text("ann\n\nbob\n")
    fitted("ease").save(place / "model")
    command = get_command(app)
    with pytest.MonkeyPatch.context() as patch:
        # Made once: that takes longer than most lines.
        patch.setattr("typer.testing._get_command", lambda _: command)
        patch.chdir(place)
        yield place


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A fine line with up to two words changed, added or taken away."""
    words = draw(st.sampled_from(LINES)).split()
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
        place = draw(st.integers(0, len(words)))
        how = draw(st.sampled_from(["insert", "replace", "replace", "remove"]))
        new = [] if how == "remove" else [draw(st.sampled_from(WORDS))]
        words[place : place + (how != "insert")] = new
    return [*words, "--json"] if draw(st.booleans()) else words


def run(words: list[str]) -> Result:
    return CliRunner().invoke(app, words)


@cases("commands", 0.06)
@given(words=lines())
def test_any_line(desk: Path, round_: int, words: list[str]) -> None:
    found = outcome_of("commands", lambda: run(words))
    assert isinstance(found, Answered), "the command line lets no error through"
    result = found.value
    check(result)
    if result.exit_code == 0 and "--json" in words and "--help" not in words:
        check_answer(words, json.loads(result.stdout))


def check(result: Result) -> None:
    """An answer, or exit code 2 with one sentence."""
    error = result.exception
    assert error is None or isinstance(error, SystemExit), f"{type(error).__name__}: {error}"
    assert "Traceback" not in result.output
    if result.exit_code == 0:
        return
    assert result.exit_code == 2, result.output
    counts["commands", "answers"] -= 1
    counts["commands", "sentences"] += 1
    check_complaint(result.stderr)


def check_complaint(said: str) -> None:
    """One sentence of ours, or what typer says about options; notes may go before."""
    rest = re.sub(r"(?m)^transcf: note: .*\n", "", said).strip()
    if rest.startswith("transcf: "):
        checked_sentence(rest)
    else:
        *_, last = rest.splitlines()
        assert rest.startswith(("Usage: ", "Error: "))
        assert last.startswith("Error: ") or rest.startswith("Usage: "), rest


def check_answer(words: list[str], answer: Any) -> None:
    """Compare with what Python says, where a line asks for one user's list."""
    if words[:2] != ["recommend", "model"] or "--user" not in words:
        return
    if not set(words) <= {"recommend", "model", "--user", "-k", "--json", *USERS, "3", "0"}:
        return
    user = words[words.index("--user") + 1]
    k = int(words[words.index("-k") + 1]) if "-k" in words else 10
    expected = fitted("ease").recommend(user, k)
    assert [row["item_id"] for row in answer] == expected["item_id"].to_list()
    assert all(row["item_id"] in ITEMS for row in answer)


@pytest.mark.parametrize(
    "words",
    [
        [b"recommend", b"model", b"--user", b"\xff\xfe"],
        [b"similar", b"model", b"--item", b"\xff"],
        [b"data", b"info", b"\xff.csv"],
        [b"recommend", b"model", b"--user", b"ann", b"-k", b"9" * 30],
        [b"recommend", b"x" * 5000, b"--user", b"ann"],
        [b"data", b"info", b"x/" * 3000],
    ],
)
def test_a_program_of_its_own(desk: Path, words: list[bytes]) -> None:
    program = [os.fsencode(sys.executable), b"-m", b"transcf", *words]
    done = subprocess.run(program, capture_output=True, timeout=300, check=False)
    said = done.stderr.decode()
    assert done.returncode in (0, 2), said
    assert "Traceback" not in said
    if done.returncode:
        check_complaint(said)
