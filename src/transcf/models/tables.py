"""Tables of recommendations, similar items and scores: ids of the caller in, ids out.

Users are looked up, their best items found (`item_filters.best_items`) and written as a polars
table. Users without training interactions can get popular items instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from transcf.data.csr import Csr, Histories
from transcf.data.ids import UNKNOWN, Id, IdMap, Rows
from transcf.data.interactions import Mask
from transcf.errors import DataError, ParameterError, UnknownIdError, shown
from transcf.models.fitted import FittedScorer, popularity_scorer
from transcf.models.item_filters import (
    Fallback,
    Filters,
    OnUnknown,
    as_ids,
    best_items,
    check_length,
    check_policy,
    known_rows,
)
from transcf.retrieval.scorer import Scorer, Scores

#: Values of the column `source`.
MODEL, POPULARITY = "model", "popularity"
#: Rows of a table that are held at once when it is written to a file.
PIECE_ROWS = 2**20


# -- recommendations for users -----------------------------------------------------------------


@dataclass(frozen=True)
class UserGroup:
    """Users of a request, each once, in its order.

    Attributes:
        rows: (n,) rows of users; `UNKNOWN` for those without training interactions.
        ids: Their ids if some may be unknown; None if all are known.
    """

    rows: Rows
    ids: list[Id] | None = None

    @classmethod
    def of(cls, learned: FittedScorer, users: Any, filters: Filters) -> UserGroup:
        """Look ids up; unknown ones raise, are skipped or get popular items."""
        check_policy(filters.on_unknown, Fallback)
        if filters.on_unknown != "popular":
            return cls(user_rows(learned, users, filters.on_unknown))
        known = learned.known
        if users is None:
            rows = user_rows(learned, None, "raise")
            return cls(rows, known.users.ids(rows).to_list())
        ids = list(dict.fromkeys(_plain_id(known.users, user) for user in as_ids(users, "user")))
        rows = known.users.rows(ids)
        return cls(np.where(known.active[rows], rows, np.int32(UNKNOWN)), ids)

    def __len__(self) -> int:
        """Return the number of users."""
        return len(self.rows)

    def part(self, first: int, stop: int) -> UserGroup:
        """Return some of them."""
        return UserGroup(self.rows[first:stop], None if self.ids is None else self.ids[first:stop])


def recommendations(learned: FittedScorer, users: Any, k: int, filters: Filters) -> pl.DataFrame:
    """Build the table of `recommend`."""
    length = check_length(k, len(learned.known.items))
    return _group_table(learned, UserGroup.of(learned, users, filters), length, filters)


def _group_table(learned: FittedScorer, group: UserGroup, k: int, filters: Filters) -> pl.DataFrame:
    """Build the table of `recommend`; with a column `source` if users may be unknown."""
    known = learned.known
    if group.ids is None:
        found, scores = _best_of_users(learned, group.rows, k, filters)
        owners = known.users.ids(np.repeat(group.rows, _lengths(found)))
        return listed(known.items, "item_id", found, scores).insert_column(
            0, owners.alias("user_id")
        )
    found = np.full((len(group), k), UNKNOWN, dtype=np.int32)
    scores = np.full((len(group), k), np.nan, dtype=np.float32)
    is_known = group.rows != UNKNOWN
    if is_known.any():
        found[is_known], scores[is_known] = _best_of_users(
            learned, group.rows[is_known], k, filters
        )
    if not is_known.all():
        unknown = [group.ids[place] for place in np.flatnonzero(~is_known)]
        found[~is_known], scores[~is_known] = _popular_items(learned, unknown, k, filters)
    kind = pl.String if known.users.is_text else pl.Int64
    owners = pl.Series("user_id", group.ids, dtype=kind).gather(_owners(found))
    table = listed(known.items, "item_id", found, scores).insert_column(0, owners)
    return _with_source(table, is_known, found)


def _best_of_users(
    learned: FittedScorer, rows: Rows, k: int, filters: Filters
) -> tuple[Rows, Scores]:
    known = learned.known
    return best_items(learned, rows, k, known.seen, known.users, len(known.items), filters)


def _popular_items(
    learned: FittedScorer, users: list[Id], k: int, filters: Filters
) -> tuple[Rows, Scores]:
    """Return the items with most users that the filters allow; scores are numbers of users."""
    known, scorer = learned.known, popularity_scorer(learned.known)
    # All get the same, unless lists belong to single users.
    some = sorted(users) if filters.by_user else users[:1]
    nothing = Csr(np.zeros(len(some) + 1, np.int64), np.empty(0, np.int32), len(known.items))
    rows = np.arange(len(some), dtype=np.int32)
    found, scores = best_items(
        scorer, rows, k, nothing, IdMap(pl.Series(some)), len(known.items), filters
    )
    places = np.zeros(len(users), np.int64)
    if filters.by_user:
        order = {user: place for place, user in enumerate(some)}
        places = np.array([order[user] for user in users])
    return found[places], scores[places]


def _with_source(table: pl.DataFrame, is_known: Mask, found: Rows) -> pl.DataFrame:
    """Add the column `source`."""
    names = np.array([POPULARITY, MODEL])[is_known.astype(int)]
    source = pl.Series("source", np.repeat(names, _lengths(found)).tolist(), dtype=pl.String)
    return table.insert_column(table.width, source)


def _plain_id(ids: IdMap, user: Any) -> Id:
    """Return an id as a Python value, or raise a `ParameterError` if it is of another type."""
    value = user.item() if isinstance(user, np.generic) else user
    if ids.is_text:
        # Command line arguments that are not UTF-8 come as lone surrogates.
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


# -- recommendations in files ------------------------------------------------------------------


def write_recommendations(
    learned: FittedScorer, path: Path, users: Any, k: int, filters: Filters
) -> int:
    """Write the table of `recommend` piece by piece to a file; returns its number of rows."""
    from transcf.data.writing import check_file, write_pieces

    check_file(path)
    return write_pieces(recommendation_pieces(learned, users, k, filters), path)


def write_neighbours(
    learned: FittedScorer, paths: Sequence[Path], first: int, size: int, k: int, filters: Filters
) -> None:
    """Write the lists of consecutive users, computed together, to several files.

    Existing files are not replaced.

    Args:
        learned: The fitted scorer.
        paths: The files.
        first: Number of the first user among those with training interactions.
        size: Users of a file.
        k: Items of a list.
        filters: What to leave out.
    """
    from transcf.data.writing import write_pieces

    length = check_length(k, len(learned.known.items))
    group = UserGroup.of(learned, None, filters).part(first, first + size * len(paths))
    table = _group_table(learned, group, length, filters)
    # Users come in the order of their ids; some may have no list.
    starts = learned.known.users.ids(group.rows[size::size])
    cuts = [0, *table["user_id"].search_sorted(starts), len(table)]
    for path, (start, end) in zip(paths, pairwise(cuts), strict=True):
        if not path.exists():
            write_pieces([table[start:end]], path)


def recommendation_pieces(
    learned: FittedScorer, users: Any, k: int, filters: Filters
) -> Iterator[pl.DataFrame]:
    """Yield the table of `recommend` in pieces, at least one, with a progress bar for many."""
    length = check_length(k, len(learned.known.items))
    group = UserGroup.of(learned, users, filters)
    step = max(1, PIECE_ROWS // max(1, length))
    for first in _with_progress(range(0, max(1, len(group)), step), learned.name):
        yield _group_table(learned, group.part(first, first + step), length, filters)


def _with_progress(starts: range, name: str) -> Iterable[int]:
    from transcf.models.progress import is_watched, progress_console

    if len(starts) == 1 or not is_watched():
        return starts
    from rich.progress import track

    return track(starts, f"{name} recommends", console=progress_console())


# -- recommendations for item histories --------------------------------------------------------


def session_recommendations(
    learned: FittedScorer, history: Any, k: int, steps: int, filters: Filters
) -> pl.DataFrame:
    """Build the table of `recommend_for`; all sessions of a batch are scored together."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ParameterError(
            f"steps={shown(steps)} is not allowed; it must be a whole number of at least 0."
        )
    filters.refuse_by_user()
    batch = _batch_of(history)
    if batch is None:
        rows = [history_rows(learned, history, filters.on_unknown)]
    else:
        rows = [
            history_rows(learned, one, filters.on_unknown, f"the history of session {shown(name)}")
            for name, one in batch.items()
        ]
    known, length = learned.known, check_length(k, len(learned.known.items))
    found = np.full((len(rows), length), UNKNOWN, dtype=np.int32)
    scores = np.full((len(rows), length), np.nan, dtype=np.float32)
    usable = np.array([len(one) > 0 for one in rows], dtype=bool)
    if usable.any():
        histories = Histories.of([one for one in rows if len(one)], len(known.items))
        scorer = learned.fold_in_with_sgd(histories, steps) if steps else learned.fold_in(histories)
        places, seen = np.arange(usable.sum(), dtype=np.int32), histories.matrix
        lists = best_items(scorer, places, length, seen, known.users, len(known.items), filters)
        found[usable], scores[usable] = lists
    if not usable.all():
        unknown: list[Id] = [""] * int(np.count_nonzero(~usable))
        found[~usable], scores[~usable] = _popular_items(learned, unknown, length, filters)
    table = listed(known.items, "item_id", found, scores)
    if filters.on_unknown == "popular":
        table = _with_source(table, usable, found)
    if batch is None:
        return table
    return table.insert_column(0, _session_ids(batch).gather(_owners(found)))


def _batch_of(history: Any) -> Mapping[Id, Any] | None:
    """Return sessions by id, numbered from 0 if they come as a list of lists; None for one."""
    if isinstance(history, Mapping):
        return history
    if isinstance(history, np.ndarray) and history.ndim > 1:
        history = list(history)
    elif hasattr(history, "to_list"):  # a column of a table
        history = history.to_list()
    is_batch = isinstance(history, list | tuple) and any(
        hasattr(one, "__iter__") and not isinstance(one, str) for one in history
    )
    return dict(enumerate(history)) if is_batch else None


def _session_ids(batch: Mapping[Id, Any]) -> pl.Series:
    for kind, dtype in ((int, pl.Int64), (str, pl.String)):
        if all(isinstance(name, kind) and not isinstance(name, bool) for name in batch):
            return pl.Series("session_id", list(batch), dtype=dtype)
    raise ParameterError("Session ids must be all text or all integers.")


def history_rows(
    learned: FittedScorer, history: Any, on_unknown: Fallback, name: str = "the history"
) -> Rows:
    """Return the item rows of a history in its order, each once at its last place.

    There is at least one, except with "popular". Errors call the history by its `name`.
    """
    check_policy(on_unknown, Fallback)
    wanted = list(as_ids(history, "item"))
    if not wanted and on_unknown != "popular":
        raise DataError(f"{name[0].upper()}{name[1:]} is empty: give at least one item id.")
    rows = learned.known.items.rows(wanted)
    usable = (rows != UNKNOWN) & learned.rankable[rows]
    if not usable.any() and on_unknown == "skip":
        raise UnknownIdError(
            f"None of the {len(wanted)} items of {name} is known from training: give at least one "
            "that is."
        )
    rows = _usable_rows(
        learned.known.items, wanted, "item", learned.rankable, on_unknown, distinct=False
    )
    _, last = np.unique(rows[::-1], return_index=True)
    ordered: Rows = rows[np.sort(len(rows) - 1 - last)]
    return ordered


# -- pairs and similar items -------------------------------------------------------------------


def pair_scores(learned: FittedScorer, pairs: Any, on_unknown: OnUnknown) -> pl.DataFrame:
    """Build the table of `score`."""
    user_ids, item_ids, users, items = pair_rows(learned, pairs, on_unknown)
    usable = learned.rankable[items] & learned.known.active[users]
    scores = np.full(len(users), np.nan, dtype=np.float32)
    scores[usable] = learned.scores(users[usable], items[usable])
    columns = {"user_id": user_ids, "item_id": item_ids}
    return pl.DataFrame(columns | {"score": pl.Series(scores, nan_to_null=True)})


def pair_rows(
    learned: FittedScorer, pairs: Any, on_unknown: OnUnknown = "raise"
) -> tuple[pl.Series, pl.Series, Rows, Rows]:
    """Return ids and rows of the users and items of some pairs, (n,) each, in their order.

    Pairs with an unknown id raise an error or are left out.
    """
    from transcf.data.readers import pair_columns

    check_policy(on_unknown)
    user_ids, item_ids = pair_columns(pairs)
    if on_unknown == "raise":
        users = learned.known.users.require(user_ids, "user")
        items = learned.known.items.require(item_ids, "item")
        return user_ids, item_ids, users, items
    users, items = learned.known.users.rows(user_ids), learned.known.items.rows(item_ids)
    known = (users != UNKNOWN) & (items != UNKNOWN)
    kept = pl.Series(known)
    return user_ids.filter(kept), item_ids.filter(kept), users[known], items[known]


def translation_table(
    learned: FittedScorer, pairs: Any, translations: Callable[[Rows, Rows], Scores]
) -> pl.DataFrame:
    """Return the table `user_id, item_id, translation` of some pairs, in their order."""
    user_ids, item_ids, users, items = pair_rows(learned, pairs)
    vectors = translations(users, items)
    kind = pl.Array(pl.Float32, vectors.shape[1])
    columns = {"user_id": user_ids, "item_id": item_ids}
    return pl.DataFrame(columns | {"translation": pl.Series(vectors, dtype=kind)})


def similar(
    learned: FittedScorer, what: str, similarity: Scorer, wanted: Any, k: int, on_unknown: OnUnknown
) -> pl.DataFrame:
    """Build the table of `similar_items` and `similar_users`."""
    from transcf.retrieval.scorer import nearest

    check_policy(on_unknown)
    ids = learned.known.items if what == "item" else learned.known.users
    length = check_length(k, len(ids))
    rows = _usable_rows(ids, wanted, what, similarity.rankable, on_unknown)
    found, scores = nearest(similarity, rows, length)
    owners = ids.ids(np.repeat(rows, _lengths(found)))
    return listed(ids, "neighbor_id", found, scores).insert_column(0, owners.alias(f"{what}_id"))


# -- rows and tables ---------------------------------------------------------------------------


def user_rows(learned: FittedScorer, users: Any, on_unknown: OnUnknown) -> Rows:
    """Return the rows of users with training interactions, each once, in the order of ids."""
    has_history = learned.known.active
    if users is None:
        return np.flatnonzero(has_history).astype(np.int32)
    return _usable_rows(learned.known.users, users, "user", has_history, on_unknown)


def _usable_rows(
    ids: IdMap, wanted: Any, what: str, usable: Mask, on_unknown: Fallback, *, distinct: bool = True
) -> Rows:
    """Return the rows that have training interactions, in the order of the request."""
    rows = known_rows(ids, wanted, what, on_unknown)
    idle = rows[~usable[rows]]
    if len(idle) and on_unknown == "raise":
        raise UnknownIdError(
            f"{what} {ids.ids(idle[:1]).item()!r} has no training interactions "
            f"({len(idle)} of {len(rows)} have none): leave them out, or skip them with "
            "on_unknown='skip'."
        )
    rows = rows[usable[rows]]
    if not distinct:
        return rows
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)]


def listed(ids: IdMap, column: str, found: Rows, scores: Scores) -> pl.DataFrame:
    """Return the table `column, score, rank` of lists (n, k), one after the other."""
    present = found != UNKNOWN
    ranks = np.broadcast_to(np.arange(1, found.shape[1] + 1, dtype=np.int32), found.shape)
    return pl.DataFrame(
        {column: ids.ids(found[present]), "score": scores[present], "rank": ranks[present]}
    )


def _lengths(found: Rows) -> Rows:
    lengths: Rows = (found != UNKNOWN).sum(axis=1)
    return lengths


def _owners(found: Rows) -> pl.Series:
    """Return the number of the list that each of its entries belongs to."""
    return pl.Series(np.repeat(np.arange(len(found)), _lengths(found)))
