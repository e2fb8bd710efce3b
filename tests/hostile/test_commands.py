"""Command lines that somebody might type: an answer, or one sentence and the exit code 2."""

from __future__ import annotations

import json
import os
import re
import stat
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

from transcf import load
from transcf.cli.app import app
from transcf.io.model_dir import Versions

WORDS = [
    "ann", "bob", "zoe", "", " ", "1", "2", "99", "-1", "0", "1e3", "nan", "inf", "2.5",
    "None", "9223372036854775808", "9" * 5000, "\udcff\udcfe", "é", "a,b", "1,2", "1,,2", ",",
    "--", "--json", "a\nb", "*", "~", "~nobody", ".", "/", "/dev/null", "x" * 5000, "x/" *
    3000, "model", "log.csv", "log.parquet", "cut.csv", "synthetic", "ease", "popularity",
    "leave-last-out", "paper", "=", "user=item", "user=user", "user=", "rating=time", "dim=3",
    "k=2**70", "utf-16", "latin-1", "rot13", "::", "tab", "\u202e", "\x1b[31m", "5-core",
    "99999999999999999999-core", "-core", "random", "position", "01", "+1", "1_0", " 1", "1 ",
    "\uff11", "1,02", "1, 2", "2,+1", "shop", "part.csv", "ids.txt", "~no-such-user/x.csv",
]  # fmt: skip
#: Lines that are fine; one word more, less or other may make them wrong.
LINES = [
    "recommend model --user ann",
    "recommend model --user bob -k 3",
    "recommend model --user cid -k 0",
    "recommend model --history 1,2 --with-seen",
    "recommend model --users-file users.txt -k 2",
    "recommend model --user zoe --on-unknown skip",
    "recommend model --user ann --exclude 4 --exclude 99",
    "recommend model --user ann --items-file ids.txt",
    "recommend model --user ann --items-file items.csv",
    "recommend model --user bob --out lists.csv",
    "recommend shop --user ann",
    "refit model log.csv --overwrite",
    "refit model part.csv --overwrite",
    "refit model part.csv log.csv --overwrite",
    "similar model --item 1",
    "similar model --item 2 -k 3",
    "similar model --user ann",
    "explain model --item 4 --user ann --top 2",
    "models",
    "models ease",
    "evaluate log.csv --model popularity",
    "evaluate log.csv --model popularity -k 1,5 --subset validation",
    "evaluate log.csv --model popularity --seed 3",
    "data info log.csv",
    "data info rated.csv --min-rating 2",
    "data info log.csv --filter 2-core",
    "data info log.csv --read separator=, --read encoding=utf-8",
    "data info lines.txt --read header=no",
    "study nothing",
    "export model --to parquet",
    "evaluate model",
]


ASK = ["recommend", "model", "--user", "ann"]


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
    (place / "ids.txt").write_text("1\n4\n02\n99\n")
    (place / "items.csv").write_text("item_id,category\n4,tea|new\n5,tea\n6,cup\n")
    (place / "part.csv").write_text("\n".join(lines[:3]) + "\n")
    fitted("ease").save(place / "model")
    fitted("popularity").save(place / "shop")
    versions = Versions(place / "shop")
    versions.switch(versions.add(fitted("ease")))
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
    if words[:1] == ["refit"]:
        assert load("model").users_.series.to_list() == USERS, "users are lost without --yes"
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
    if words[0] in ("recommend", "similar", "explain"):
        check_ids(words)
    if words[:1] != ["recommend"] or words[1:2] not in (["model"], ["shop"]):
        return
    if "--user" not in words:
        return
    if not set(words[2:]) <= {"--user", "-k", "--json", *USERS, "3", "0"}:
        return
    user = words[words.index("--user") + 1]
    k = int(words[words.index("-k") + 1]) if "-k" in words else 10
    expected = fitted("ease").recommend(user, k)
    assert [row["item_id"] for row in answer] == expected["item_id"].to_list()
    assert all(row["item_id"] in ITEMS for row in answer)


def check_ids(words: list[str]) -> None:
    """A line that is answered names items by their exact texts."""
    known = set(map(str, ITEMS))
    for option in ("--item", "--history"):
        if words.count(option) == 1 and "--on-unknown" not in words and "--" not in words:
            text = words[words.index(option) + 1]
            assert set(text.split(",") if option == "--history" else [text]) <= known, words


@cases("commands", 0.02)
@given(
    mode=st.sampled_from([0o600, 0o640, 0o644, 0o660, 0o666, 0o400]),
    links=st.integers(0, 2),
    exists=st.booleans(),
    name=st.sampled_from(["out.csv", "out.jsonl.gz", "out.parquet"]),
)
def test_files_keep_modes_and_links(
    tmp_path_factory: pytest.TempPathFactory, round_: int, mode: int, links: int, exists: bool,
    name: str,
) -> None:  # fmt: skip
    place = tmp_path_factory.mktemp("out")
    target = place / name
    if exists:
        target.write_text("old")
        target.chmod(mode)
    out = target
    for number in range(links):
        link = place / f"{number}.{name}"
        link.symlink_to(out)
        out = link
    result = outcome_of("commands", lambda: run([*ASK, "--out", str(out)])).value
    check(result)
    assert result.exit_code == 0
    assert target.stat().st_size > 3
    assert not target.is_symlink()
    assert out.is_symlink() == bool(links)
    if exists:
        assert stat.S_IMODE(target.stat().st_mode) == mode
    assert len(list(place.iterdir())) == 1 + links


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
