"""Recommendations for item histories: one, or a batch of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from transcf.data.histories import Histories
from transcf.data.ids import UNKNOWN, Id
from transcf.errors import ParameterError, shown
from transcf.models.fitted import FittedScorer
from transcf.models.item_filters import Filters, best_items, check_length
from transcf.models.resolve_users import MODEL, POPULARITY, popular_items, with_source
from transcf.models.tables import history_rows, listed


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
        strangers: list[Id] = [""] * int(np.count_nonzero(~usable))
        found[~usable], scores[~usable] = popular_items(learned, strangers, length, filters)
    table = listed(known.items, "item_id", found, scores)
    lengths = (found != UNKNOWN).sum(axis=1)
    if filters.on_unknown == "popular":
        sources = np.array([POPULARITY, MODEL])[usable.astype(int)]
        table = with_source(table, np.repeat(sources, lengths).tolist())
    if batch is None:
        return table
    owners = _id_column(batch).gather(pl.Series(np.repeat(np.arange(len(rows)), lengths)))
    return table.insert_column(0, owners)


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


def _id_column(batch: Mapping[Id, Any]) -> pl.Series:
    """Return the column of session ids."""
    for kind, dtype in ((int, pl.Int64), (str, pl.String)):
        if all(isinstance(name, kind) and not isinstance(name, bool) for name in batch):
            return pl.Series("session_id", list(batch), dtype=dtype)
    raise ParameterError("Session ids must be all text or all integers.")
