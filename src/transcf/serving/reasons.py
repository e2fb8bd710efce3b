"""Why an item has its score: for a list in short, for a pair in full."""

from __future__ import annotations

from typing import Any

import numpy as np

from transcf.data.histories import Histories
from transcf.data.ids import UNKNOWN
from transcf.errors import UnsupportedError
from transcf.models.explain import Explanation, explanation
from transcf.serving.loaded_model import LoadedModel
from transcf.serving.users import ResolvedUser

#: Past items that a list names for each of its items.
_FEW = 3


def explained(served: LoadedModel, person: ResolvedUser, row: int, top: int) -> Explanation:
    """Explain the score of an item row for somebody with a history.

    Raises:
        UnsupportedError: The model cannot, or nothing is known of the person.
    """
    learned, item = served.learned, served.items.series[row]
    if person.source == "popular" or not len(person.history):
        raise UnsupportedError(
            "Nothing is known of this person that could have drawn an item: send events, or a "
            "session with items that the model knows."
        )
    if person.source == "model":
        user = (person.row, served.users.series[person.row])
        history = learned.known.histories[person.row]
        return explanation(learned, learned, user, history, item, top, include_seen=True)
    guest = learned.fold_in(Histories.of([person.history], len(served.items)))
    found = explanation(learned, guest, None, person.history, item, top, include_seen=True)
    return found


def effects(served: LoadedModel, found: Explanation) -> list[dict[str, Any]]:
    """Return the past items of an explanation with their titles."""
    return [
        {
            "item": entry.item_id,
            "title": served.title(entry.item_id),
            "effect": round(entry.effect, 6),
            "share": round(entry.share, 6),
        }
        for entry in found.effects
    ]


def reason(served: LoadedModel, person: ResolvedUser, row: int) -> dict[str, Any] | None:
    """Say in short why an item is in a list; None where nothing can be said."""
    if person.source == "popular" or not served.can["explain"]:
        return None
    found = explained(served, person, row, _FEW)
    return {"sentence": found.sentence, "effects": effects(served, found)}


def in_full(served: LoadedModel, person: ResolvedUser, row: int, top: int) -> dict[str, Any]:
    """Say all there is to say about the score of an item."""
    found = explained(served, person, row, top)
    user = None if person.row == UNKNOWN else served.users.series[person.row]
    return {
        "version": served.version,
        "user": user,
        "item": found.item_id,
        "title": served.title(found.item_id),
        "score": float(np.float32(found.score)),
        "source": person.source,
        "sentence": found.sentence,
        "meaning": found.meaning,
        "effects": effects(served, found),
        "others": found.others,
        "others_drew": found.others_drew,
        "others_pushed": found.others_pushed,
        "notes": list(found.notes),
        "details": found.details,
    }
