"""Processes of Ray that a test has started."""

from __future__ import annotations

import os
from pathlib import Path


def processes_called(name: str) -> list[int]:
    """Return this test's workers by what Ray calls them, and by who started them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            is_called = line.startswith(name.encode())
            if is_called and _parent(_parent(int(folder.name))) == os.getpid():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _parent(process: int) -> int:
    stat = Path(f"/proc/{process}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
