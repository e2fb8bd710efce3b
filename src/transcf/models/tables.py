"""Tables of recommendations, similar items and scores: ids of the caller in, ids out.

`recommend`, `recommend_all`, `recommend_for` and the command line all come here: ids are looked up,
`best_items` finds the items that the filters allow, and `listed` makes a polars table of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress, pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.csr import Csr, Histories, offsets
from transcf.data.ids import UNKNOWN, Id, IdMap, Rows
from transcf.data.interactions import Mask
from transcf.errors import ParameterError, check_integer, check_word, shown
from transcf.models.fitted import FittedScorer, popularity_scorer
from transcf.models.lookup import (
    Filters,
    OnUnknown,
    batch_of,
    check_length,
    history_rows,
    session_ids,
    usable_rows,
    user_rows,
    users_of,
)
from transcf.retrieval.scorer import Scorer, Scores, nearest

#: Rows of a table that are held at once when it is written to a file.
PIECE_ROWS = 2**20
#: Cells of the table of forbidden items that is held at once where users have own allow-lists.
_CELLS = 2**24
_NO_ROWS: Rows = np.empty(0, dtype=np.int32)


def best_items(
    scorer: Scorer, rows: Rows, owners: Sequence[Id], k: int, seen: Csr, filters: Filters
) -> tuple[Rows, Scores]:
    """Find the best k items that the filters allow for each row; shapes as in `top_k`.

    Rows are distinct; `owners` are their ids, for lists that belong to single users.
    """
    allowed = scorer.rankable
    for some, is_allowed in ((filters.items, True), (filters.exclude, False)):
        if some is not None and not isinstance(some, Mapping):
            named = np.zeros(seen.n_columns, dtype=bool)
            named[some] = True
            allowed = allowed & (named if is_allowed else ~named)
    barred = seen if filters.exclude_seen else None
    if isinstance(filters.exclude, Mapping):
        own = _matrix_of_lists(filters.exclude, rows, owners, seen)
        barred = own if barred is None else _union(barred, own, rows)
    if not isinstance(filters.items, Mapping):
        return scorer.top_k(rows, k, seen=barred, allowed=allowed)
    chosen = _matrix_of_lists(filters.items, rows, owners, seen)
    return _top_k_of_lists(scorer, rows, k, barred, allowed, chosen)


def _matrix_of_lists(
    by_user: Mapping[Id, Rows], rows: Rows, owners: Sequence[Id], like: Csr
) -> Csr:
    """Return the listed items of some rows; all other rows are empty."""
    chosen = [by_user.get(user, _NO_ROWS) for user in owners]
    places = np.repeat(rows, [len(one) for one in chosen])
    return _from_pairs(places, np.concatenate([_NO_ROWS, *chosen]), like)


def _from_pairs(rows: npt.NDArray[np.integer], columns: npt.NDArray[np.integer], like: Csr) -> Csr:
    """Return compressed rows of pairs, which may repeat, in any order."""
    keys = np.unique(rows.astype(np.int64) * like.n_columns + columns)
    owners, columns = np.divmod(keys, max(1, like.n_columns))
    counts = np.bincount(owners, minlength=like.n_rows)
    return Csr(offsets(counts), columns.astype(np.int32), like.n_columns)


def _union(one: Csr, other: Csr, rows: Rows) -> Csr:
    """Return the union of two matrices in these rows; all other rows are empty."""
    parts = one.take(rows), other.take(rows)
    owners = np.concatenate([rows[part.entry_rows] for part in parts])
    return _from_pairs(owners, np.concatenate([part.indices for part in parts]), one)


def _top_k_of_lists(
    scorer: Scorer, rows: Rows, k: int, hidden: Csr | None, allowed: Mask, chosen: Csr
) -> tuple[Rows, Scores]:
    """Return `top_k` with an allow-list for each user, in blocks that bound the memory.

    A block ranks the items that any of its users may get, and masks those of other users.
    """
    found, scores = _no_lists(len(rows), k)
    step = max(1, _CELLS // max(1, len(allowed)))
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        forbidden = np.ones((len(some), len(allowed)), dtype=bool)
        own = chosen.take(some)
        forbidden[own.entry_rows, own.indices] = False
        joint = allowed & ~forbidden.all(axis=0)
        if hidden is not None:
            own = hidden.take(some)
            forbidden[own.entry_rows, own.indices] = True
        owners, columns = np.nonzero(forbidden & joint)
        barred = _from_pairs(some[owners], columns, chosen)
        block = slice(first, first + step)
        found[block], scores[block] = scorer.top_k(some, k, seen=barred, allowed=joint)
    return found, scores


# -- recommendations ---------------------------------------------------------------------------


def recommendations(learned: FittedScorer, users: Any, k: int, filters: Filters) -> pl.DataFrame:
    """Build the table of `recommend`."""
    rows, owners = users_of(learned, users, filters.on_unknown)
    return _user_table(learned, rows, owners, check_length(k, len(learned.known.items)), filters)


def recommendation_pieces(
    learned: FittedScorer, users: Any, k: int, filters: Filters
) -> Iterator[pl.DataFrame]:
    """Yield the table of `recommend` in pieces, at least one, with a progress bar for many."""
    from transcf.models.progress import is_watched, progress_console

    length = check_length(k, len(learned.known.items))
    rows, owners = users_of(learned, users, filters.on_unknown)
    step = max(1, PIECE_ROWS // max(1, length))
    starts: Any = range(0, max(1, len(rows)), step)
    if len(starts) > 1 and is_watched():
        from rich.progress import track

        starts = track(starts, f"{learned.name} recommends", console=progress_console())
    for first in starts:
        some = slice(first, first + step)
        yield _user_table(learned, rows[some], owners[some], length, filters)


def write_lists(
    learned: FittedScorer, paths: Sequence[Path], first: int, size: int, k: int, filters: Filters
) -> None:
    """Write the lists of consecutive users, computed together, to several files of `size` users.

    `first` counts users with training interactions. Existing files are not replaced.
    """
    from transcf.data.writing import write_pieces

    rows = user_rows(learned, None, "raise")[first : first + size * len(paths)]
    owners = learned.known.users.ids(rows)
    table = _user_table(learned, rows, owners, check_length(k, len(learned.known.items)), filters)
    # Users come in the order of their ids; some may have no list.
    cuts = [0, *table["user_id"].search_sorted(owners[size::size]), len(table)]
    for path, (start, end) in zip(paths, pairwise(cuts), strict=True):
        if not path.exists():
            write_pieces([table[start:end]], path)


def session_recommendations(
    learned: FittedScorer, history: Any, k: int, steps: int, filters: Filters
) -> pl.DataFrame:
    """Build the table of `recommend_for`; all sessions of a batch are scored together."""
    check_integer("steps", steps)
    if filters.by_user:
        raise ParameterError(
            "recommend_for takes items and exclude as lists of ids: a mapping is for known users."
        )
    batch = batch_of(history)
    named = (
        {"the history": history}
        if batch is None
        else {f"the history of session {shown(name)}": one for name, one in batch.items()}
    )
    lists = [history_rows(learned, one, filters.on_unknown, name) for name, one in named.items()]
    length = check_length(k, len(learned.known.items))
    usable = np.array([len(one) > 0 for one in lists], dtype=bool)
    rows = np.where(usable, np.cumsum(usable) - 1, UNKNOWN).astype(np.int32)
    histories = Histories.of([one for one in lists if len(one)], len(learned.known.items))
    scorer: Scorer = learned
    if usable.any():
        scorer = learned.fold_in_with_sgd(histories, steps) if steps else learned.fold_in(histories)
    found, scores = _ranked(learned, scorer, rows, [], histories.matrix, length, filters)
    sessions = None if batch is None else session_ids(batch)
    table = listed(learned.known.items, "item_id", found, scores, sessions)
    return table if filters.on_unknown != "popular" else _with_source(table, usable, found)


def _user_table(
    learned: FittedScorer, rows: Rows, owners: pl.Series, k: int, filters: Filters
) -> pl.DataFrame:
    """Build the table of `recommend`; with a column `source` if popular items fill gaps."""
    names = owners.to_list() if filters.by_user else []
    found, scores = _ranked(learned, learned, rows, names, learned.known.seen, k, filters)
    table = listed(learned.known.items, "item_id", found, scores, owners.alias("user_id"))
    return table if filters.on_unknown != "popular" else _with_source(table, rows != UNKNOWN, found)


def _ranked(
    learned: FittedScorer,
    scorer: Scorer,
    rows: Rows,
    owners: list[Id],
    seen: Csr,
    k: int,
    filters: Filters,
) -> tuple[Rows, Scores]:
    """Return the best items of each row, and popular ones where it is `UNKNOWN`.

    The score of a popular item is its number of users. `owners` are needed for lists by user.
    """
    is_known = rows != UNKNOWN
    if is_known.all() and len(rows):
        return best_items(scorer, rows, owners, k, seen, filters)
    found, scores = _no_lists(len(rows), k)
    if is_known.any():
        names = list(compress(owners, is_known))
        lists = best_items(scorer, rows[is_known], names, k, seen, filters)
        found[is_known], scores[is_known] = lists
    if not is_known.all():
        # All get the same, unless lists belong to single users.
        names = list(compress(owners, ~is_known))
        places = np.arange(len(names) if filters.by_user else 1, dtype=np.int32)
        nothing = Csr(np.zeros(len(places) + 1, np.int64), _NO_ROWS, seen.n_columns)
        lists = best_items(popularity_scorer(learned.known), places, names, k, nothing, filters)
        found[~is_known], scores[~is_known] = lists
    return found, scores


def _no_lists(count: int, k: int) -> tuple[Rows, Scores]:
    return np.full((count, k), UNKNOWN, np.int32), np.full((count, k), np.nan, np.float32)


def _with_source(table: pl.DataFrame, by_model: Mask, found: Rows) -> pl.DataFrame:
    """Add the column `source`: "model" or "popularity"."""
    names = np.where(by_model, "model", "popularity")
    source = pl.Series("source", names[_owners(found)].tolist(), dtype=pl.String)
    return table.insert_column(table.width, source)


# -- pairs and similar items -------------------------------------------------------------------


def pair_scores(learned: FittedScorer, pairs: Any, on_unknown: OnUnknown) -> pl.DataFrame:
    """Build the table of `score`."""
    columns, users, items = _pair_rows(learned, pairs, on_unknown)
    usable = learned.rankable[items] & learned.known.active[users]
    scores = np.full(len(users), np.nan, dtype=np.float32)
    scores[usable] = learned.scores(users[usable], items[usable])
    return pl.DataFrame(columns | {"score": pl.Series(scores, nan_to_null=True)})


def translation_table(
    learned: FittedScorer, pairs: Any, translations: Callable[[Rows, Rows], Scores]
) -> pl.DataFrame:
    """Return the table `user_id, item_id, translation` of some pairs, in their order."""
    columns, users, items = _pair_rows(learned, pairs, "raise")
    vectors = translations(users, items)
    kind = pl.Array(pl.Float32, vectors.shape[1])
    return pl.DataFrame(columns | {"translation": pl.Series(vectors, dtype=kind)})


def _pair_rows(
    learned: FittedScorer, pairs: Any, on_unknown: OnUnknown
) -> tuple[dict[str, pl.Series], Rows, Rows]:
    """Return ids and rows of pairs in their order; unknown ids raise, or the pair is left out."""
    from transcf.data.readers import pair_columns

    check_word("on_unknown", on_unknown, get_args(OnUnknown))
    user_ids, item_ids = pair_columns(pairs)
    known, columns = learned.known, {"user_id": user_ids, "item_id": item_ids}
    if on_unknown == "raise":
        users, items = known.users.require(user_ids, "user"), known.items.require(item_ids, "item")
        return columns, users, items
    users, items = known.users.rows(user_ids), known.items.rows(item_ids)
    kept = (users != UNKNOWN) & (items != UNKNOWN)
    columns = {name: ids.filter(pl.Series(kept)) for name, ids in columns.items()}
    return columns, users[kept], items[kept]


def similar(
    learned: FittedScorer, what: str, similarity: Scorer, wanted: Any, k: int, on_unknown: OnUnknown
) -> pl.DataFrame:
    """Build the table of `similar_items` and `similar_users`."""
    check_word("on_unknown", on_unknown, get_args(OnUnknown))
    ids = learned.known.items if what == "item" else learned.known.users
    length = check_length(k, len(ids))
    rows = usable_rows(ids, wanted, what, similarity.rankable, on_unknown)
    found, scores = nearest(similarity, rows, length)
    return listed(ids, "neighbor_id", found, scores, ids.ids(rows).alias(f"{what}_id"))


def listed(
    ids: IdMap, column: str, found: Rows, scores: Scores, owners: pl.Series | None = None
) -> pl.DataFrame:
    """Return the table `column, score, rank` of lists (n, k), with a column of their owners."""
    present = found != UNKNOWN
    ranks = np.broadcast_to(np.arange(1, found.shape[1] + 1, dtype=np.int32), found.shape)
    columns = {column: ids.ids(found[present]), "score": scores[present], "rank": ranks[present]}
    if owners is None:
        return pl.DataFrame(columns)
    if len(owners) == 1:  # gathering takes a quarter of the time of a single list
        repeated = owners.new_from_index(0, len(columns["rank"]))
    else:
        repeated = owners.gather(pl.Series(_owners(found)))
    return pl.DataFrame({owners.name: repeated} | columns)


def _owners(found: Rows) -> npt.NDArray[np.int64]:
    """Return the number of the list that each of its entries belongs to."""
    return np.nonzero(found != UNKNOWN)[0]
