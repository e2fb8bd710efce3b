"""Versions of a model: listed, added and switched; `storage.versions` says where they are.

A version never changes once it has its name, and the file that names the current one is replaced
in one step, so that a reader sees the old number or the new one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from transcf.data.atomic import atomic_write
from transcf.errors import ModelFileError, ParameterError
from transcf.io.model_dir import (
    NUMBER,
    current_version,
    pointer_file,
    version_folder,
    versions_folder,
)
from transcf.io.model_json import NAME
from transcf.models.recommender import Recommender


@dataclass(frozen=True)
class Versions:
    """The versions of one model.

    Attributes:
        base: The folder of version 1.

    Example:
        >>> from transcf import EASE, synthesize
        >>> versions = Versions(EASE().fit(synthesize()).save("models/shop").absolute())
        >>> versions.current(), versions.folder(2).name
        (1, '2')
    """

    base: Path

    @property
    def pointer(self) -> Path:
        """The file that names the current version."""
        return pointer_file(self.base)

    def check(self) -> None:
        """Raise a `ModelFileError` where there is no model: before anything is made beside it."""
        if not self.base.is_dir():
            raise ModelFileError(f"There is no model folder {self.base}.")

    def folder(self, version: int) -> Path:
        """Return where a version is, or would be."""
        return version_folder(self.base, version)

    def current(self) -> int:
        """Return the number of the version to serve; see `current_version`."""
        return current_version(self.base)

    def all(self) -> list[int]:
        """Return the numbers of the versions that have a name, whole or not, ascending."""
        found = {1} if self.base.is_dir() else set()
        later = versions_folder(self.base)
        if later.is_dir():
            found |= {int(p.name) for p in later.iterdir() if NUMBER.fullmatch(p.name)}
        return sorted(found)

    def made(self, version: int) -> float | None:
        """Return when a version was written, in seconds since 1970; None if it is not whole."""
        try:
            return (self.folder(version) / NAME).stat().st_mtime
        except OSError:
            return None

    def mark(self, version: int) -> tuple[int, int, int]:
        """Return what changes when other files take the place of a version's."""
        try:
            facts = os.stat(self.folder(version) / NAME)
        except OSError:
            return (version, 0, 0)
        return (version, facts.st_ino, facts.st_mtime_ns)

    def add(self, model: Recommender[object]) -> int:
        """Write a model as the next version, whole or not at all; it is not served yet."""
        version = self.all()[-1] + 1
        model.save(self.folder(version))
        return version

    def switch(self, version: int) -> None:
        """Name the version to serve.

        Raises:
            ParameterError: There is no such version.
        """
        if self.made(version) is None:
            known = ", ".join(str(number) for number in self.all() if self.made(number))
            raise ParameterError(f"There is no version {version} of {self.base}: there is {known}.")
        with atomic_write(self.pointer) as unfinished:
            unfinished.write_text(f"{version}\n", encoding="ascii")
