"""Whom a request is about: users and, on request, strangers, who get what is popular."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Id, IdMap, Rows
from transcf.errors import ParameterError, shown
from transcf.models.fitted import FittedScorer
from transcf.models.item_filters import Filters, as_ids, best_items, check_fallback, check_length
from transcf.models.tables import listed, row_recommendations, user_rows
from transcf.retrieval.scorer import Scores
from transcf.retrieval.views import BlockView

#: What the column `source` says of a row.
MODEL, POPULARITY = "model", "popularity"


@dataclass(frozen=True)
class UserGroup:
    """Whom to answer, each once, in the order of the request.

    Attributes:
        rows: (n,) rows of users; `UNKNOWN` for strangers.
        ids: The ids, where there may be strangers; None where the request has no place for them.
    """

    rows: Rows
    ids: list[Id] | None = None

    @classmethod
    def of(cls, learned: FittedScorer, users: Any, filters: Filters) -> UserGroup:
        """Look ids up; those without training interactions raise, are skipped or are strangers."""
        check_fallback(filters.on_unknown)
        if filters.on_unknown != "popular":
            return cls(user_rows(learned, users, filters.on_unknown))
        known = learned.known
        if users is None:
            rows = user_rows(learned, None, "raise")
            return cls(rows, known.users.ids(rows).to_list())
        ids = list(dict.fromkeys(_checked(known.users, user) for user in as_ids(users, "user")))
        rows = known.users.rows(ids)
        return cls(np.where(known.active[rows], rows, np.int32(UNKNOWN)), ids)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.rows)

    def part(self, first: int, stop: int) -> UserGroup:
        """Return some of them."""
        return UserGroup(self.rows[first:stop], None if self.ids is None else self.ids[first:stop])


def recommendations(learned: FittedScorer, users: Any, k: int, filters: Filters) -> pl.DataFrame:
    """Build the table of `recommend`."""
    length = check_length(k, len(learned.known.items))
    return people_recommendations(learned, UserGroup.of(learned, users, filters), length, filters)


def people_recommendations(
    learned: FittedScorer, people: UserGroup, k: int, filters: Filters
) -> pl.DataFrame:
    """Build the table of `recommend`; with a column `source` where there may be strangers."""
    if people.ids is None:
        return row_recommendations(learned, people.rows, k, filters)
    known = learned.known
    found = np.full((len(people), k), UNKNOWN, dtype=np.int32)
    scores = np.full((len(people), k), np.nan, dtype=np.float32)
    is_known = people.rows != UNKNOWN
    if is_known.any():
        rows = people.rows[is_known]
        lists = best_items(learned, rows, k, known.seen, known.users, len(known.items), filters)
        found[is_known], scores[is_known] = lists
    if not is_known.all():
        strangers = [people.ids[place] for place in np.flatnonzero(~is_known)]
        found[~is_known], scores[~is_known] = popular_items(learned, strangers, k, filters)
    lengths = (found != UNKNOWN).sum(axis=1)
    kind = pl.String if known.users.is_text else pl.Int64
    owners = pl.Series("user_id", people.ids, dtype=kind).gather(
        pl.Series(np.repeat(np.arange(len(people)), lengths))
    )
    table = listed(known.items, "item_id", found, scores).insert_column(0, owners)
    names = np.array([POPULARITY, MODEL])[is_known.astype(int)]
    return with_source(table, np.repeat(names, lengths).tolist())


def with_source(table: pl.DataFrame, source: list[str]) -> pl.DataFrame:
    """Add the column that says where a row comes from."""
    return table.insert_column(table.width, pl.Series("source", source, dtype=pl.String))


def popular_items(
    learned: FittedScorer, strangers: list[Id], k: int, filters: Filters
) -> tuple[Rows, Scores]:
    """The items with most users that the filters leave; scores are the numbers of these users."""
    known = learned.known
    counts = known.item_counts.astype(np.float32)
    scorer = BlockView("popularity", known.rankable, lambda rows: np.tile(counts, (len(rows), 1)))
    # All get the same, unless lists belong to single people.
    some = sorted(strangers) if filters.by_user else strangers[:1]
    nothing = Csr(np.zeros(len(some) + 1, np.int64), np.empty(0, np.int32), len(known.items))
    rows = np.arange(len(some), dtype=np.int32)
    found, scores = best_items(
        scorer, rows, k, nothing, IdMap(pl.Series(some)), len(known.items), filters
    )
    places = np.zeros(len(strangers), np.int64)
    if filters.by_user:
        order = {who: place for place, who in enumerate(some)}
        places = np.array([order[who] for who in strangers])
    return found[places], scores[places]


def _checked(ids: IdMap, user: Any) -> Id:
    """Return an id as Python has it, or raise a `ParameterError` where none can be such."""
    value = user.item() if isinstance(user, np.generic) else user
    if ids.is_text:
        # Words of a command line that are no UTF-8 come as lone surrogates.
        fits = isinstance(value, str) and value.encode("utf-8", "replace").decode() == value
    else:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        fits = is_integer and -(2**63) <= value < 2**63
    if not fits:
        kinds = "text in UTF-8" if ids.is_text else "integers of 64 bits"
        raise ParameterError(
            f"user {shown(user)} cannot stand in a table with the others: user ids are {kinds}."
        )
    checked: Id = value
    return checked
