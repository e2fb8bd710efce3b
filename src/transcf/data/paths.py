"""Paths that callers give: `~`, patterns, and folders of tables."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from itertools import islice
from os import PathLike, fspath
from pathlib import Path

from transcf.errors import DataError, ParameterError, shown

#: Endings of file names, by kind of content.
DELIMITED = (".csv", ".tsv", ".dat", ".data", ".txt")
JSON_LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
ENDINGS = (*DELIMITED, *JSON_LINES, *PARQUET)
#: Limit of files in a folder, so that a path such as "/" gives an error instead of a long search.
_MOST_FILES = 100_000


def path_of(value: str | PathLike[str]) -> Path:
    """Return a path that a caller gave, with `~` expanded.

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
    """Return the path of a source of data, with `~` expanded; raise if the system rejects it."""
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
    """Return the known ending of a file name, `.gz` aside, or None."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in ENDINGS else None


def files_of(spec: str | PathLike[str]) -> list[Path]:
    """Return the files of a path, a pattern such as `logs/*.csv`, or a folder, in order.

    Of a folder these are all files with a known ending, including those in subfolders, except
    for names that start with a dot or an underscore; all have to be of one kind.
    """
    path = user_path(spec)
    if path.is_dir():
        return _folder_files(path)
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    # The part of the path that exists is not a pattern.
    folder = next(parent for parent in path.parents if parent.exists())
    pattern = Path(glob.escape(str(folder)), path.relative_to(folder))
    found = [Path(match) for match in sorted(glob.glob(str(pattern), recursive=True))]
    files = [match for match in found if match.is_file()]
    if not files:
        raise DataError(f"No file is called {path}: check the pattern.")
    return files


def _folder_files(folder: Path) -> list[Path]:
    inside = list(islice(_visible_files(folder), _MOST_FILES + 1))
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


def _visible_files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (Path(place, name) for name in names if not name.startswith((".", "_")))


def _kind(path: Path) -> tuple[str, ...]:
    ending = ending_of(path)
    return next(kind for kind in (DELIMITED, JSON_LINES, PARQUET) if ending in kind)
