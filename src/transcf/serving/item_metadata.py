"""Item metadata from a table: titles, categories and further columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from transcf.data.validate import Place, category_lists, usual_role
from transcf.errors import DataError

#: Usual names of the title column.
_TITLES = ("title", "name", "label")


def _read_text(path: Path, separator: str) -> pl.DataFrame:
    """Read a delimited file; only columns other than ids, titles and categories become numbers."""
    frame = pl.read_csv(path, separator=separator, infer_schema=False, glob=False)
    others = [
        name
        for name in frame.columns
        if not _is_id(name) and usual_role(name) != "category" and name.lower() not in _TITLES
    ]
    return frame.with_columns(_as_numbers(frame[name]) for name in others)


def _as_numbers(text: pl.Series) -> pl.Series:
    """Return a column as integers or floats if all values are numbers, else unchanged."""
    for kind in (pl.Int64, pl.Float64):
        numbers = text.cast(kind, strict=False)
        if numbers.null_count() == text.null_count():
            return numbers
    return text


def _read_json(path: Path) -> pl.DataFrame:
    return pl.read_ndjson(path.read_bytes(), infer_schema_length=None)


def _is_id(name: str) -> bool:
    return usual_role(name) == "item" or name.lower() == "id"


_READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": lambda path: _read_text(path, ","),
    ".tsv": lambda path: _read_text(path, "\t"),
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".parquet": lambda path: pl.read_parquet(path, glob=False),
}


def is_table(path: Path) -> bool:
    """Return whether the extension of a file is one that `read_item_metadata` reads."""
    return path.suffix.lower() in _READERS


@dataclass(frozen=True)
class ItemMetadata:
    """Metadata of one item.

    Attributes:
        title: Title; None if it has none.
        categories: In the order of the table.
        others: Further columns by name, without empty values.
    """

    title: str | None = None
    categories: tuple[str, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)


#: Metadata of an item that is not in the table.
NO_METADATA = ItemMetadata()


def read_item_metadata(path: Path) -> dict[str, ItemMetadata]:
    r"""Read a table of items; return metadata by item id as text.

    Args:
        path: CSV, TSV, JSON lines or Parquet with a column of item ids and optional columns
            `title` and `category` (see `category_lists`).

    Raises:
        DataError: The table cannot be used.

    Example:
        >>> _ = Path("items.csv").write_text("item_id,title,category\n7,Sencha,green|new")
        >>> read_item_metadata(Path("items.csv"))["7"].categories
        ('green', 'new')
    """
    frame = _read(path)
    item = _id_column(frame, path)
    title = next((name for name in frame.columns if name.lower() in _TITLES), None)
    category = next((n for n in frame.columns if n != title and usual_role(n) == "category"), None)
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
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path} is not understood by its ending: use {', '.join(_READERS)}.")
    try:
        return reader(path)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a table: {error}.") from error


def _id_column(frame: pl.DataFrame, path: Path) -> str:
    found = [name for name in frame.columns if _is_id(name)]
    if len(found) != 1:
        what = "several columns that could be" if found else "no column of"
        raise DataError(f"{path} has {what} item ids: name one item_id.")
    return found[0]
