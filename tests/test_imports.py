"""Importing the package changes nothing: not the environment, not the disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import transcf

SOURCE = Path(transcf.__file__).parent

#: What libraries set by themselves when they are imported: polars tells its allocator something.
OF_LIBRARIES = {"_RJEM_MALLOC_CONF", "KMP_INIT_AT_FORK"}

IMPORT_ALL = """
import os, json
before, here = dict(os.environ), os.getcwd()
import importlib, pkgutil
import transcf
alone = dict(os.environ)
names, missing = [], []
for module in pkgutil.walk_packages(transcf.__path__, "transcf."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
        names.append(module.name)
    except ImportError as error:
        missing.append([module.name, str(error)])
print(json.dumps({
    "file": transcf.__file__, "names": names, "missing": missing,
    "alone": alone == before, "environment": sorted(set(os.environ.items()) ^ set(before.items())),
    "folder": os.getcwd() == here,
}))
"""


def listing(folder: Path) -> dict[str, int]:
    """Every file and folder with its time of change, apart from what Python itself keeps."""
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns if path.is_file() else 0
        for path in sorted(folder.rglob("*"))
        if path.suffix != ".pyc" and path.name != "__pycache__"
    }


@pytest.mark.parametrize("writes_bytecode", [True, False])
def test_importing_every_module_has_no_side_effect(tmp_path: Path, writes_bytecode: bool) -> None:
    root, home, place = (tmp_path / name for name in ("root", "home", "place"))
    shutil.copytree(SOURCE, root / "transcf", ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()
    place.mkdir()
    before = listing(root)
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "PYTHONDONTWRITEBYTECODE": "" if writes_bytecode else "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        capture_output=True, text=True, timeout=300, check=True, cwd=place, env=environment,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["file"] == str(root / "transcf" / "__init__.py")
    assert len(found["names"]) > 100
    assert {"transcf.kernels.translation", "transcf.models.transcf.model"} <= set(found["names"])
    assert found["missing"] == []
    assert found["alone"], "import transcf changes the environment"
    assert found["folder"]
    assert listing(root) == before
    assert listing(place) == {}
    # Nothing of ours; a library may keep something of its own there.
    assert not [path for path in listing(home) if "transcf" in path or "numba" in path]
    mine = [pair for pair in found["environment"] if pair[0] not in OF_LIBRARIES]
    assert mine == []


#: Hides what only POSIX systems have, as far as Python itself does without it.
WITHOUT_POSIX = """
import os, sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
for name in ("preadv", "O_DIRECTORY", "O_NONBLOCK", "sched_getaffinity"):
    delattr(os, name)
os.supports_dir_fd.clear()
"""
IMPORT_NAMES = """
import transcf
from transcf import EASE
for name in transcf.__all__:
    getattr(transcf, name)
"""
COMMANDS = """
from transcf.cli import main
for words in (
    "demo",
    "fit synthetic --model popularity --out model",
    "evaluate synthetic --model ease",
    "recommend model --user u0001 --json",
):
    sys.argv = ["transcf", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
print("done")
"""


@pytest.mark.parametrize("script", [IMPORT_NAMES, COMMANDS], ids=["names", "commands"])
def test_nothing_needs_posix_modules(tmp_path: Path, script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX + script],
        capture_output=True, text=True, timeout=600, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert script is IMPORT_NAMES or done.stdout.endswith("done\n")
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith((".tmp", ".lock"))]
