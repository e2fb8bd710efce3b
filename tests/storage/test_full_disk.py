"""A full disk: one sentence, nothing cut under the final name, nothing left beside it.

A program runs under a limit of the size of files, at which the system refuses to write on, as it
does on a full disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from transcf import EASE, load, synthesize

PROGRAM = """
    import json, resource, signal, sys
    from pathlib import Path
    from transcf import EASE, IALS, leave_one_out, synthesize
    from transcf.cli.app import app
    from transcf.data.synthetic import write_csv
    from transcf.errors import WriteError
    from transcf.retrieval.export import export_parquet
    from transcf.retrieval.index import ItemIndex
    from transcf.models.training import FitOptions

    folder = Path(sys.argv[1])
    log = synthesize(300, 100, 3000)
    # Before the limit: compiled kernels are kept in files too.
    ease, ials, split = EASE().fit(log), IALS(dim=8, epochs=1).fit(log), leave_one_out(log)
    ease.recommend(), ials.recommend()
    writes = {
        "model": lambda path: ease.save(path),
        "old model": lambda path: ease.save(path, overwrite=True),
        "checkpoint": lambda path: IALS(dim=8, epochs=1).fit(log, options=FitOptions(path)),
        "lists.parquet": ease.recommend_all,
        "lists.jsonl": ease.recommend_all,
        "lists.csv.gz": ease.recommend_all,
        "old lists.csv": ease.recommend_all,
        "split": split.save,
        "events": lambda path: write_csv(log, path),
        "index": lambda path: ItemIndex.build(ials.linear_form(), ials.rankable).save(path),
        "export": lambda path: export_parquet(ials, path),
        "made up.csv": lambda path: app(["data", "synthesize", str(path)]),
        "made up.parquet": lambda path: app(["data", "synthesize", str(path)]),
    }
    said = {}
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    for name, write in writes.items():
        try:
            write(folder / name)
        except WriteError as error:
            said[name] = str(error)
        except SystemExit as end:
            said[name] = end.code
    print(json.dumps(said))
"""
#: What the command line does; the others are calls.
COMMANDS = ("made up.csv", "made up.parquet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an older model and an older table in it."""
    folder = tmp_path_factory.mktemp("disk")
    EASE().fit(synthesize(30, 20, 200)).save(folder / "old model")
    (folder / "old lists.csv").write_text("old")
    return folder


@pytest.fixture(scope="module")
def outcome(folder: Path) -> tuple[dict[str, Any], str]:
    """What was said of each thing that could not be written, and the output for errors."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert len(said) == 13
    return said, done.stderr


def test_a_full_disk_is_one_sentence(folder: Path, outcome: tuple[dict[str, Any], str]) -> None:
    said, errors = outcome
    reason = "cannot be written, since it grows beyond the size"
    for name, sentence in said.items():
        if name not in COMMANDS:
            assert sentence.startswith(str(folder / name))
            assert reason in sentence
            assert "\n" not in sentence
    assert [said[name] for name in COMMANDS] == [2, 2]
    lines = errors.splitlines()
    assert [line.startswith(f"transcf: {folder}") and reason in line for line in lines] == [
        True
    ] * 2


def test_nothing_is_left_and_what_was_there_stays(
    folder: Path, outcome: tuple[dict[str, Any], str]
) -> None:
    files = {path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file()}
    assert files == {"old model", "old lists.csv"}
    assert {path.name for path in folder.iterdir()} <= files | {"checkpoint"}
    assert load(folder / "old model").recommend().height
    assert (folder / "old lists.csv").read_text() == "old"
