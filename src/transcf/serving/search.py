"""Search for users and items by ids and titles."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import IdMap
from transcf.serving.loaded_model import LoadedModel


class Search:
    """Finds items and users of one version.

    What begins with the words that are looked for comes first, then what has them anywhere; of
    both, what has most training events.

    Args:
        served: The version.
    """

    def __init__(self, served: LoadedModel) -> None:
        """Keep it."""
        self._served = served

    def __call__(self, words: str, kind: str, k: int) -> dict[str, Any]:
        """Return what was found."""
        found: dict[str, Any] = {"version": self._served.version, "items": [], "users": []}
        if kind in ("items", "all"):
            found["items"] = self._found_items(words, k)
        if kind in ("users", "all"):
            found["users"] = self._found_users(words, k)
        return found

    def _found_items(self, words: str, k: int) -> list[dict[str, Any]]:
        served, counts = self._served, self._served.learned.known.item_counts
        rows = _best(self._item_text, words, counts, k)
        return [
            {
                "item": served.items.series[row],
                "title": served.item_facts[row].title,
                "categories": list(served.item_facts[row].categories),
                "users": int(counts[row]),
            }
            for row in rows
        ]

    def _found_users(self, words: str, k: int) -> list[dict[str, Any]]:
        served, counts = self._served, self._user_counts
        rows = _best(self._user_text, words, counts, k)
        return [{"user": served.users.series[row], "count": int(counts[row])} for row in rows]

    @cached_property
    def _item_text(self) -> pl.Series:
        """Ids and titles; a line break stands before every word that may be looked for."""
        titles = pl.Series([fact.title or "" for fact in self._served.item_facts], dtype=pl.String)
        words = titles.str.to_lowercase().str.replace_all(r"\s+", "\n")
        return _text(self._served.items) + "\n" + words

    @cached_property
    def _user_text(self) -> pl.Series:
        return _text(self._served.users)

    @cached_property
    def _user_counts(self) -> npt.NDArray[np.int64]:
        return self._served.learned.known.seen.counts


def _text(ids: IdMap) -> pl.Series:
    return "\n" + ids.series.cast(pl.String).str.to_lowercase()


def _best(text: pl.Series, words: str, counts: npt.NDArray[np.int64], k: int) -> list[int]:
    """Rows whose text has the words, beginnings first, then by count."""
    wanted = "\n".join(words.lower().split())
    if not wanted:
        return [int(row) for row in np.argsort(-counts, kind="stable")[:k]]
    anywhere = text.str.contains(wanted, literal=True).to_numpy()
    rows = np.flatnonzero(anywhere)
    begins = text.gather(rows).str.contains("\n" + wanted, literal=True).to_numpy()
    order = np.lexsort((rows, -counts[rows], ~begins))
    return [int(row) for row in rows[order][:k]]
