"""From a caller's ids to rows, and from ranked rows back to tables of ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import polars as pl

from transcf.data.ids import UNKNOWN, IdMap, Rows
from transcf.errors import ParameterError, UnknownIdError

if TYPE_CHECKING:
    from transcf.models.base import Recommender

OnUnknown: TypeAlias = Literal["raise", "skip"]


def recommendations(
    model: Recommender,
    users: Any,
    k: int,
    *,
    exclude_seen: bool,
    items: Any,
    on_unknown: OnUnknown,
) -> pl.DataFrame:
    """Build the table of `Recommender.recommend`."""
    from transcf.retrieval.topk import top_k

    _check_policy(on_unknown)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 0:
        raise ParameterError(f"k={k!r} is not allowed; it must be a whole number of at least 0.")
    rows = _user_rows(model, users, on_unknown)
    allowed = model.rankable
    if items is not None:
        mask = np.zeros(len(model.items_), dtype=bool)
        mask[_known_rows(model.items_, items, "item", on_unknown)] = True
        allowed = allowed & mask
    seen = model.seen_ if exclude_seen else None
    found, scores = top_k(model, rows, int(k), seen=seen, allowed=allowed)
    present = found != UNKNOWN
    ranks = np.broadcast_to(np.arange(1, found.shape[1] + 1, dtype=np.int32), found.shape)
    return pl.DataFrame(
        {
            "user_id": model.users_.ids(np.repeat(rows, present.sum(axis=1))),
            "item_id": model.items_.ids(found[present]),
            "score": scores[present],
            "rank": ranks[present],
        }
    )


def pair_scores(model: Recommender, pairs: Any, on_unknown: OnUnknown) -> pl.DataFrame:
    """Build the table of `Recommender.score`."""
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
    model: Recommender, pairs: Any, on_unknown: OnUnknown = "raise"
) -> tuple[pl.Series, pl.Series, Rows, Rows]:
    """Ids and rows of the users and items of some pairs, (n,) each, in their order.

    Pairs with an unknown id raise an error or are left out.
    """
    from transcf.data.readers import pair_columns

    _check_policy(on_unknown)
    user_ids, item_ids = pair_columns(pairs)
    if on_unknown == "raise":
        users = model.users_.require(user_ids, "user")
        items = model.items_.require(item_ids, "item")
        return user_ids, item_ids, users, items
    users, items = model.users_.rows(user_ids), model.items_.rows(item_ids)
    known = (users != UNKNOWN) & (items != UNKNOWN)
    kept = pl.Series(known)
    return user_ids.filter(kept), item_ids.filter(kept), users[known], items[known]


def _check_policy(on_unknown: str) -> None:
    if on_unknown not in ("raise", "skip"):
        raise ParameterError(f"on_unknown={on_unknown!r} is not allowed; use 'raise' or 'skip'.")


def _user_rows(model: Recommender, users: Any, on_unknown: OnUnknown) -> Rows:
    """Rows of the users to answer, each once, in the order of the request."""
    has_history = model.seen_.counts > 0
    if users is None:
        return np.flatnonzero(has_history).astype(np.int32)
    rows = _known_rows(model.users_, users, "user", on_unknown)
    idle = rows[~has_history[rows]]
    if len(idle) and on_unknown == "raise":
        raise UnknownIdError(
            f"user {model.users_.ids(idle[:1]).item()!r} has no training interactions "
            f"({len(idle)} of {len(rows)} have none): leave them out, or skip them with "
            "on_unknown='skip'."
        )
    rows = rows[has_history[rows]]
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)]


def _known_rows(ids: IdMap, wanted: Any, what: str, on_unknown: OnUnknown) -> Rows:
    """Rows of one id or several; unknown ones raise or are left out."""
    listed: Any = [wanted] if isinstance(wanted, str | int | np.integer) else wanted
    if on_unknown == "raise":
        return ids.require(listed, what)
    rows = ids.rows(listed)
    known: Rows = rows[rows != UNKNOWN]
    return known
