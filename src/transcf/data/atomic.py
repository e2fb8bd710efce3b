"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HERE = -100  # AT_FDCWD: paths are relative to the working directory
_EXCHANGE = 2  # RENAME_EXCHANGE: both names exist before and after


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Give a temporary neighbour to write to, and put it in the target's place at the end.

    If anything fails, the target stays as it was and the neighbour is removed.

    Example:
        >>> with whole_file(Path("table.csv")) as path:
        ...     _ = path.write_text("a,b")
        >>> Path("table.csv").read_text()
        'a,b'
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    neighbour = _neighbour(target)
    try:
        yield neighbour
        _flush(neighbour)
        neighbour.replace(target)
    finally:
        neighbour.unlink(missing_ok=True)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Give a temporary sibling to write to, and put it in the target's place at the end.

    The files and both folders are flushed to disk before the swap. If anything fails, the
    target stays as it was and the sibling is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    sibling = _neighbour(target)
    sibling.mkdir()
    try:
        yield sibling
        for path in (*sorted(sibling.iterdir()), sibling):
            _flush(path)
        _put_in_place(sibling, target)
        _flush(target.parent)
    finally:
        shutil.rmtree(sibling, ignore_errors=True)


def _neighbour(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")


def _put_in_place(sibling: Path, target: Path) -> None:
    """Swap a folder in; what was there before is at `sibling` afterwards, if anything was."""
    if not target.exists() or not any(target.iterdir()):
        sibling.replace(target)
        return
    if _exchange(sibling, target):
        return
    # No atomic exchange on this system: the name is free for a moment between two renames.
    aside = sibling.with_suffix(".old")
    target.replace(aside)
    try:
        sibling.replace(target)
    except OSError:
        aside.replace(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step, if the system can."""
    rename = getattr(ctypes.CDLL(None) if os.name == "posix" else None, "renameat2", None)
    if rename is None:
        return False
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def _flush(path: Path) -> None:
    """Make sure that a file or folder is on disk (folders: where the system allows it)."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
