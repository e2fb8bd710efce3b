"""Filters of items: allow-lists, deny-lists and seen items."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Id, IdMap, Rows
from transcf.data.interactions import Mask
from transcf.errors import ParameterError, is_word, shown
from transcf.retrieval.scorer import Scorer, Scores

OnUnknown: TypeAlias = Literal["raise", "skip"]
#: The same for lists, which have something to fall back on.
Fallback: TypeAlias = Literal["raise", "skip", "popular"]

#: Cells of the table of forbidden items that is held at once where users have own allow-lists.
_CELLS = 2**24


#: Item rows for all users, or by user id.
Lists: TypeAlias = Rows | Mapping[Id, Rows]
_NO_ROWS: Rows = np.empty(0, dtype=np.int32)


@dataclass(frozen=True)
class Filters:
    """Filters of a request; see `Answers.recommend`.

    Attributes:
        exclude_seen: Whether a user's own items are left out.
        items: The only items to choose from; None for all.
        exclude: Items that are left out; None for none.
        on_unknown: What to do about unknown users: "raise", "skip" or "popular".
    """

    exclude_seen: bool = True
    items: Lists | None = None
    exclude: Lists | None = None
    on_unknown: Fallback = "raise"

    def __post_init__(self) -> None:
        """Refuse values that only behave like True or False."""
        if not isinstance(self.exclude_seen, bool | np.bool_):
            raise ParameterError(
                f"exclude_seen={shown(self.exclude_seen)} is not allowed; it must be True or False."
            )

    @classmethod
    def of(
        cls,
        catalogue: IdMap,
        exclude_seen: bool = True,
        items: Any = None,
        exclude: Any = None,
        on_unknown: Fallback = "raise",
    ) -> Filters:
        """Look up item ids: a list for all users, or a mapping from user ids to lists.

        Unknown items are skipped. A warning says how many.
        """
        allowed = _rows_of_lists(catalogue, items, "items")
        denied = _rows_of_lists(catalogue, exclude, "exclude")
        return cls(exclude_seen, allowed, denied, on_unknown)

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


def _rows_of_lists(catalogue: IdMap, wanted: Any, name: str) -> Lists | None:
    """Return the rows of the known ids; `name` is the parameter for the warning."""
    if wanted is None:
        return None
    by_user = isinstance(wanted, Mapping)
    lists = [list(as_ids(one, "item")) for one in (wanted.values() if by_user else [wanted])]
    rows = catalogue.rows([item for one in lists for item in one])
    unknown = int(np.count_nonzero(rows == UNKNOWN))
    if unknown:
        warnings.warn(
            f"{unknown:,} of {len(rows):,} item ids in {name} are unknown to the model and were "
            "skipped.",
            stacklevel=5,  # the caller of the method that recommends
        )
    found = [
        part[part != UNKNOWN]
        for part in np.split(rows, np.cumsum([len(one) for one in lists])[:-1])
    ]
    return dict(zip(wanted, found, strict=False)) if by_user else found[0]


def best_items(
    scorer: Scorer, rows: Rows, k: int, seen: Csr, users: IdMap, n_items: int, filters: Filters
) -> tuple[Rows, Scores]:
    """Find the best k items that the filters allow for each user row; shapes as in `top_k`."""
    allowed = scorer.rankable
    for listed, is_allowed in ((filters.items, True), (filters.exclude, False)):
        if listed is not None and not isinstance(listed, Mapping):
            named = np.zeros(n_items, dtype=bool)
            named[listed] = True
            allowed = allowed & (named if is_allowed else ~named)
    hidden = seen if filters.exclude_seen else None
    if isinstance(filters.exclude, Mapping):
        denied = _lists(filters.exclude, rows, users, n_items)
        hidden = denied if hidden is None else _union(hidden, denied, rows)
    if not isinstance(filters.items, Mapping):
        return scorer.top_k(rows, k, seen=hidden, allowed=allowed)
    chosen = _lists(filters.items, rows, users, n_items)
    return _top_k_of_lists(scorer, rows, k, hidden, allowed, chosen)


def known_rows(ids: IdMap, wanted: Any, what: str, on_unknown: Fallback) -> Rows:
    """Return the rows of one id or several; unknown ones raise or are left out."""
    listed = as_ids(wanted, what)
    if on_unknown == "raise":
        return ids.require(listed, what)
    rows = ids.rows(listed)
    known: Rows = rows[rows != UNKNOWN]
    return known


def as_ids(wanted: Any, what: str) -> Any:
    """Return a list of ids, from one or several."""
    if isinstance(wanted, np.ndarray):
        wanted = wanted.tolist()  # a single value if it has no dimension
    if isinstance(wanted, str | int | np.integer):
        return [wanted]
    if isinstance(wanted, Mapping) or not hasattr(wanted, "__iter__"):
        raise ParameterError(
            f"{shown(wanted)} is not understood: give one {what} id or a list of ids."
        )
    return wanted


def check_policy(on_unknown: str, allowed: Any = OnUnknown) -> None:
    """Raise a `ParameterError` unless it is a policy: `OnUnknown`, or `Fallback` for lists."""
    words = get_args(allowed)
    if not is_word(on_unknown, words):
        listed = " or ".join([", ".join(map(repr, words[:-1])), repr(words[-1])])
        raise ParameterError(f"on_unknown={shown(on_unknown)} is not allowed; use {listed}.")


def check_length(k: Any, most: int) -> int:
    """Return the length of a list, at most as many as there are, or raise a `ParameterError`."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 0:
        raise ParameterError(
            f"k={shown(k)} is not allowed; it must be a whole number of at least 0."
        )
    return min(int(k), most)


def _lists(by_user: Mapping[Id, Rows], rows: Rows, users: IdMap, n_items: int) -> Csr:
    """Return the listed items of some user rows; all other rows are empty."""
    chosen = [by_user.get(user, _NO_ROWS) for user in users.ids(rows).to_list()]
    owners = np.repeat(rows, [len(one) for one in chosen])
    return _from_pairs(owners, np.concatenate([_NO_ROWS, *chosen]), len(users), n_items)


def _from_pairs(
    rows: npt.NDArray[np.integer], columns: npt.NDArray[np.integer], n_rows: int, n_columns: int
) -> Csr:
    """Return compressed rows of pairs, which may repeat, in any order."""
    keys = np.unique(rows.astype(np.int64) * n_columns + columns)
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys // max(1, n_columns), minlength=n_rows), out=indptr[1:])
    return Csr(indptr, (keys % max(1, n_columns)).astype(np.int32), n_columns)


def _entries(lists: Csr, rows: Rows) -> tuple[npt.NDArray[np.int64], Rows]:
    """Return the indices into `rows` and the columns of all entries of these rows."""
    lengths = lists.counts[rows]
    places = np.repeat(np.arange(len(rows)), lengths)
    firsts = np.cumsum(lengths) - lengths
    entries = np.arange(lengths.sum()) - np.repeat(firsts - lists.indptr[rows], lengths)
    return places, lists.indices[entries]


def _union(one: Csr, other: Csr, rows: Rows) -> Csr:
    """Return the union of two matrices in these rows; all other rows are empty."""
    pairs = [_entries(lists, rows) for lists in (one, other)]
    owners = np.concatenate([rows[places] for places, _ in pairs])
    columns = np.concatenate([columns for _, columns in pairs])
    return _from_pairs(owners, columns, one.n_rows, one.n_columns)


def _top_k_of_lists(
    scorer: Scorer, rows: Rows, k: int, hidden: Csr | None, allowed: Mask, chosen: Csr
) -> tuple[Rows, Scores]:
    """Return `top_k` with an allow-list for each user, in blocks that bound the memory.

    A block ranks the items that any of its users may get, and masks those of other users.
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
        lists = scorer.top_k(distinct, k, seen=barred, allowed=joint)
        found[some], scores[some] = (values[inverse] for values in lists)
    return found, scores
