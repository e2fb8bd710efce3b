"""The list of a folder in parts: what belongs to it, with checksums, and what is known of it.

It is written last, and the folder takes its name after that: a set is whole, or there is none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PanicException, PolarsError

from transcf.data.split import Recipe
from transcf.errors import DataError

Counts: TypeAlias = npt.NDArray[np.int64]

NAME = "parted.json"
#: Tables `id, train, validation, test`: events in each part of the split.
USERS, ITEMS = "users.parquet", "items.parquet"
#: Table `item_id, category`, where the log had some.
CATEGORIES = "categories.parquet"
#: Parts of the split, by their numbers in the tables of events.
PARTS = ("train", "validation", "test")
_VERSION = 1


@dataclass(frozen=True)
class Manifest:
    """What a folder in parts says of itself.

    Attributes:
        recipe: How the events were split.
        report: What was merged or left out on the way, and how large the parts of the split are.
        log_report: The same without the split.
        timed: Whether events have times.
        times_are_dates: Whether these were given as dates.
        rated: Whether events have ratings.
        starts: The first user of each partition, and the number of users, (partitions + 1,).
        files: SHA-256 of each file.
    """

    recipe: Recipe
    report: list[dict[str, Any]]
    log_report: list[dict[str, Any]]
    timed: bool
    times_are_dates: bool
    rated: bool
    starts: list[int]
    files: dict[str, str]

    def write(self, folder: Path) -> None:
        """Write it down; the last thing that is written."""
        text = json.dumps({"version": _VERSION, **asdict(self)}, indent=1)
        (folder / NAME).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read what `write` wrote.

        Raises:
            DataError: There is none, or it is damaged or of another version.
        """
        if not (folder / NAME).is_file():
            raise DataError(f"{folder} holds no log in parts: it has no {NAME}.")
        try:
            head = json.loads((folder / NAME).read_text(encoding="utf-8"))
            version = head.pop("version")
            if version != _VERSION:
                raise DataError(
                    f"{folder} is a log in parts of version {version}, this library reads "
                    f"{_VERSION}: prepare it anew."
                )
            return cls(**head)
        except (OSError, KeyError, ValueError, TypeError, AttributeError) as problem:
            raise _damaged(folder / NAME) from problem

    def table(self, folder: Path, name: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Read a table of the folder, or some of its columns, if it is the one that was written.

        Raises:
            DataError: It is missing or damaged.
        """
        try:
            if self.files[name] != digest_of(folder / name):
                raise _damaged(folder / name)
            return pl.read_parquet(
                folder / name,
                columns=None if columns is None else list(columns),
                glob=False,
            )
        except (PolarsError, PanicException, OSError, KeyError) as problem:
            raise _damaged(folder / name) from problem


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def partition_name(number: int) -> str:
    """Return the name of a partition's file.

    Example:
        >>> partition_name(7)
        'part-00007.parquet'
    """
    return f"part-{number:05}.parquet"


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} is missing or damaged: prepare {path.parent} anew.")
