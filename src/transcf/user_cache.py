"""The folder in which this library keeps what can be computed or downloaded again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache() -> Path:
    """Return the folder of this library in the user's cache.

    That is `transcf` in $XDG_CACHE_HOME, else in ~/.cache, on macOS in ~/Library/Caches, and on
    Windows in %LOCALAPPDATA%.

    Raises:
        FileNotFoundError: The user has no home folder.
    """
    if root := os.environ.get("XDG_CACHE_HOME"):
        return Path(root) / "transcf"
    if sys.platform == "win32" and (root := os.environ.get("LOCALAPPDATA")):
        return Path(root) / "transcf"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise FileNotFoundError(
            "This user has no home folder: set XDG_CACHE_HOME to a folder for caches."
        ) from error
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "transcf"
