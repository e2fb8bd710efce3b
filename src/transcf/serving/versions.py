"""Versions of a model: the folder it was saved to, those beside it, and a file that names one.

Version 1 is the folder itself, say `models/shop`. Later ones are `models/shop.versions/2` and so
on, and `models/shop.versions/current` holds the number of the one to serve. A version never
changes once it has its name, and the file is replaced in one step, so that a reader sees the old
number or the new one.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from transcf.data.atomic import whole_file
from transcf.errors import ModelFileError, ParameterError
from transcf.models.recommender import Recommender
from transcf.storage.description import NAME

_POINTER = "current"
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


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
    def beside(self) -> Path:
        """Where later versions lie."""
        return self.base.with_name(f"{self.base.name}.versions")

    @property
    def pointer(self) -> Path:
        """The file that names the current version."""
        return self.beside / _POINTER

    def check(self) -> None:
        """Raise a `ModelFileError` where there is no model: before anything is made beside it."""
        if not self.base.is_dir():
            raise ModelFileError(f"There is no model folder {self.base}.")

    def folder(self, version: int) -> Path:
        """Return where a version is, or would be."""
        return self.base if version == 1 else self.beside / str(version)

    def current(self) -> int:
        """Return the number of the version to serve.

        Raises:
            ModelFileError: The file does not hold one.
        """
        try:
            text = self.pointer.read_bytes()[:100].decode("ascii", "replace").strip()
        except FileNotFoundError:
            return 1
        except OSError as error:
            raise ModelFileError(f"{self.pointer} cannot be read: {error.strerror}.") from error
        if not _NUMBER.fullmatch(text):
            raise ModelFileError(
                f"{self.pointer} does not hold the number of a version: write one into it, or "
                "name one with `transcf refresh --back-to`."
            )
        return int(text)

    def all(self) -> list[int]:
        """Return the numbers of the versions that have a name, whole or not, ascending."""
        found = {1} if self.base.is_dir() else set()
        if self.beside.is_dir():
            found |= {int(p.name) for p in self.beside.iterdir() if _NUMBER.fullmatch(p.name)}
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
        with whole_file(self.pointer) as unfinished:
            unfinished.write_text(f"{version}\n", encoding="ascii")
