"""Which items a user may get: allow-lists, deny-lists and what they have seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Id, IdMap, Rows
from transcf.data.interactions import Mask
from transcf.errors import ParameterError, is_word, shown
from transcf.retrieval.scorer import Scorer, Scores
from transcf.retrieval.topk import top_k

OnUnknown: TypeAlias = Literal["raise", "skip"]
#: The same for lists, which have something to fall back on.
Fallback: TypeAlias = Literal["raise", "skip", "popular"]

#: Cells of the table of forbidden items that is held at once where users have own allow-lists.
_CELLS = 2**24


@dataclass(frozen=True)
class Filters:
    """What a request leaves out; see `Answers.recommend`.

    Attributes:
        exclude_seen: Whether a user's own items are left out.
        items: Ids to choose from: for everybody, by user id, or None for all.
        exclude: Ids to leave out, in the same forms.
        on_unknown: "raise", "skip" or "popular"; for items, the last two are the same.
    """

    exclude_seen: bool = True
    items: Any = None
    exclude: Any = None
    on_unknown: Fallback = "raise"

    def __post_init__(self) -> None:
        """Refuse what would be taken for True."""
        if not isinstance(self.exclude_seen, bool | np.bool_):
            raise ParameterError(
                f"exclude_seen={shown(self.exclude_seen)} is not allowed; it must be True or False."
            )

    @property
    def by_user(self) -> bool:
        """Whether a list belongs to single users."""
        return isinstance(self.items, Mapping) or isinstance(self.exclude, Mapping)

    def refuse_by_user(self) -> None:
        """Raise a `ParameterError` if a list belongs to single users."""
        if self.by_user:
            raise ParameterError(
                "recommend_for takes items and exclude as lists of ids: a mapping is for known "
                "users."
            )


def best_items(
    scorer: Scorer, rows: Rows, k: int, seen: Csr, users: IdMap, items: IdMap, filters: Filters
) -> tuple[Rows, Scores]:
    """Find the best k items that the filters leave to each user row; shapes as in `top_k`."""
    allowed = scorer.rankable
    for listed, is_allowed in ((filters.items, True), (filters.exclude, False)):
        if listed is not None and not isinstance(listed, Mapping):
            named = np.zeros(len(items), dtype=bool)
            named[known_rows(items, listed, "item", filters.on_unknown)] = True
            allowed = allowed & (named if is_allowed else ~named)
    hidden = seen if filters.exclude_seen else None
    if isinstance(filters.exclude, Mapping):
        denied = _lists(filters.exclude, rows, users, items, filters.on_unknown)
        hidden = denied if hidden is None else _union(hidden, denied, rows)
    if not isinstance(filters.items, Mapping):
        return top_k(scorer, rows, k, seen=hidden, allowed=allowed)
    chosen = _lists(filters.items, rows, users, items, filters.on_unknown)
    return _top_k_of_lists(scorer, rows, k, hidden, allowed, chosen)


def known_rows(ids: IdMap, wanted: Any, what: str, on_unknown: Fallback) -> Rows:
    """Rows of one id or several; unknown ones raise or are left out."""
    listed = as_ids(wanted, what)
    if on_unknown == "raise":
        return ids.require(listed, what)
    rows = ids.rows(listed)
    known: Rows = rows[rows != UNKNOWN]
    return known


def as_ids(wanted: Any, what: str) -> Any:
    """Several ids, from one or several."""
    if isinstance(wanted, np.ndarray):
        wanted = wanted.tolist()  # a single value if it has no dimension
    if isinstance(wanted, str | int | np.integer):
        return [wanted]
    if isinstance(wanted, Mapping) or not hasattr(wanted, "__iter__"):
        raise ParameterError(
            f"{shown(wanted)} is not understood: give one {what} id or a list of ids."
        )
    return wanted


def check_policy(on_unknown: str) -> None:
    """Raise a `ParameterError` unless it is the name of a policy."""
    if not is_word(on_unknown, ("raise", "skip")):
        raise ParameterError(
            f"on_unknown={shown(on_unknown)} is not allowed; use 'raise' or 'skip'."
        )


def check_fallback(on_unknown: str) -> None:
    """Raise a `ParameterError` unless it is the name of a policy for lists."""
    if not isinstance(on_unknown, str) or on_unknown not in ("raise", "skip", "popular"):
        raise ParameterError(
            f"on_unknown={on_unknown!r} is not allowed; use 'raise', 'skip' or 'popular'."
        )


def check_length(k: Any, most: int) -> int:
    """Return the length of a list, at most as many as there are, or raise a `ParameterError`."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 0:
        raise ParameterError(
            f"k={shown(k)} is not allowed; it must be a whole number of at least 0."
        )
    return min(int(k), most)


def _lists(
    by_user: Mapping[Id, Any], rows: Rows, users: IdMap, items: IdMap, on_unknown: Fallback
) -> Csr:
    """The listed items of some user rows; all other rows are empty."""
    wanted: list[Id] = []
    lengths = np.zeros(len(rows), dtype=np.int64)
    for place, user in enumerate(users.ids(rows).to_list()):
        before = len(wanted)
        wanted.extend(as_ids(by_user.get(user, ()), "item"))
        lengths[place] = len(wanted) - before
    owners = np.repeat(rows, lengths)
    found = items.require(wanted, "item") if on_unknown == "raise" else items.rows(wanted)
    known = found != UNKNOWN
    return _from_pairs(owners[known], found[known], len(users), len(items))


def _from_pairs(
    rows: npt.NDArray[np.integer], columns: npt.NDArray[np.integer], n_rows: int, n_columns: int
) -> Csr:
    """Compressed rows of pairs that may repeat, in any order."""
    keys = np.unique(rows.astype(np.int64) * n_columns + columns)
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys // max(1, n_columns), minlength=n_rows), out=indptr[1:])
    return Csr(indptr, (keys % max(1, n_columns)).astype(np.int32), n_columns)


def _entries(lists: Csr, rows: Rows) -> tuple[npt.NDArray[np.int64], Rows]:
    """Places among `rows` and columns of all entries of these rows."""
    lengths = lists.counts[rows]
    places = np.repeat(np.arange(len(rows)), lengths)
    firsts = np.cumsum(lengths) - lengths
    entries = np.arange(lengths.sum()) - np.repeat(firsts - lists.indptr[rows], lengths)
    return places, lists.indices[entries]


def _union(one: Csr, other: Csr, rows: Rows) -> Csr:
    """What either lists, in these rows; all other rows are empty."""
    pairs = [_entries(lists, rows) for lists in (one, other)]
    owners = np.concatenate([rows[places] for places, _ in pairs])
    columns = np.concatenate([columns for _, columns in pairs])
    return _from_pairs(owners, columns, one.n_rows, one.n_columns)


def _top_k_of_lists(
    scorer: Scorer, rows: Rows, k: int, hidden: Csr | None, allowed: Mask, chosen: Csr
) -> tuple[Rows, Scores]:
    """`top_k` with an allow-list for each user, in blocks that bound the memory.

    A block ranks what any of its users may get, and hides from each what the others brought in.
    """
    found = np.full((len(rows), k), UNKNOWN, dtype=np.int32)
    scores = np.full((len(rows), k), np.nan, dtype=np.float32)
    step = max(1, _CELLS // max(1, len(allowed)))
    for first in range(0, len(rows), step):
        some = slice(first, first + step)
        distinct, inverse = np.unique(rows[some], return_inverse=True)
        forbidden = np.ones((len(distinct), len(allowed)), dtype=bool)
        forbidden[_entries(chosen, distinct)] = False
        joint = allowed & ~forbidden.all(axis=0)
        if hidden is not None:
            forbidden[_entries(hidden, distinct)] = True
        owners, columns = np.nonzero(forbidden & joint)
        barred = _from_pairs(distinct[owners], columns, chosen.n_rows, len(allowed))
        lists = top_k(scorer, distinct, k, seen=barred, allowed=joint)
        found[some], scores[some] = (values[inverse] for values in lists)
    return found, scores
