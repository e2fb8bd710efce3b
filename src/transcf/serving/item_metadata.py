"""What is known of items beside the events: titles, categories and whatever else a table has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from transcf.data.validate import Place, category_lists, usual_role
from transcf.errors import DataError

#: Usual names of the column with titles.
_TITLES = ("title", "name", "label")


def _read_text(path: Path, separator: str) -> pl.DataFrame:
    """Read a text file; numbers become numbers, apart from what names something."""
    frame = pl.read_csv(path, separator=separator, infer_schema=False, glob=False)
    others = (name for name in frame.columns if not (_is_id(name) or _is_words(name)))
    return frame.with_columns(_as_numbers(frame[name]) for name in others)


def _as_numbers(text: pl.Series) -> pl.Series:
    """Return text as integers or floats if all of its values are such, else as it is."""
    for kind in (pl.Int64, pl.Float64):
        numbers = text.cast(kind, strict=False)
        if numbers.null_count() == text.null_count():
            return numbers
    return text


def _read_json(path: Path) -> pl.DataFrame:
    return pl.read_ndjson(path.read_bytes(), infer_schema_length=None)


def _is_id(name: str) -> bool:
    return usual_role(name) == "item" or name.lower() == "id"


def _is_words(name: str) -> bool:
    return usual_role(name) == "category" or name.lower() in _TITLES


_READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": lambda path: _read_text(path, ","),
    ".tsv": lambda path: _read_text(path, "\t"),
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".parquet": lambda path: pl.read_parquet(path, glob=False),
}


def is_table(path: Path) -> bool:
    """Tell by its ending whether `read_item_metadata` reads a file."""
    return path.suffix.lower() in _READERS


@dataclass(frozen=True)
class ItemMetadata:
    """What is known of one item.

    Attributes:
        title: Its name for people; None if it has none.
        categories: In the order of the table.
        others: Further columns by name, without those that are empty.
    """

    title: str | None = None
    categories: tuple[str, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)


#: Of an item that the table does not have.
NOTHING = ItemMetadata()


def read_item_metadata(path: Path) -> dict[str, ItemMetadata]:
    r"""Read a table of items: facts by id, which are text here.

    Args:
        path: CSV, TSV, JSON lines or Parquet with a column of item ids; the columns `title` and
            `category` may be there (see `category_lists`).

    Raises:
        DataError: The table cannot be used; the sentence says why.

    Example:
        >>> _ = Path("items.csv").write_text("item_id,title,category\n7,Sencha,green|new")
        >>> read_item_metadata(Path("items.csv"))["7"].categories
        ('green', 'new')
    """
    frame = _read(path)
    item = _column(frame, path)
    title = next((name for name in frame.columns if name.lower() in _TITLES), None)
    category = next((n for n in frame.columns if n != title and usual_role(n) == "category"), None)
    others = [name for name in frame.columns if name not in (item, title, category)]
    ids = frame[item].cast(pl.String)
    if ids.null_count():
        raise DataError(f"{path}: row {ids.is_null().arg_max()} has no item id: give it one.")
    if ids.n_unique() < len(ids):
        twice = ids.filter(ids.is_duplicated())[0]
        raise DataError(f"{path} has item {twice!r} twice: keep one line for each item.")
    lists = _category_lists(frame, category, path)
    found: dict[str, ItemMetadata] = {}
    for place, row in enumerate(frame.iter_rows(named=True)):
        kept = {name: row[name] for name in others if row[name] not in (None, "")}
        named = None if title is None or row[title] is None else str(row[title])
        found[str(row[item])] = ItemMetadata(named, tuple(lists[place]), kept)
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


def _column(frame: pl.DataFrame, path: Path) -> str:
    """Return the column of item ids."""
    found = [name for name in frame.columns if _is_id(name)]
    if len(found) != 1:
        what = "several columns that could be" if found else "no column of"
        raise DataError(f"{path} has {what} item ids: name one item_id.")
    return found[0]


def _category_lists(frame: pl.DataFrame, category: str | None, path: Path) -> list[list[str]]:
    """Return the categories of each row; those of a table without such a column are empty."""
    if category is None:
        return [[]] * len(frame)
    place = Place(str(path), category, lambda row: f"{path}: row {row + 1:,}")
    return [list(names or ()) for names in category_lists(frame[category], place).to_list()]
