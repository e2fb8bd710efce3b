"""Compiled kernels are kept from their first use on, as long as all sources are the same."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numba
import pytest

from transcf.kernels._cache import MOST_FOLDERS, cache_folder, digest_of

#: Prints whether a kernel was loaded from disk or compiled.
LOAD = """
import numpy as np
from transcf.kernels.als_elements import make_room
make_room(3, 16, np.zeros(3, np.float32))
print("loaded" if make_room.stats.cache_hits else "compiled")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text("x = 1")
    return path


def test_the_folder_follows_from_the_content_of_sources_alone(source: Path) -> None:
    before = digest_of([source])
    os.utime(source, ns=(0, 0))
    assert digest_of([source]) == before
    source.write_text("x = 2")
    assert digest_of([source]) != before


def test_a_bounded_number_of_folders_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for number in range(MOST_FOLDERS + 3):
        folder = cache_folder(f"{number:020}")
        assert folder is not None
        os.utime(folder, (number, number))
    last = f"{MOST_FOLDERS + 2:020}"
    cache_folder(last)
    kept = [path.name for path in (tmp_path / "transcf" / "kernels").iterdir()]
    assert len(kept) == MOST_FOLDERS
    assert last in kept
    assert f"{0:020}" not in kept


@pytest.fixture
def no_user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user whose cache cannot be written to; returns the folder for temporary files."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_without_a_user_cache_a_private_temporary_folder_is_used(no_user_cache: Path) -> None:
    with pytest.warns(UserWarning, match="NUMBA_CACHE_DIR"):
        folder = cache_folder("0" * 20)
    assert folder is not None
    assert folder.is_relative_to(no_user_cache)
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("trap", ["writable by others", "a link"])
def test_a_temporary_folder_of_others_is_not_used(no_user_cache: Path, trap: str) -> None:
    place = no_user_cache / f"transcf-kernels-{os.getuid()}"
    if trap == "a link":
        place.symlink_to(no_user_cache, target_is_directory=True)
    else:
        place.mkdir()
        place.chmod(0o777)
    with pytest.warns(UserWarning, match="every process"):
        assert cache_folder("0" * 20) is None


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A copy of the library in which nothing has been compiled."""
    import transcf

    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(transcf.__file__).parent, copy / "transcf", ignore=ignored)
    return copy


def run(script: str, *folders: Path) -> str:
    """Run a script with kernels in a folder `kept` beside the first of the folders."""
    paths = os.pathsep.join(map(str, folders))
    command = [sys.executable, "-B", "-c", script]
    environment = os.environ | {
        "PYTHONPATH": paths,
        "NUMBA_CACHE_DIR": str(folders[0].parent / "kept"),
        "NUMBA_OPT": "0",  # quick to compile
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_an_import_changes_nothing_on_disk_or_in_the_environment(library: Path) -> None:
    before = sorted(library.rglob("*"))
    script = """
import os
import numba, polars, scipy.sparse
given = dict(os.environ)
import pkgutil, importlib, transcf.kernels, transcf.models.transcf
for module in pkgutil.iter_modules(transcf.kernels.__path__):
    importlib.import_module(f"transcf.kernels.{module.name}")
assert dict(os.environ) == given
"""
    run(script, library)
    assert sorted(library.rglob("*")) == before


def test_another_installation_of_the_same_version_finds_what_was_compiled(library: Path) -> None:
    """As after `pip install transcf[serve]`, which installs the same files again."""
    assert run(LOAD, library).strip() == "compiled"
    moved = library.rename(library.with_name("moved"))
    for path in moved.rglob("*.py"):
        os.utime(path, ns=(10**18, 10**18))
    assert run(LOAD, moved).strip() == "loaded"
    assert not list(moved.rglob("*.nb?")), "the installation is not written to"
    (moved / "transcf" / "kernels" / "sampling.py").open("a").write("\n")
    assert run(LOAD, moved).strip() == "compiled"


def test_a_user_without_a_cache_compiles_once_and_is_warned(library: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(library), "NUMBA_OPT": "0"}
    environment |= {"HOME": "/dev/null/home", "NUMBA_CACHE_DIR": "", "TMPDIR": str(tmp_path)}
    environment.pop("XDG_CACHE_HOME", None)
    for expected in ("compiled", "loaded"):
        done = subprocess.run(
            [sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
        assert "NUMBA_CACHE_DIR" in done.stderr


def test_a_damaged_file_is_compiled_again(library: Path) -> None:
    run(LOAD, library)
    for path in (library.parent / "kept").rglob("*.nbi"):
        path.write_bytes(b"damaged")
    assert run(LOAD, library).strip() == "compiled"
    assert run(LOAD, library).strip() == "loaded"
