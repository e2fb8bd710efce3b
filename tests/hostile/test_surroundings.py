"""Surroundings of a command that are not as it expects: Ctrl-C under load, folders it may not use.

Each case is a process of its own: an ordinary run has a few of them, the same ones every time.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hostile._outcomes import FUZZ, checked_sentence, counts
from tests.interrupting import Place, busy_core, press, usual_kernels

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")

#: Presses of Ctrl-C, and places that cannot be written to.
PRESSES, PLACES = (200, 30) if FUZZ else (6, 4)
COMMANDS = (
    "fit synthetic --model bpr --set epochs=100000 --out model",
    "fit synthetic --model ease --out model",
    "evaluate synthetic --model popularity",
    "compare synthetic --models ease --out comparison",
    "tune synthetic --model ease --trials 20 --workers 2",
    "recommend model --all --out lists.csv",
)
#: Where nobody can write, not even root.
NOWHERE = "/dev/null/nowhere"


def test_ctrl_c_at_random_moments_under_load(tmp_path: Path) -> None:
    rng = random.Random(None if FUZZ else 0)
    with busy_core():
        for number in range(PRESSES):
            folder = tmp_path / str(number)
            place = Place(folder, usual_kernels() if rng.random() < 0.8 else folder / "kernels")
            moment = 3 * rng.random()
            outcome = press(rng.choice(COMMANDS[:5]).split(), moment, place)
            assert outcome.problem() == "", (outcome.command, moment)
            counts["Ctrl-C", "answers"] += 1


def test_folders_that_cannot_be_written_to(tmp_path: Path) -> None:
    """An answer, perhaps with notes, or one sentence; and never a traceback."""
    rng = random.Random(None if FUZZ else 0)
    fitted = tmp_path / "model"
    assert _run(f"fit synthetic --model popularity --out {fitted}", tmp_path, {}).returncode == 0
    for number in range(PLACES):
        folder = tmp_path / str(number)
        folder.mkdir()
        names = ("HOME", "XDG_CACHE_HOME", "TMPDIR", "TRANSCF_RUNS", "NUMBA_CACHE_DIR")
        broken = dict.fromkeys(rng.sample(names, rng.randint(1, len(names))), NOWHERE)
        words = rng.choice((f"recommend {fitted} --user u0001", *COMMANDS[1:4]))
        # Kernels that are kept among temporary files are there for the next case.
        done = _run(words, folder, {"NUMBA_OPT": "0", "TMPDIR": str(tmp_path), **broken})
        assert "Traceback" not in done.stderr, (words, broken, done.stderr)
        if done.returncode:
            assert done.returncode == 2, (words, broken, done.stderr)
            checked_sentence(done.stderr.splitlines()[-1])
        counts["read-only", "sentences" if done.returncode else "answers"] += 1


def _run(words: str, folder: Path, more: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "transcf", *words.split()],
        capture_output=True, text=True, timeout=600, cwd=folder, env={**os.environ, **more},
    )  # fmt: skip
