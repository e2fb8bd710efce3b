"""Hidden folders beside a target, in which it is written; those of killed writers are removed.

A workspace is called `.NAME.TOKEN.tmp` and holds a file `transcf.lock`, which its writer keeps
locked. The system lets go of the lock when the writer ends in any way, so a workspace whose lock
can be taken belongs to nobody; where locks do not work, nothing is ever removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from transcf.data.file_locks import try_lock
from transcf.interrupts import remove_folder, temporary

_LOCK = "transcf.lock"
_NEW, _OLD = "new", "old"
#: Longest name of a target, in bytes, that a workspace repeats: names end at 255 in most systems.
_NAME_BYTES = 200


@dataclass(frozen=True)
class Workspace:
    """Where a target is written before it takes its name.

    Attributes:
        folder: The hidden folder.
        file_mode: Permissions that new files have here: the umask decides, and default ACLs.
    """

    folder: Path
    file_mode: int

    @property
    def new(self) -> Path:
        """Folder for what is being written."""
        return self.folder / _NEW

    @property
    def old(self) -> Path:
        """Place for what is being replaced, where the system cannot exchange two names."""
        return self.folder / _OLD


@contextmanager
def workspace(target: Path) -> Iterator[Workspace]:
    """Make a workspace beside the target, and remove it at the end with all that is in it.

    Those that killed writers of the same target left behind are removed first.
    """
    remove_abandoned(target)
    with temporary(partial(_make, target), partial(_close, target)) as (folder, lock):
        yield Workspace(folder, stat.S_IMODE(os.fstat(lock).st_mode))


def remove_abandoned(target: Path) -> None:
    """Remove the workspaces of this target whose writers are gone."""
    pattern = re.compile(rf"\.{re.escape(_stem(target))}\.[0-9a-f]{{8}}\.tmp")
    for folder in list(target.parent.iterdir()):
        if pattern.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink():
            # One that cannot be opened or removed is no reason not to write another.
            with suppress(OSError):
                _remove_if_abandoned(folder, target)


def _remove_if_abandoned(folder: Path, target: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        folder.rmdir()  # killed before it began; fails, as it should, if anything is inside
        return
    try:
        if try_lock(lock):
            _put_back(folder, target)
            _remove(folder)
    finally:
        os.close(lock)


def _make(target: Path) -> tuple[Path, int]:
    """Make a folder with a lock that is held."""
    while True:
        folder = target.with_name(f".{_stem(target)}.{secrets.token_hex(4)}.tmp")
        folder.mkdir()
        try:
            lock = os.open(folder / _LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        except FileNotFoundError:
            continue  # another writer saw it empty and took it for an abandoned one
        try:
            is_ours = try_lock(lock)
        except OSError:
            is_ours = True  # no locks here, hence no writer takes it for an abandoned one
        if is_ours and (folder / _LOCK).exists():
            (folder / _NEW).mkdir()
            return folder, lock
        os.close(lock)  # another writer took it before the lock was held


def _put_back(folder: Path, target: Path) -> None:
    """Undo the first of two renames where the second was not done."""
    if (folder / _OLD).exists() and not target.exists():
        (folder / _OLD).rename(target)


def _close(target: Path, made: tuple[Path, int]) -> None:
    """Remove a workspace while its lock is held."""
    folder, lock = made
    _put_back(folder, target)
    _remove(folder)
    os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a workspace, its lock last: whoever is killed here leaves one that can be found."""
    for part in (_NEW, _OLD):
        remove_folder(folder / part)
    with suppress(OSError):
        if {path.name for path in folder.iterdir()} <= {_LOCK}:
            shutil.rmtree(folder)


def _stem(target: Path) -> str:
    """The target's name, or what stands for it where it would leave no room."""
    name = os.fsencode(target.name)
    return target.name if len(name) <= _NAME_BYTES else hashlib.sha256(name).hexdigest()
