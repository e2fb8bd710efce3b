"""Version folders of a model.

A version folder never changes once it has its name, and the file that names the current version is
replaced atomically.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from transcf.data.atomic import atomic_write
from transcf.errors import ModelFileError, ParameterError
from transcf.io.model_dir import (
    NAME,
    NUMBER,
    current_version,
    pointer_file,
    version_folder,
    versions_folder,
)
from transcf.models.base import Recommender


@dataclass(frozen=True)
class Versions:
    """The version folders of one model; `base` is that of version 1."""

    base: Path

    @property
    def pointer(self) -> Path:
        """The file that names the current version."""
        return pointer_file(self.base)

    def check(self) -> None:
        """Raise a `ModelFileError` if there is no model folder."""
        if not self.base.is_dir():
            raise ModelFileError(f"There is no model folder {self.base}.")

    def folder(self, version: int) -> Path:
        """Return the folder of a version, which need not exist."""
        return version_folder(self.base, version)

    def current(self) -> int:
        """Return the number of the version to serve; see `current_version`."""
        return current_version(self.base)

    def all(self) -> list[int]:
        """Return the numbers of all version folders, complete or not, ascending."""
        found = {1} if self.base.is_dir() else set()
        later = versions_folder(self.base)
        if later.is_dir():
            found |= {int(p.name) for p in later.iterdir() if NUMBER.fullmatch(p.name)}
        return sorted(found)

    def made(self, version: int) -> float | None:
        """Return when a version was written, in seconds since 1970; None if it is incomplete."""
        try:
            return (self.folder(version) / NAME).stat().st_mtime
        except OSError:
            return None

    def fingerprint(self, version: int) -> tuple[int, int, int]:
        """Return a value that changes when the files of a version are replaced."""
        try:
            status = os.stat(self.folder(version) / NAME)
        except OSError:
            return (version, 0, 0)
        return (version, status.st_ino, status.st_mtime_ns)

    def add(self, model: Recommender[object]) -> int:
        """Save a model as the next version, which is not served yet, and return its number."""
        version = self.all()[-1] + 1
        model.save(self.folder(version))
        return version

    def switch(self, version: int) -> None:
        """Make a version the current one."""
        if self.made(version) is None:
            known = ", ".join(str(number) for number in self.all() if self.made(number))
            raise ParameterError(f"There is no version {version} of {self.base}: there is {known}.")
        with atomic_write(self.pointer) as unfinished:
            unfinished.write_text(f"{version}\n", encoding="ascii")
