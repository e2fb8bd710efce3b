"""From a caller's ids to rows, and from ranked rows back to tables of ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, IdMap, Rows
from transcf.data.interactions import Mask
from transcf.errors import DataError, ParameterError, UnknownIdError
from transcf.models._filters import (
    Filters,
    OnUnknown,
    as_ids,
    best_items,
    check_length,
    check_policy,
    known_rows,
)
from transcf.retrieval.scorer import Scorer, Scores

if TYPE_CHECKING:
    from transcf.models.scoring import RowScorer


def recommendations(model: RowScorer, users: Any, k: int, filters: Filters) -> pl.DataFrame:
    """Build the table of `recommend`."""
    check_policy(filters.on_unknown)
    length = check_length(k)
    return row_recommendations(model, user_rows(model, users, filters.on_unknown), length, filters)


def row_recommendations(model: RowScorer, rows: Rows, k: int, filters: Filters) -> pl.DataFrame:
    """Build the table of `recommend` for user rows."""
    found, scores = best_items(model, rows, k, model.seen_, model.users_, model.items_, filters)
    owners = model.users_.ids(np.repeat(rows, (found != UNKNOWN).sum(axis=1)))
    return _listed(model.items_, "item_id", found, scores).insert_column(0, owners.alias("user_id"))


def guest_recommendations(
    model: RowScorer, guest: Scorer, history: Rows, k: int, filters: Filters
) -> pl.DataFrame:
    """Build the table of `recommend_for`; row 0 of `guest` is the person with the history."""
    if filters.by_user:
        raise ParameterError(
            "recommend_for takes items and exclude as lists of ids: a mapping is for known users."
        )
    length = check_length(k)
    own = np.sort(history)
    seen = Csr(np.array([0, len(own)], dtype=np.int64), own, len(model.items_))
    rows = np.zeros(1, dtype=np.int32)
    found, scores = best_items(guest, rows, length, seen, model.users_, model.items_, filters)
    return _listed(model.items_, "item_id", found, scores)


def similar(
    model: RowScorer, what: str, similarity: Scorer, wanted: Any, k: int, on_unknown: OnUnknown
) -> pl.DataFrame:
    """Build the table of `similar_items` and `similar_users`."""
    from transcf.retrieval.views import nearest

    check_policy(on_unknown)
    ids = model.items_ if what == "item" else model.users_
    length = check_length(k)
    rows = _usable_rows(ids, wanted, what, similarity.rankable, on_unknown)
    found, scores = nearest(similarity, rows, length)
    owners = ids.ids(np.repeat(rows, (found != UNKNOWN).sum(axis=1)))
    return _listed(ids, "neighbor_id", found, scores).insert_column(0, owners.alias(f"{what}_id"))


def history_rows(model: RowScorer, history: Any, on_unknown: OnUnknown) -> Rows:
    """Item rows of a history in its order, each once at its last place; at least one."""
    check_policy(on_unknown)
    listed = list(as_ids(history, "item"))
    if not listed:
        raise DataError("The history is empty: give at least one item id.")
    rows = model.items_.rows(listed)
    usable = (rows != UNKNOWN) & model.rankable[rows]
    if not usable.any() and on_unknown == "skip":
        raise UnknownIdError(
            f"None of the {len(listed)} items of the history is known from training: give at "
            "least one that is."
        )
    rows = _usable_rows(model.items_, listed, "item", model.rankable, on_unknown, distinct=False)
    _, last = np.unique(rows[::-1], return_index=True)
    ordered: Rows = rows[np.sort(len(rows) - 1 - last)]
    return ordered


def pair_scores(model: RowScorer, pairs: Any, on_unknown: OnUnknown) -> pl.DataFrame:
    """Build the table of `score`."""
    user_ids, item_ids, users, items = pair_rows(model, pairs, on_unknown)
    usable = model.rankable[items] & (model.seen_.counts[users] > 0)
    scores = np.full(len(users), np.nan, dtype=np.float32)
    scores[usable] = model.score_pairs(users[usable], items[usable])
    return pl.DataFrame(
        {
            "user_id": user_ids,
            "item_id": item_ids,
            "score": pl.Series(scores).fill_nan(None),
        }
    )


def pair_rows(
    model: RowScorer, pairs: Any, on_unknown: OnUnknown = "raise"
) -> tuple[pl.Series, pl.Series, Rows, Rows]:
    """Ids and rows of the users and items of some pairs, (n,) each, in their order.

    Pairs with an unknown id raise an error or are left out.
    """
    from transcf.data.readers import pair_columns

    check_policy(on_unknown)
    user_ids, item_ids = pair_columns(pairs)
    if on_unknown == "raise":
        users = model.users_.require(user_ids, "user")
        items = model.items_.require(item_ids, "item")
        return user_ids, item_ids, users, items
    users, items = model.users_.rows(user_ids), model.items_.rows(item_ids)
    known = (users != UNKNOWN) & (items != UNKNOWN)
    kept = pl.Series(known)
    return user_ids.filter(kept), item_ids.filter(kept), users[known], items[known]


def user_rows(model: RowScorer, users: Any, on_unknown: OnUnknown) -> Rows:
    """Rows of the users to answer, each once, in the order of the request."""
    has_history = model.seen_.counts > 0
    if users is None:
        return np.flatnonzero(has_history).astype(np.int32)
    return _usable_rows(model.users_, users, "user", has_history, on_unknown)


def _usable_rows(
    ids: IdMap,
    wanted: Any,
    what: str,
    usable: Mask,
    on_unknown: OnUnknown,
    *,
    distinct: bool = True,
) -> Rows:
    """Rows that have training interactions, in the order of the request."""
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


def _listed(ids: IdMap, column: str, found: Rows, scores: Scores) -> pl.DataFrame:
    """Table of what was found, (n, k), row after row: `column, score, rank`."""
    present = found != UNKNOWN
    ranks = np.broadcast_to(np.arange(1, found.shape[1] + 1, dtype=np.int32), found.shape)
    return pl.DataFrame(
        {column: ids.ids(found[present]), "score": scores[present], "rank": ranks[present]}
    )
