"""Requests with ids of the caller: rows of users, items and histories, filters, and lengths."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import polars as pl

from transcf.data.ids import UNKNOWN, Id, IdMap, Rows
from transcf.data.interactions import Mask
from transcf.errors import (
    DataError,
    ParameterError,
    UnknownIdError,
    check_flag,
    check_word,
    shown,
)
from transcf.models.fitted import FittedScorer

OnUnknown: TypeAlias = Literal["raise", "skip"]
#: The same for lists, which have something to fall back on.
Fallback: TypeAlias = Literal["raise", "skip", "popular"]
#: Item rows for all users, or by user id.
ItemLists: TypeAlias = Rows | Mapping[Id, Rows]


# -- filters -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Filters:
    """Filters of a request, with the meanings of the parameters of `Recommender.recommend`."""

    exclude_seen: bool = True
    items: ItemLists | None = None
    exclude: ItemLists | None = None
    on_unknown: Fallback = "raise"

    def __post_init__(self) -> None:
        """Refuse values that only behave like True or False."""
        check_flag("exclude_seen", self.exclude_seen)

    @classmethod
    def of(
        cls, catalogue: IdMap, exclude_seen: bool = True, items: Any = None, exclude: Any = None,
        on_unknown: Fallback = "raise",
    ) -> Filters:  # fmt: skip
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


def _rows_of_lists(catalogue: IdMap, wanted: Any, name: str) -> ItemLists | None:
    """Return the rows of the known ids; `name` is the parameter for the warning."""
    if wanted is None:
        return None
    by_user = isinstance(wanted, Mapping)
    lists = [list(_as_ids(one, "item")) for one in (wanted.values() if by_user else [wanted])]
    rows = catalogue.rows([item for one in lists for item in one])
    unknown = int(np.count_nonzero(rows == UNKNOWN))
    if unknown:
        warnings.warn(
            f"{unknown:,} of {len(rows):,} item ids in {name} are unknown to the model and were "
            "skipped.",
            stacklevel=4,  # the caller of the method that recommends
        )
    parts = np.split(rows, np.cumsum([len(one) for one in lists])[:-1])
    found = [part[part != UNKNOWN] for part in parts]
    return dict(zip(wanted, found, strict=False)) if by_user else found[0]


# -- users, items and sessions -----------------------------------------------------------------


def user_rows(learned: FittedScorer, users: Any, on_unknown: Fallback) -> Rows:
    """Return the rows of users with training interactions, each once, in the order of ids."""
    has_history = learned.known.active
    if users is None:
        return np.flatnonzero(has_history).astype(np.int32)
    return usable_rows(learned.known.users, users, "user", has_history, on_unknown)


def users_of(learned: FittedScorer, users: Any, on_unknown: Fallback) -> tuple[Rows, pl.Series]:
    """Return the rows and ids of users, each once; with "popular" a row may be `UNKNOWN`."""
    check_word("on_unknown", on_unknown, get_args(Fallback))
    known = learned.known.users
    if users is None or on_unknown != "popular":
        rows = user_rows(learned, users, on_unknown)
        return rows, known.ids(rows)
    ids = list(dict.fromkeys(_plain_id(known, user) for user in _as_ids(users, "user")))
    rows = known.rows(ids)
    owners = pl.Series(ids, dtype=pl.String if known.is_text else pl.Int64)
    return np.where(learned.known.active[rows], rows, np.int32(UNKNOWN)), owners


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


def history_rows(
    learned: FittedScorer, history: Any, on_unknown: Fallback, name: str = "the history"
) -> Rows:
    """Return the item rows of a history in its order, each once at its last place.

    There is at least one, except with "popular". Errors call the history by its `name`.
    """
    check_word("on_unknown", on_unknown, get_args(Fallback))
    wanted = list(_as_ids(history, "item"))
    if not wanted and on_unknown != "popular":
        raise DataError(f"{name[0].upper()}{name[1:]} is empty: give at least one item id.")
    rows = usable_rows(
        learned.known.items, wanted, "item", learned.rankable, on_unknown, distinct=False
    )
    if not len(rows) and on_unknown == "skip":
        raise UnknownIdError(
            f"None of the {len(wanted)} items of {name} is known from training: give at least one "
            "that is."
        )
    _, last = np.unique(rows[::-1], return_index=True)
    return rows[np.sort(len(rows) - 1 - last)]


def batch_of(history: Any) -> Mapping[Id, Any] | None:
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


def session_ids(batch: Mapping[Id, Any]) -> pl.Series:
    """Return the ids of sessions as a column."""
    for kind, dtype in ((int, pl.Int64), (str, pl.String)):
        if all(isinstance(name, kind) and not isinstance(name, bool) for name in batch):
            return pl.Series("session_id", list(batch), dtype=dtype)
    raise ParameterError("Session ids must be all text or all integers.")


def usable_rows(
    ids: IdMap, wanted: Any, what: str, usable: Mask, on_unknown: Fallback, *, distinct: bool = True
) -> Rows:
    """Return the rows that have training interactions, in the order of the request.

    Other ids raise an error if `on_unknown` says so, else they are left out.
    """
    named = _as_ids(wanted, what)
    rows: Rows = ids.require(named, what) if on_unknown == "raise" else ids.rows(named)
    is_usable = (rows != UNKNOWN) & usable[rows]
    if on_unknown == "raise" and not is_usable.all():
        idle = rows[~is_usable]
        raise UnknownIdError(
            f"{what} {ids.ids(idle[:1]).item()!r} has no training interactions "
            f"({len(idle)} of {len(rows)} have none): leave them out, or skip them with "
            "on_unknown='skip'."
        )
    kept: Rows = rows[is_usable]
    if distinct:
        _, first = np.unique(kept, return_index=True)
        kept = kept[np.sort(first)]
    return kept


def _as_ids(wanted: Any, what: str) -> Any:
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


def check_length(k: Any, most: int) -> int:
    """Return the length of a list, at most as many as there are, or raise a `ParameterError`."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 0:
        raise ParameterError(
            f"k={shown(k)} is not allowed; it must be a whole number of at least 0."
        )
    return min(int(k), most)
