"""From a caller's ids to rows, and from ranked rows back to tables of ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from transcf.data.ids import UNKNOWN, IdMap, Rows
from transcf.data.interactions import Mask
from transcf.errors import DataError, UnknownIdError
from transcf.models.fitted import FittedScorer
from transcf.models.item_filters import (
    Fallback,
    Filters,
    OnUnknown,
    as_ids,
    best_items,
    check_fallback,
    check_length,
    check_policy,
    known_rows,
)
from transcf.retrieval.scorer import Scorer, Scores


def row_recommendations(
    learned: FittedScorer, rows: Rows, k: int, filters: Filters
) -> pl.DataFrame:
    """Build the table of `recommend` for user rows."""
    known = learned.known
    found, scores = best_items(learned, rows, k, known.seen, known.users, len(known.items), filters)
    owners = known.users.ids(np.repeat(rows, (found != UNKNOWN).sum(axis=1)))
    table = listed(known.items, "item_id", found, scores)
    return table.insert_column(0, owners.alias("user_id"))


def similar(
    learned: FittedScorer, what: str, similarity: Scorer, wanted: Any, k: int, on_unknown: OnUnknown
) -> pl.DataFrame:
    """Build the table of `similar_items` and `similar_users`."""
    from transcf.retrieval.views import nearest

    check_policy(on_unknown)
    ids = learned.known.items if what == "item" else learned.known.users
    length = check_length(k, len(ids))
    rows = _usable_rows(ids, wanted, what, similarity.rankable, on_unknown)
    found, scores = nearest(similarity, rows, length)
    owners = ids.ids(np.repeat(rows, (found != UNKNOWN).sum(axis=1)))
    return listed(ids, "neighbor_id", found, scores).insert_column(0, owners.alias(f"{what}_id"))


def history_rows(
    learned: FittedScorer, history: Any, on_unknown: Fallback, name: str = "the history"
) -> Rows:
    """Item rows of a history in its order, each once at its last place; at least one.

    With "popular" there need not be any. Errors call the history by its `name`.
    """
    check_fallback(on_unknown)
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


def pair_scores(learned: FittedScorer, pairs: Any, on_unknown: OnUnknown) -> pl.DataFrame:
    """Build the table of `score`."""
    user_ids, item_ids, users, items = pair_rows(learned, pairs, on_unknown)
    usable = learned.rankable[items] & learned.known.active[users]
    scores = np.full(len(users), np.nan, dtype=np.float32)
    scores[usable] = learned.scores(users[usable], items[usable])
    return pl.DataFrame(
        {
            "user_id": user_ids,
            "item_id": item_ids,
            "score": pl.Series(scores, nan_to_null=True),
        }
    )


def pair_rows(
    learned: FittedScorer, pairs: Any, on_unknown: OnUnknown = "raise"
) -> tuple[pl.Series, pl.Series, Rows, Rows]:
    """Ids and rows of the users and items of some pairs, (n,) each, in their order.

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


def user_rows(learned: FittedScorer, users: Any, on_unknown: OnUnknown) -> Rows:
    """Rows of the users to answer, each once, in the order of the request."""
    has_history = learned.known.active
    if users is None:
        return np.flatnonzero(has_history).astype(np.int32)
    return _usable_rows(learned.known.users, users, "user", has_history, on_unknown)


def _usable_rows(
    ids: IdMap,
    wanted: Any,
    what: str,
    usable: Mask,
    on_unknown: Fallback,
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


def listed(ids: IdMap, column: str, found: Rows, scores: Scores) -> pl.DataFrame:
    """Table of what was found, (n, k), row after row: `column, score, rank`."""
    present = found != UNKNOWN
    ranks = np.broadcast_to(np.arange(1, found.shape[1] + 1, dtype=np.int32), found.shape)
    return pl.DataFrame(
        {column: ids.ids(found[present]), "score": scores[present], "rank": ranks[present]}
    )
