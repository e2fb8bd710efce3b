"""Whom a request is about: a user as learned, somebody placed by a history, or nobody known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, Protocol, TypeAlias

import numpy as np

from transcf.data.ids import UNKNOWN, Id, Rows
from transcf.data.interactions import Mask
from transcf.serving.events.store import Event
from transcf.serving.loaded_model import LoadedModel, plain_id, rows_of

#: Where a list comes from.
Source: TypeAlias = Literal["model", "folded_in", "popular"]
_NOTHING = np.empty(0, np.int32)


class Known(Protocol):
    """Events since a model was fitted, by user."""

    def of(self, user: str, after: int = 0) -> list[Event]:
        """Return somebody's events with numbers above `after`, oldest first."""


@dataclass(frozen=True, eq=False)
class ResolvedUser:
    """Somebody who is to be answered.

    Attributes:
        row: User row of the model; `UNKNOWN` for others.
        history: Item rows, oldest first, with those of new events.
        source: How they are placed.
        is_as_trained: Whether the history is that of the training data.
    """

    row: int
    history: Rows
    source: Source
    is_as_trained: bool = False


def find_people(served: LoadedModel, recent: Known, users: Sequence[Id]) -> list[ResolvedUser]:
    """Look users up, in the model and among the events since."""
    wanted = [plain_id(served.users, user) for user in users]
    known = served.learned.known
    rows = served.users.rows(wanted)
    rows = np.where((rows != UNKNOWN) & known.active[rows], rows, np.int32(UNKNOWN))
    taken = [[event.item for event in recent.of(str(user), served.after)] for user in wanted]
    found = []
    for row, (added, usable) in zip(rows.tolist(), _looked_up(served, taken), strict=True):
        history = _NOTHING if row == UNKNOWN else known.histories[row]
        if usable.any():
            history = last_places(np.concatenate([history, added[usable]]))
            found.append(_placed(served, row, history))
        else:
            source: Source = "popular" if row == UNKNOWN else "model"
            found.append(ResolvedUser(row, history, source, is_as_trained=True))
    return found


def find_sessions(
    served: LoadedModel, sessions: Sequence[Sequence[Id]]
) -> list[tuple[ResolvedUser, list[Id]]]:
    """Place people by their sessions; return each with the items that the model does not know."""
    found = []
    for session, (rows, usable) in zip(sessions, _looked_up(served, sessions), strict=True):
        skipped = [item for item, known in zip(session, usable.tolist(), strict=True) if not known]
        found.append((_placed(served, UNKNOWN, last_places(rows[usable])), skipped))
    return found


def _looked_up(served: LoadedModel, lists: Sequence[Sequence[Id]]) -> list[tuple[Rows, Mask]]:
    """Rows of the items of each list, and which of them the model can place.

    All are looked up at once: one lookup costs nearly as much as a thousand.
    """
    if not any(lists):
        return [(_NOTHING, np.empty(0, bool))] * len(lists)
    rows = rows_of(served.items, [item for items in lists for item in items])
    usable = (rows != UNKNOWN) & served.learned.rankable[rows]
    cuts = np.cumsum([0, *map(len, lists)]).tolist()
    return [(rows[first:end], usable[first:end]) for first, end in pairwise(cuts)]


def _placed(served: LoadedModel, row: int, history: Rows) -> ResolvedUser:
    if len(history) and served.can["fold_in"]:
        return ResolvedUser(row, history, "folded_in")
    return ResolvedUser(row, history, "popular" if row == UNKNOWN else "model")


def last_places(rows: Rows) -> Rows:
    """Keep every row once, at its last place.

    Example:
        >>> last_places(np.array([4, 1, 4], np.int32)).tolist()
        [1, 4]
    """
    _, last = np.unique(rows[::-1], return_index=True)
    kept: Rows = rows[np.sort(len(rows) - 1 - last)]
    return kept
