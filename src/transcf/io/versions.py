"""Which version of a model a folder stands for.

Version 1 is the folder itself, say `models/shop`. Later ones are `models/shop.versions/2` and so
on, and `models/shop.versions/current` holds the number of the one to use. Everything that reads a
model by the name of its folder uses that version: `transcf.load`, every command, and the service.
"""

from __future__ import annotations

import errno
import re
from os import PathLike
from pathlib import Path

from transcf.data.paths import path_of
from transcf.errors import ModelFileError

#: How a version is numbered.
NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def versions_folder(base: Path) -> Path:
    """Return the folder of the later versions of a model."""
    absolute = base.absolute()
    return absolute.parent / f"{absolute.name}.versions"


def pointer_file(base: Path) -> Path:
    """Return the file that names the current version of a model."""
    return versions_folder(base) / "current"


def version_folder(base: Path, version: int) -> Path:
    """Return where a version of a model is, or would be."""
    return base if version == 1 else versions_folder(base) / str(version)


def current_version(base: Path) -> int:
    """Return the number of the current version of a model.

    Raises:
        ModelFileError: The file that names it does not hold a number.
    """
    pointer = pointer_file(base)
    try:
        text = pointer.read_bytes()[:100].decode("ascii", "replace").strip()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return 1
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # then there cannot be other versions
            return 1
        raise ModelFileError(f"{pointer} cannot be read: {error.strerror}.") from error
    if not NUMBER.fullmatch(text):
        raise ModelFileError(
            f"{pointer} does not hold the number of a version: write one into it, or name one with "
            "`transcf refresh --back-to`."
        )
    return int(text)


def current_folder(folder: str | PathLike[str]) -> Path:
    """Return the folder of the current version of a model.

    Example:
        >>> current_folder("models/shop").as_posix()
        'models/shop'
    """
    base = path_of(folder)
    return version_folder(base, current_version(base))
