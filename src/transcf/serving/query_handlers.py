"""Questions other than lists: neighbours, reasons, scores, facts, search."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from transcf.data.histories import Histories
from transcf.data.ids import UNKNOWN, Id
from transcf.errors import UnknownIdError, shown
from transcf.models.tables import similar
from transcf.retrieval.scorer import Scores
from transcf.serving.events.cache import EventCache
from transcf.serving.loaded_model import LoadedModel, plain_id, rows_of
from transcf.serving.reasons import in_full
from transcf.serving.users import ResolvedUser, find_people, find_sessions


class QueryHandlers:
    """Answers about one version, with what is made once for all of them.

    Args:
        served: The version.
    """

    def __init__(self, served: LoadedModel) -> None:
        """Keep it."""
        self.served = served

    # -- neighbours, reasons, scores ---------------------------------------------------------------

    def similar_items(self, item: Id, k: int) -> dict[str, Any]:
        """Return the items most similar to an item."""
        served = self.served
        wanted = plain_id(served.items, item)
        table = similar(served.learned, "item", self._item_likeness, [wanted], k, "raise")
        rows = served.items.rows(table["neighbor_id"]).tolist()
        return {
            "version": served.version,
            "item": wanted,
            "items": [
                {**self._item(served.items.series[row]), "score": score, "rank": rank}
                for row, score, rank in zip(rows, table["score"], table["rank"], strict=True)
            ],
        }

    def similar_users(self, user: Id, k: int) -> dict[str, Any]:
        """Return the users most similar to a user."""
        served = self.served
        wanted = plain_id(served.users, user)
        table = similar(served.learned, "user", self._user_likeness, [wanted], k, "raise")
        found = table.select("neighbor_id", "score", "rank").rename({"neighbor_id": "user"})
        return {"version": served.version, "user": wanted, "users": found.to_dicts()}

    @cached_property
    def _item_likeness(self) -> Any:
        return self.served.learned.item_similarity()

    @cached_property
    def _user_likeness(self) -> Any:
        return self.served.learned.user_similarity()

    def explain_user(self, recent: EventCache, user: Id, item: Id, top: int) -> dict[str, Any]:
        """Say why an item has its score for a user."""
        person = find_people(self.served, recent, [user])[0]
        if person.source == "popular":
            raise UnknownIdError(f"user {shown(user)} is unknown: there is nothing to explain.")
        found = in_full(self.served, person, self._item_row(item), top)
        return found | {"user": plain_id(self.served.users, user)}

    def explain_session(self, session: Sequence[Id], item: Id, top: int) -> dict[str, Any]:
        """Say why an item has its score for a session."""
        person, _ = find_sessions(self.served, [session])[0]
        return in_full(self.served, person, self._item_row(item), top)

    def scores(self, recent: EventCache, pairs: Sequence[tuple[Id, Id]]) -> dict[str, Any]:
        """Score pairs of users and items."""
        served = self.served
        users = list(dict.fromkeys(user for user, _ in pairs))
        people = dict(zip(users, find_people(served, recent, users), strict=True))
        items = rows_of(served.items, [item for _, item in pairs])
        found: list[float | None] = [None] * len(pairs)
        places: dict[Id, list[int]] = {}
        for place, ((user, _), row) in enumerate(zip(pairs, items.tolist(), strict=True)):
            if row != UNKNOWN and served.learned.rankable[row]:
                places.setdefault(user, []).append(place)
        for user, some in places.items():
            values = self._scored(people[user], items[some])
            for place, value in zip(some, [] if values is None else values.tolist(), strict=False):
                found[place] = value
        return {
            "version": served.version,
            "scores": [
                {
                    "user": plain_id(served.users, user),
                    "item": plain_id(served.items, item),
                    "score": score,
                }
                for (user, item), score in zip(pairs, found, strict=True)
            ],
        }

    def _scored(self, person: ResolvedUser, items: npt.NDArray[np.int32]) -> Scores | None:
        """Score items for somebody; None for whom nothing is known of."""
        learned = self.served.learned
        if person.source == "popular":
            return None
        if person.source == "model":
            return learned.scores(np.full(len(items), person.row, np.int32), items)
        guest = learned.fold_in(Histories.of([person.history], len(self.served.items)))
        return guest.scores(np.zeros(len(items), np.int32), items)

    # -- facts ------------------------------------------------------------------------------------

    def item(self, item: Id) -> dict[str, Any]:
        """Return what is known of an item."""
        served = self.served
        row = int(rows_of(served.items, [item])[0])
        fact = served.facts.get(str(item))
        if row == UNKNOWN and fact is None:
            raise UnknownIdError(f"item {shown(item)} is unknown, and no table of items has it.")
        known = row != UNKNOWN and bool(served.learned.rankable[row])
        return {
            "version": served.version,
            **self._item(plain_id(served.items, item)),
            "facts": dict(fact.others) if fact else {},
            "users": int(served.learned.known.item_counts[row]) if row != UNKNOWN else 0,
            "known": known,
        }

    def user(self, recent: EventCache, user: Id, limit: int) -> dict[str, Any]:
        """Return what is known of a user: the newest items first."""
        served = self.served
        wanted = plain_id(served.users, user)
        person = find_people(served, recent, [wanted])[0]
        taken = {event.item: event.time for event in recent.of(str(wanted), served.after)}
        if person.row == UNKNOWN and not taken:
            raise UnknownIdError(f"user {shown(user)} is unknown: no event and no training data.")
        # Events of items that the model does not know are events all the same.
        trained = served.items.ids(self._trained(person)).to_list()
        newest: list[Id] = [plain_id(served.items, item) for item in reversed(taken)]
        newest += [item for item in reversed(trained) if str(item) not in taken]
        return {
            "version": served.version,
            "user": wanted,
            "known": person.row != UNKNOWN,
            "source": person.source,
            "count": len(newest),
            "history": [
                {
                    **self._item(item),
                    "from": "event" if str(item) in taken else "training",
                    "time": taken.get(str(item)),
                }
                for item in newest[:limit]
            ],
        }

    def _trained(self, person: ResolvedUser) -> npt.NDArray[np.int32]:
        known = self.served.learned.known
        return known.histories[person.row] if person.row != UNKNOWN else np.empty(0, np.int32)

    def _item(self, item: Id) -> dict[str, Any]:
        fact = self.served.facts.get(str(item))
        named = (fact.title, list(fact.categories)) if fact else (None, [])
        return {"item": item, "title": named[0], "categories": named[1]}

    def _item_row(self, item: Id) -> int:
        return int(self.served.items.require([plain_id(self.served.items, item)], "item")[0])

    def categories(self) -> dict[str, Any]:
        """Return the categories and how many items each has."""
        shelves = self.served.shelves.items()
        found = [{"category": name, "items": len(rows)} for name, rows in shelves]
        return {"version": self.served.version, "categories": found}
