"""Which files a path means: `~`, patterns, several of them, and folders of tables."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from os import PathLike, fspath
from pathlib import Path

from transcf.errors import DataError, ParameterError, shown

#: What the name of a file may end in, by the kind of its content.
DELIMITED = (".csv", ".tsv", ".dat", ".data", ".txt")
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
#: Files of a folder that are looked at; of a whole disk there is no end.
_MOST_FILES = 100_000
ENDINGS = (*DELIMITED, *JSON_LINES, *PARQUET)


def path_of(value: str | PathLike[str]) -> Path:
    """Return a path that a caller gave, with `~` written out; for files and folders of any kind.

    Raises:
        ParameterError: It is not a path, or the home folder that it names does not exist.

    Example:
        >>> path_of("~/model") == Path.home() / "model"
        True
    """
    if not isinstance(value, str | PathLike):
        raise ParameterError(f"{shown(value)} is not a path: give text or a pathlib.Path.")
    try:
        return Path(value).expanduser()
    except (TypeError, RuntimeError) as error:
        raise ParameterError(f"{shown(value)} cannot be used as a path: {error}") from error


def user_path(spec: str | PathLike[str]) -> Path:
    """Return a path that can be asked for, with `~` written out.

    Example:
        >>> user_path("~/events.csv") == Path.home() / "events.csv"
        True
    """
    if not isinstance(spec, str | PathLike):
        raise ParameterError(f"{shown(spec)} is not a path: give text or a pathlib.Path.")
    text = fspath(spec)
    try:
        path = Path(text).expanduser()
        path.exists()
    except (OSError, ValueError, RuntimeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise DataError(f"{shown(text)} is no path that can be read: {reason}.") from problem
    return path


def ending_of(path: Path) -> str | None:
    """Return the ending that tells the kind of a file, `.gz` aside, or None if it tells none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in ENDINGS else None


def files_of(spec: str | PathLike[str]) -> list[Path]:
    """Return the files that a path, a pattern such as `logs/*.csv`, or a folder means, in order.

    Of a folder these are all files with a known ending, in folders inside of it too, without
    those whose name starts with a dot or an underscore; all have to be of one kind.
    """
    path = user_path(spec)
    if path.is_dir():
        return folder_files(path)
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    # A folder that exists is meant by its name, as a file is.
    folder = next(parent for parent in path.parents if parent.exists())
    pattern = Path(glob.escape(str(folder)), path.relative_to(folder))
    found = [Path(match) for match in sorted(glob.glob(str(pattern), recursive=True))]
    files = [match for match in found if match.is_file()]
    if not files:
        raise DataError(f"No file is called {path}: check the pattern.")
    return files


def folder_files(folder: Path) -> list[Path]:
    """Return the tables in a folder, as `files_of` does."""
    inside = list(islice(_tables(folder), _MOST_FILES + 1))
    if len(inside) > _MOST_FILES:
        raise DataError(
            f"{folder} is a folder with more than {_MOST_FILES:,} files in it: name those that "
            f"belong to the log."
        )
    files = sorted(path for path in inside if ending_of(path))
    if not files:
        raise DataError(
            f"{folder} is a folder without files that end in {', '.join(ENDINGS)}: name a file."
        )
    kinds = {_kind(path): path for path in reversed(files)}
    if len(kinds) > 1:
        one, other, *_ = sorted(path.relative_to(folder) for path in kinds.values())
        raise DataError(
            f"{folder} is a folder with files of several kinds ({one}, {other}): name those that "
            f"belong to the log, such as {folder}/*{one.suffix}."
        )
    return files


def _tables(folder: Path) -> Iterator[Path]:
    """All files in a folder, without those that are hidden or marked as no part of the data."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (Path(place, name) for name in names if not name.startswith((".", "_")))


def are_paths(values: Iterable[object]) -> bool:
    """Tell whether these are several paths rather than pairs of ids."""
    return all(isinstance(value, str | PathLike) for value in values)


def _kind(path: Path) -> tuple[str, ...]:
    ending = ending_of(path)
    return next(kind for kind in (DELIMITED, JSON_LINES, PARQUET) if ending in kind)
