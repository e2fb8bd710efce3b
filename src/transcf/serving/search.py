"""Full-text search in ids, titles and categories.

Text is compared in lower case, without accents and punctuation. All words of a query must be found,
in any order; the last one may be the beginning of a word. If nothing is found, one word may have a
typo: a letter too many, missing, wrong or swapped with the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import Rows
from transcf.data.interactions import Mask

#: Letters of the shortest word that may have a typo.
_MIN_TYPO_LENGTH = 4
#: What often follows a title: a year or a note in parentheses.
_APPENDIX = r"\s*\([^()]*\)\s*$"


def fold(texts: pl.Series) -> pl.Series:
    """Return texts as words of lower-case letters and digits, separated by single blanks."""
    plain = texts.str.normalize("NFKD").str.replace_all(r"\p{M}", "").str.to_lowercase()
    return plain.str.replace_all(r"[^\p{L}\p{N}]+", " ").str.strip_chars()


def _sorted_words(folded: pl.Series) -> pl.Series:
    return folded.str.split(" ").list.sort().list.join(" ")


class TextIndex:
    """An index of short texts with an id each; those with larger counts come first.

    A query may also be the beginning or a part of an id.
    """

    def __init__(self, ids: pl.Series, titles: pl.Series, counts: npt.NDArray[np.integer]) -> None:
        self._ids, self._titles, self._counts = ids.str.to_lowercase(), titles, counts
        self._folded = fold(titles)

    @cached_property
    def _exact(self) -> tuple[pl.Series, pl.Series]:
        """Words of titles in alphabetical order, with and without what follows the title."""
        short = fold(self._titles.str.replace(_APPENDIX, ""))
        return _sorted_words(self._folded), _sorted_words(short)

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
        if not query.strip():
            return [int(row) for row in np.argsort(-self._counts, kind="stable")[:k]]
        words = fold(pl.Series([query]))[0].split()
        plain = query.strip().lower()
        kinds = [self._is_exact(words, plain), self._has_words(words)]
        kinds[1] |= self._ids.str.starts_with(plain).to_numpy()
        if not any(kind.any() for kind in kinds):
            long = [n for n, word in enumerate(words) if len(word) >= _MIN_TYPO_LENGTH]
            if long:
                kinds.append(np.any([self._has_words(words, typo=n) for n in long], axis=0))
        if len(words) and sum(int(kind.sum()) for kind in kinds) < k:
            kinds.append(self._contains(" ".join(words), plain))
        rank = np.full(len(self._ids), len(kinds))
        for number, kind in reversed(list(enumerate(kinds))):
            rank[kind] = number
        rows = np.flatnonzero(rank < len(kinds))
        order = np.lexsort((rows, -self._counts[rows], rank[rows]))
        return [int(row) for row in rows[order][:k]]

    def _is_exact(self, words: Sequence[str], plain: str) -> Mask:
        sought = " ".join(sorted(words))
        found = (self._ids == plain).to_numpy().copy()
        for titles in self._exact if sought else ():
            found |= (titles == sought).to_numpy()
        return found

    def _contains(self, folded: str, plain: str) -> Mask:
        inside = self._ids.str.contains(plain, literal=True)
        if folded:
            inside = inside | self._folded.str.contains(folded, literal=True)
        return inside.to_numpy().copy()

    def _has_words(self, words: Sequence[str], typo: int | None = None) -> Mask:
        """Return which texts have all words; the last may be the beginning of one.

        The word at the place `typo` has a typo.
        """
        found = np.full(len(self._ids), bool(words))
        vocabulary = self._words[0]
        for place, word in enumerate(words):
            is_last = place == len(words) - 1
            if place == typo:
                matches = vocabulary.str.contains(_typo_pattern(word, is_last))
            else:
                matches = vocabulary.str.starts_with(word) if is_last else vocabulary == word
            found &= self._rows_of(np.flatnonzero(matches.to_numpy()))
        return found

    def _rows_of(self, numbers: npt.NDArray[np.integer]) -> Mask:
        """Return which texts have any of some words of the vocabulary."""
        _, rows, starts = self._words
        found = np.zeros(len(self._ids), dtype=bool)
        for number in numbers.tolist():
            found[rows[starts[number] : starts[number + 1]]] = True
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
