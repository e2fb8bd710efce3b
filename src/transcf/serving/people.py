"""Whom a request is about: a user as learned, somebody placed by a history, or nobody known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from transcf.data.ids import UNKNOWN, Id, Rows
from transcf.serving.events.recent import Recent
from transcf.serving.served import Served, plain_id, rows_of, usable_rows

#: Where a list comes from.
Source: TypeAlias = Literal["model", "folded_in", "popular"]
_NOTHING = np.empty(0, np.int32)


@dataclass(frozen=True, eq=False)
class Person:
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


def find_people(served: Served, recent: Recent, users: Sequence[Id]) -> list[Person]:
    """Look users up, in the model and among the events since."""
    wanted = [plain_id(served.users, user) for user in users]
    rows = served.users.rows(wanted)
    active = served.learned.known.active
    found = []
    for user, row in zip(wanted, rows.tolist(), strict=True):
        known = row != UNKNOWN and bool(active[row])
        events = recent.of(str(user), served.after)
        found.append(_person(served, row if known else UNKNOWN, [e.item for e in events]))
    return found


def find_session(served: Served, session: Sequence[Id]) -> tuple[Person, list[Id]]:
    """Place somebody by a session; return them and the items that the model does not know."""
    rows = rows_of(served.items, list(session))
    usable = (rows != UNKNOWN) & served.learned.rankable[rows]
    skipped = [
        item for item, is_usable in zip(session, usable.tolist(), strict=True) if not is_usable
    ]
    return _placed(served, UNKNOWN, last_places(rows[usable])), skipped


def _person(served: Served, row: int, taken: list[str]) -> Person:
    """Put together what somebody has by training and by events."""
    history = _NOTHING if row == UNKNOWN else served.learned.known.histories[row]
    added = usable_rows(served, list(taken)) if taken else _NOTHING
    if not len(added):
        source: Source = "popular" if row == UNKNOWN else "model"
        return Person(row, history, source, is_as_trained=True)
    return _placed(served, row, last_places(np.concatenate([history, added])))


def _placed(served: Served, row: int, history: Rows) -> Person:
    if len(history) and served.can["fold_in"]:
        return Person(row, history, "folded_in")
    return Person(row, history, "popular" if row == UNKNOWN else "model")


def last_places(rows: Rows) -> Rows:
    """Keep every row once, at its last place.

    Example:
        >>> last_places(np.array([4, 1, 4], np.int32)).tolist()
        [1, 4]
    """
    _, last = np.unique(rows[::-1], return_index=True)
    kept: Rows = rows[np.sort(len(rows) - 1 - last)]
    return kept
