"""Item metadata from a table: titles, categories and further columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from transcf.data.validate import Place, Role, category_lists, usual_roles
from transcf.errors import DataError

#: Usual names of the title column.
_TITLES = ("title", "name", "label")


#: Endings of the files that are read, and separators of those with columns of text.
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_ENDINGS = (*_SEPARATORS, ".jsonl", ".ndjson", ".parquet")


def is_table(path: Path) -> bool:
    """Return whether the extension of a file is one that `read_item_metadata` reads."""
    return path.suffix.lower() in _ENDINGS


@dataclass(frozen=True)
class ItemMetadata:
    """Metadata of one item; `others` has the further columns without empty values."""

    title: str | None = None
    categories: tuple[str, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)


#: Metadata of an item that is not in the table.
NO_METADATA = ItemMetadata()


def read_item_metadata(path: Path) -> dict[str, ItemMetadata]:
    """Read a table of items; return metadata by item id as text.

    Args:
        path: CSV, TSV, JSON lines or Parquet with a column of item ids and optional columns
            `title` and `category` (see `category_lists`).
    """
    frame = _read(path)
    roles = dict(zip(frame.columns, _roles(frame.columns), strict=True))
    found_ids = [name for name, role in roles.items() if role == "item"]
    if len(found_ids) != 1:
        what = "several columns that could be" if found_ids else "no column of"
        raise DataError(f"{path} has {what} item ids: name one item_id.")
    item = found_ids[0]
    title = next((name for name in frame.columns if name.lower() in _TITLES), None)
    category = next((n for n, role in roles.items() if n != title and role == "category"), None)
    others = [name for name in frame.columns if name not in (item, title, category)]
    ids = frame[item].cast(pl.String)
    if ids.null_count():
        raise DataError(f"{path}: row {ids.is_null().arg_max()} has no item id: give it one.")
    if ids.n_unique() < len(ids):
        twice = ids.filter(ids.is_duplicated())[0]
        raise DataError(f"{path} has item {twice!r} twice: keep one line for each item.")
    lists: list[list[str] | None] = [[]] * len(frame)
    if category is not None:
        place = Place(str(path), category, lambda row: f"{path}: row {row + 1:,}")
        lists = category_lists(frame[category], place).to_list()
    found: dict[str, ItemMetadata] = {}
    for row, names in zip(frame.iter_rows(named=True), lists, strict=True):
        kept = {name: row[name] for name in others if row[name] not in (None, "")}
        named = None if title is None or row[title] is None else str(row[title])
        found[str(row[item])] = ItemMetadata(named, tuple(names or ()), kept)
    return found


def _read(path: Path) -> pl.DataFrame:
    if not path.is_file():
        raise DataError(f"There is no file {path} with items.")
    if not is_table(path):
        raise DataError(f"{path} is not understood by its ending: use {', '.join(_ENDINGS)}.")
    ending = path.suffix.lower()
    try:
        if ending == ".parquet":
            return pl.read_parquet(path, glob=False)
        if ending not in _SEPARATORS:
            return pl.read_ndjson(path.read_bytes(), infer_schema_length=None)
        return _read_text(path, _SEPARATORS[ending])
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a table: {error}.") from error


def _read_text(path: Path, separator: str) -> pl.DataFrame:
    """Read a delimited file; ids, titles and categories stay text."""
    names = pl.read_csv(path, separator=separator, n_rows=0, glob=False).columns
    text = {
        name: pl.String
        for name, role in zip(names, _roles(names), strict=True)
        if role in ("item", "category") or name.lower() in _TITLES
    }
    return pl.read_csv(
        path,
        separator=separator,
        schema_overrides=text,
        infer_schema_length=None,
        try_parse_dates=False,
        glob=False,
    )


def _roles(names: Sequence[str]) -> list[Role | None]:
    return usual_roles(["item_id" if name.lower() == "id" else name for name in names])
