"""Items: a table with their titles, categories and further columns, and full-text search.

Texts are compared in lower case, without accents and punctuation. All words of a query must be
found, in any order; the last one may be the beginning of a word. If nothing is found, one word may
have a typo: a letter too many, missing, wrong or swapped with the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import Rows
from transcf.data.interactions import Mask
from transcf.data.validate import Place, Role, category_lists, usual_roles
from transcf.errors import DataError

#: Usual names of the title column.
_TITLES = ("title", "name", "label")
#: Endings of the files that are read, and separators of those with columns of text.
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_ENDINGS = (*_SEPARATORS, ".jsonl", ".ndjson", ".parquet")
#: Letters of the shortest word that may have a typo.
_MIN_TYPO_LENGTH = 4
#: What often follows a title: a year or a note in parentheses.
_APPENDIX = r"\s*\([^()]*\)\s*$"


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
        lists = category_lists(frame[category], Place(str(path), category)).to_list()
    found: dict[str, ItemMetadata] = {}
    for row, names in zip(frame.iter_rows(named=True), lists, strict=True):
        kept = {name: row[name] for name in others if row[name] not in (None, "")}
        named = None if title is None or row[title] is None else str(row[title])
        found[str(row[item])] = ItemMetadata(named, tuple(names or ()), kept)
    return found


def _roles(names: Sequence[str]) -> list[Role | None]:
    return usual_roles(["item_id" if name.lower() == "id" else name for name in names])


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
        options: Any = {"separator": _SEPARATORS[ending], "glob": False}
        names = pl.read_csv(path, n_rows=0, **options).columns
        text = {  # ids, titles and categories stay text
            name: pl.String
            for name, role in zip(names, _roles(names), strict=True)
            if role in ("item", "category") or name.lower() in _TITLES
        }
        return pl.read_csv(path, schema_overrides=text, infer_schema_length=None, **options)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a table: {error}.") from error


# -- search --------------------------------------------------------------------------------------


def _fold(texts: pl.Series) -> pl.Series:
    """Return texts as words of lower-case letters and digits, separated by single blanks."""
    plain = texts.str.normalize("NFKD").str.replace_all(r"\p{M}", "").str.to_lowercase()
    return plain.str.replace_all(r"[^\p{L}\p{N}]+", " ").str.strip_chars()


class TextIndex:
    """An index of short texts with an id each; those with larger counts come first.

    A query may also be the beginning or a part of an id.
    """

    def __init__(
        self, ids: pl.Series, counts: npt.NDArray[np.integer], titles: Sequence[str]
    ) -> None:
        self._ids, self._counts = ids.cast(pl.String).str.to_lowercase(), counts
        column = pl.Series(titles, dtype=pl.String)
        self._folded, self._short = _fold(column), _fold(column.str.replace(_APPENDIX, ""))

    @cached_property
    def _words(self) -> tuple[pl.Series, Rows, npt.NDArray[np.int64]]:
        """Distinct words, ascending; rows of the texts with each of them; where those begin."""
        rows = pl.Series("row", np.arange(len(self._folded), dtype=np.int32))
        table = pl.DataFrame({"word": self._folded.str.split(" "), "row": rows}).explode("word")
        table = table.filter(pl.col("word") != "").unique().sort("word", "row")
        counts = table.group_by("word", maintain_order=True).len()
        starts = np.concatenate([[0], np.cumsum(counts["len"].to_numpy())]).astype(np.int64)
        return counts["word"], table["row"].to_numpy(), starts

    def find(self, query: str, k: int) -> list[int]:
        """Return the rows of the best texts.

        Exact ids and titles come first, then texts with all words, then those with a typo, then
        those with the query somewhere inside; each by count.
        """
        plain = query.strip().lower()
        if not plain:
            return [int(row) for row in np.argsort(-self._counts, kind="stable")[:k]]
        words = _fold(pl.Series([query]))[0].split()
        has_words = self._has_words(words)
        is_exact = self._is_exact(words, has_words) | (self._ids == plain).to_numpy()
        kinds = [is_exact, has_words | self._ids.str.starts_with(plain).to_numpy()]
        if not any(kind.any() for kind in kinds):
            long = [n for n, word in enumerate(words) if len(word) >= _MIN_TYPO_LENGTH]
            if long:
                kinds.append(np.any([self._has_words(words, typo=n) for n in long], axis=0))
        if words and sum(int(kind.sum()) for kind in kinds) < k:
            kinds.append(self._contains(" ".join(words), plain))
        rank = np.full(len(self._ids), len(kinds))
        for number, kind in reversed(list(enumerate(kinds))):
            rank[kind] = number
        rows = np.flatnonzero(rank < len(kinds))
        order = np.lexsort((rows, -self._counts[rows], rank[rows]))
        return [int(row) for row in rows[order][:k]]

    def _is_exact(self, words: Sequence[str], has_words: Mask) -> Mask:
        """Return which titles, with or without what follows them, are the words in any order."""
        found, size = np.zeros(len(self._ids), dtype=bool), len(" ".join(words).encode())
        for texts in (self._folded, self._short):
            same_size = (texts.str.len_bytes() == size).to_numpy()
            for row in np.flatnonzero(has_words & same_size).tolist():
                found[row] |= sorted(texts[row].split()) == sorted(words)
        return found

    def _contains(self, folded: str, plain: str) -> Mask:
        inside = self._ids.str.contains(plain, literal=True)
        return (inside | self._folded.str.contains(folded, literal=True)).to_numpy().copy()

    def _has_words(self, words: Sequence[str], typo: int | None = None) -> Mask:
        """Return which texts have all words; the last may be the beginning of one.

        The word at the place `typo` has a typo.
        """
        found = np.full(len(self._ids), bool(words))
        vocabulary, rows, starts = self._words
        for place, word in enumerate(words):
            is_last = place == len(words) - 1
            if place == typo:
                matches = vocabulary.str.contains(_typo_pattern(word, is_last))
            else:
                matches = vocabulary.str.starts_with(word) if is_last else vocabulary == word
            has_word = np.zeros(len(self._ids), dtype=bool)
            for number in np.flatnonzero(matches.to_numpy()).tolist():
                has_word[rows[starts[number] : starts[number + 1]]] = True
            found &= has_word
        return found


def _typo_pattern(word: str, is_last: bool) -> str:
    """Return a regular expression of words that differ by one letter, or two swapped ones."""
    forms = []
    for place in range(len(word)):
        before, after = word[:place], word[place + 1 :]
        forms += [f"{before}.{after}", f"{before}.{word[place:]}", before + after]
        if after:
            forms.append(before + after[0] + word[place] + after[1:])
    forms.append(f"{word}.")
    return f"^(?:{'|'.join(forms)})" + ("" if is_last else "$")
