"""Forgets compiled kernels that no longer fit their sources.

numba looks at the file of a function alone: it would run old code when something that the function
calls has changed in another file, and cannot even read its index once a class in there is gone.
"""

from __future__ import annotations

import os
from pathlib import Path


def forget_stale(folder: Path) -> None:
    """Delete what numba has kept in a package's `__pycache__` if any source there has changed."""
    cache = folder / "__pycache__"
    stamp = cache / "sources.txt"
    states = ((path.name, path.stat()) for path in sorted(folder.glob("*.py")))
    found = "".join(f"{name} {state.st_mtime_ns} {state.st_size}\n" for name, state in states)
    try:
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == found:
            return
        cache.mkdir(exist_ok=True)
        for stale in (*cache.glob("*.nbi"), *cache.glob("*.nbc")):
            stale.unlink(missing_ok=True)
        written = stamp.with_name(f"{stamp.name}.{os.getpid()}")
        written.write_text(found, encoding="utf-8")
        written.replace(stamp)
    except OSError:
        return  # a folder that cannot be written to: numba keeps nothing in it either
