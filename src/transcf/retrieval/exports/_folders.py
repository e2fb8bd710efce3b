"""Folders that appear whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transcf.data.atomic import atomic_write_dir
from transcf.errors import DataError

#: Marks a folder as one that may be replaced.
MARK = "vectors.json"


@contextmanager
def fresh_folder(target: Path, kind: str, width: int, score: str) -> Iterator[Path]:
    """Give a neighbour to write to; at the end it takes the place of an earlier export, if any.

    Args:
        target: Where the folder goes.
        kind: Of store.
        width: Length of the vectors.
        score: How they give a score, in words.

    Raises:
        DataError: The target holds something that is not an export.
    """
    taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if taken and not (target / MARK).is_file():
        raise DataError(f"{target} exists and is not an export: choose another folder.")
    with atomic_write_dir(target) as fresh:
        yield fresh
        about = {
            "format": f"transcf-vectors-{kind}",
            "version": 1,
            "width": width,
            "score": score,
        }
        (fresh / MARK).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
