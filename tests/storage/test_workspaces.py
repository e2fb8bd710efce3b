"""Files and folders appear whole; what killed writers left is removed, nothing else ever is."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from transcf.data import atomic
from transcf.data.atomic import atomic_write, atomic_write_dir, workspace
from transcf.errors import WriteError
from transcf.io import tensors


@contextmanager
def writer(target: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that has begun to write a folder, and goes on for ever."""
    program = """
        import sys, time
        from pathlib import Path
        from transcf.data.atomic import atomic_write_dir
        with atomic_write_dir(Path(sys.argv[1])) as place:
            (place / "large").write_bytes(bytes(10_000))
            print("begun", flush=True)
            time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
        process.kill()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_writer_left_is_removed_and_a_live_one_is_let_alone(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with writer(target) as live:
        with writer(target) as killed:
            killed.send_signal(signal.SIGKILL)
            killed.wait()
        with writer(tmp_path / "other") as of_another:
            of_another.send_signal(signal.SIGKILL)
            of_another.wait()
        assert len(names(tmp_path)) == 3
        (own,) = [path for path in tmp_path.iterdir() if _is_locked_by(path, live.pid)]
        with atomic_write_dir(target) as place:
            (place / "small").write_text("here")
        assert live.poll() is None
        assert (own / "new" / "large").stat().st_size == 10_000
        left = set(names(tmp_path)) - {"model", own.name}
        assert [name.startswith(".other.") for name in left] == [True]
    assert names(target) == ["small"]


def _is_locked_by(folder: Path, pid: int) -> bool:
    links = Path(f"/proc/{pid}/fd")
    return any(os.path.realpath(link).startswith(str(folder)) for link in links.iterdir())


def test_folders_of_others_are_never_removed(tmp_path: Path) -> None:
    looks_alike = tmp_path / ".model.0123abcd.tmp"
    looks_alike.mkdir()
    (looks_alike / "diary.txt").write_text("dear diary")
    linked = tmp_path / ".model.0123abce.tmp"
    linked.symlink_to(looks_alike)
    with atomic_write(tmp_path / "model") as path:
        path.write_text("x")
    assert (looks_alike / "diary.txt").read_text() == "dear diary"
    assert linked.is_symlink()


def test_an_empty_workspace_of_a_killed_writer_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".model.0123abcd.tmp").mkdir()
    with atomic_write(tmp_path / "model") as path:
        path.write_text("x")
    assert names(tmp_path) == ["model"]


def test_a_writer_killed_between_two_renames_loses_nothing(tmp_path: Path) -> None:
    """Without an atomic exchange the old folder is in the workspace for a moment."""
    target = tmp_path / "model"
    with atomic_write_dir(target) as place:
        (place / "old").write_text("good")
    with workspace(target) as (folder, _):
        target.rename(folder / "old")
        abandoned = tmp_path / ".model.0123abcd.tmp"
        folder.rename(abandoned)
    with pytest.raises(RuntimeError), atomic_write_dir(target):
        raise RuntimeError
    assert (target / "old").read_text() == "good"
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_is_replaced_or_stays(
    tmp_path: Path, can_exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    target = tmp_path / "folder"
    for text in ("one", "two"):
        with atomic_write_dir(target) as place:
            (place / "text").write_text(text)
        assert (target / "text").read_text() == text
    with pytest.raises(WriteError, match="was left alone"), atomic_write_dir(target, replace=False):
        pass
    assert (target / "text").read_text() == "two"
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002])
def test_permissions_follow_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "checkpoint") as path:
            tensors.write(path, {"a": np.ones(3)})
        with atomic_write_dir(tmp_path / "model") as place:
            tensors.write(place / "tensors", {"a": np.ones(3)})
    finally:
        os.umask(before)
    modes = [
        stat.S_IMODE((tmp_path / name).stat().st_mode)
        for name in ("checkpoint", "model", "model/tensors")
    ]
    assert modes == [0o666 & ~umask, 0o777 & ~umask, 0o666 & ~umask]


def test_long_names_are_written(tmp_path: Path) -> None:
    name = "x" * 250
    with atomic_write(tmp_path / name) as path:
        path.write_text("x")
    assert names(tmp_path) == [name]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("x" * 300, "its name is too long"),
        ("file/below", "a part of its path is a file"),
        ("folder", "is not a file that can be replaced"),
        ("nul\0nul", "a name has no NUL in it"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, name: str, sentence: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(WriteError, match=sentence), atomic_write(tmp_path / name):
        raise AssertionError("the work had begun")
    assert names(tmp_path) == ["file", "folder"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_what_the_system_refuses_is_one_sentence(tmp_path: Path, number: int) -> None:
    with pytest.raises(WriteError) as caught, atomic_write(tmp_path / "file"):
        raise OSError(number, os.strerror(number))
    assert str(caught.value).startswith(f"{tmp_path / 'file'} cannot be written, since ")
    assert str(caught.value).count("\n") == 0
    assert names(tmp_path) == []


def test_errors_about_other_files_stay_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "file"):
        Path("/nowhere/at/all").read_text()


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, umask: int) -> None:
    target = tmp_path / "table.csv"
    before = os.umask(umask)
    try:
        for mode in (0o640, 0o600, 0o664):
            target.write_text("old")
            target.chmod(mode)
            with atomic_write(target) as path:
                path.write_text("new")
            assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("new", mode)
    finally:
        os.umask(before)


@pytest.mark.parametrize("exists", [True, False])
def test_files_are_written_through_symbolic_links(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "there").mkdir()
    real, link, chain = tmp_path / "there" / "real.csv", tmp_path / "link.csv", tmp_path / "chain"
    if exists:
        real.write_text("old")
    link.symlink_to("there/real.csv")
    chain.symlink_to(link)
    with atomic_write(chain) as path:
        path.write_text("new")
    assert chain.is_symlink()
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["real.csv"]
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(WriteError, match="loop"), atomic_write(loop):
        pass
