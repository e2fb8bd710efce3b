"""What each item of a history does to the score of another item: what explanations are made of.

A `FittedScorer` returns them from `contributions`. Where the score (or the position of the user) is
a sum over the history, an item's effect is its own term: effects are exact and add up.

Elsewhere an effect is a change of the item's lead: how far its score is above that of an average
item. (A score alone will not do: near the middle of a space everything is nearer.) Where people
stand at a mean of their items, taking one away would make all others count more, so that about half
of any history would seem to speak against anything: there, an average item takes its place. All
others are asked again without the item.

An average item is one of an interaction drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from transcf.data.histories import Histories
from transcf.data.ids import Rows
from transcf.models.training_data import TrainingData
from transcf.retrieval.scorer import Scorer, block_length

Effects = npt.NDArray[np.float64]

#: What an effect is, in words that follow "An effect is".
TERM = "the past item's own term in the score, which is a sum over the history"
REPLACED = (
    "how far the past item lifts the score above that of an average item, compared with an "
    "average item in its place"
)
LEFT_OUT = (
    "how far the past item lifts the score above that of an average item, compared with the "
    "history without it"
)

#: Items of a history that are left out one by one, the latest; each takes a history to place.
MOST_LEFT_OUT = 256
#: Entries of histories that are placed at once.
_ENTRIES = 2**18


@dataclass(frozen=True, eq=False)
class Contributions:
    """What items of a history do to the score of one item.

    Attributes:
        history: Rows of the items, (n,).
        effects: What each does, (n,) float64; above 0 it speaks for the scored item.
        meaning: What an effect is, after "An effect is".
        rest: What the score of somebody with the history is beyond the sum of the effects, where
            they are its terms; None where they do not add up.
    """

    history: Rows
    effects: Effects
    meaning: str
    rest: float | None = None

    @classmethod
    def of_terms(cls, history: Rows, terms: Effects, rest: float = 0.0) -> Contributions:
        """Make them of terms, (n,), that add up to the score with the rest."""
        return cls(history, terms, TERM, rest)

    @classmethod
    def of_leads(cls, history: Rows, leads: Effects, meaning: str) -> Contributions:
        """Make them of the lead as it is and with each item changed, (n + 1,)."""
        return cls(history, leads[0] - leads[1:], meaning)

    @property
    def shares(self) -> Effects:
        """Effects over the sum of all of them without signs, (n,); zeros where nothing matters.

        Example:
            >>> effects = np.array([3.0, -1.0, 0.0])
            >>> Contributions.of_terms(np.arange(3, dtype=np.int32), effects).shares.tolist()
            [0.75, -0.25, 0.0]
        """
        total = np.abs(self.effects).sum()
        return self.effects / total if total else np.zeros_like(self.effects)


@dataclass(frozen=True)
class Remarks:
    """What a model can say about a score beside the effects.

    Attributes:
        words: Sentences.
        facts: The same for machines, JSON values only.
    """

    words: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class SummingFoldIn(Protocol):
    """Places people at a sum over their items."""

    def terms(self, history: Rows, vector: Effects) -> Effects:
        """Return what each item adds to the product of the place with a vector (dim,): (n,)."""


@runtime_checkable
class ChangingFoldIn(Protocol):
    """Places people by their items, and tells what becomes of the place without each."""

    #: What is done about an item: `REPLACED` or `LEFT_OUT`.
    meaning: str

    def changed(self, history: Rows) -> Effects:
        """Return the place as it is and with each item changed: (n + 1, dim) float64."""


def by_leaving_out(
    guests: Callable[[Histories], Scorer], known: TrainingData, history: Rows, item: int
) -> Contributions:
    """Ask again without each item: for any model that can place people.

    Of histories longer than `MOST_LEFT_OUT` the latest items are looked at, as if there were no
    others, so that the cost is bounded.

    Args:
        guests: Places people.
        known: What the model keeps of its training data.
        history: Item rows, oldest first.
        item: Row of the scored item.
    """
    history, n_items = history[-MOST_LEFT_OUT:], len(known.items)
    leads = np.empty(len(history) + 1)
    step = max(1, min(_ENTRIES // len(history), block_length(n_items)))
    for first in range(0, len(leads), step):
        places = range(first, min(first + step, len(leads)))
        lists = [np.delete(history, place - 1) if place else history for place in places]
        people = np.arange(len(lists), dtype=np.int32)
        block = guests(Histories.of(lists, n_items)).scores(people)
        leads[places] = block[:, item] - known.average_item(block.T)
    return Contributions.of_leads(history, leads, LEFT_OUT)
