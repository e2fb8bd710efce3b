"""Compiled kernels are kept as long as all sources are the same."""

from __future__ import annotations

import os
from pathlib import Path

import transcf.kernels
from transcf.kernels._cache import forget_stale


def test_what_is_compiled_goes_when_any_source_changes(tmp_path: Path) -> None:
    source, cache = tmp_path / "kernel.py", tmp_path / "__pycache__"
    source.write_text("x = 1")
    forget_stale(tmp_path)
    kept = [cache / "kernel.f-1.py311.nbi", cache / "kernel.f-1.py311.1.nbc"]
    other = cache / "kernel.cpython-311.pyc"
    for path in (*kept, other):
        path.write_bytes(b"compiled")
    forget_stale(tmp_path)
    assert all(path.exists() for path in kept)
    os.utime(source, ns=(0, 0))
    forget_stale(tmp_path)
    assert not any(path.exists() for path in kept)
    assert other.exists()


def test_the_kernels_of_the_library_are_looked_after() -> None:
    folder = Path(transcf.kernels.__file__).parent
    names = [line.split()[0] for line in (folder / "__pycache__" / "sources.txt").open()]
    assert names == sorted(path.name for path in folder.glob("*.py"))
