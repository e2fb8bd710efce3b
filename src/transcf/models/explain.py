"""Explanations: which items of a history drew another item.

`FittedScorer.contributions` returns the effect of each past item on the score of another one. Where
the score (or the position of the user) is a sum over the history, the effect is the item's own
term: effects are exact and add up. Elsewhere an effect is a change of the item's lead, that is, how
far its score is above that of an average item. (The score alone will not do: near the centre of a
space everything is nearer.) Where the position of a user is a mean of the items, removing one would
raise the weight of all others, so an average item takes its place. All other models are asked again
without the item. An average item is the item of an interaction drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.csr import Histories
from transcf.data.ids import Id, Rows
from transcf.errors import ParameterError, UnknownIdError, check_flag, check_integer
from transcf.retrieval.scorer import Scorer, block_length

if TYPE_CHECKING:
    from transcf.models.fitted import FittedScorer, TrainingData

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
    """Effects of the items of a history on the score of one item.

    `rest` is the score minus the sum of the effects; None where they are not terms of the score.
    """

    history: Rows  # of the items, (n,)
    effects: Effects  # (n,); positive effects raise the score
    meaning: str  # what an effect is, after "An effect is"
    rest: float | None = None

    @property
    def shares(self) -> Effects:
        """Effects divided by the sum of their absolute values, (n,)."""
        total = np.abs(self.effects).sum()
        return self.effects / total if total else np.zeros_like(self.effects)


@dataclass(frozen=True)
class Remarks:
    """Further information on a score: sentences, and the same as JSON values."""

    words: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def by_leaving_out(
    fold: Callable[[Histories], Scorer], known: TrainingData, history: Rows, item: int
) -> Contributions:
    """Return effects by scoring the history without each of its latest `MOST_LEFT_OUT` items."""
    history, n_items = history[-MOST_LEFT_OUT:], len(known.items)
    leads = np.empty(len(history) + 1)
    step = max(1, min(_ENTRIES // len(history), block_length(n_items)))
    for first in range(0, len(leads), step):
        places = range(first, min(first + step, len(leads)))
        lists = [np.delete(history, place - 1) if place else history for place in places]
        rows = np.arange(len(lists), dtype=np.int32)
        block = fold(Histories.of(lists, n_items)).scores(rows)
        leads[places] = block[:, item] - known.average_item(block.T)
    return Contributions(history, leads[0] - leads[1:], LEFT_OUT)


#: Items that the sentence names, at most: those that drew, and those that pushed away.
_DREW, _PUSHED = 3, 2


@dataclass(frozen=True)
class Effect:
    """Effect of one past item: positive if it drew the explained item, else it pushed it away.

    The share is the effect divided by the sum of the absolute effects of all past items.
    """

    item_id: Id
    effect: float
    share: float


@dataclass(frozen=True)
class Explanation:
    """Which past items drew an item.

    Attributes:
        user_id: The user, or None for a history alone.
        item_id: The item that is explained.
        model: Name of the model.
        score: The score of the pair.
        meaning: What an effect is, after "An effect is".
        rest: The score minus the sum of all effects, such as the item's bias, where effects are
            terms of the score; else None.
        effects: Past items: those that drew the item most, then those that pushed it away most.
        others: Number of further past items.
        others_drew: The sum of their positive shares.
        others_pushed: The sum of their negative shares.
        notes: Further information, in sentences.
        details: The same as JSON values.
    """

    user_id: Id | None
    item_id: Id
    model: str
    score: float
    meaning: str
    rest: float | None
    effects: tuple[Effect, ...]
    others: int
    others_drew: float
    others_pushed: float
    notes: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """Which items drew it, in words."""
        drew, pushed = self._named(1, _DREW), self._named(-1, _PUSHED)
        if not (drew or pushed):
            return f"Nothing in the history drew {self.item_id} or pushed it away."
        first = f"{self.item_id} was drawn most by {drew}"
        first = first if drew else f"Nothing in the history drew {self.item_id}"
        return f"{first}; {pushed} pushed it away most." if pushed else f"{first}."

    def _named(self, sign: int, most: int) -> str:
        """Name past items with effects of one sign, and their shares."""
        own = [entry for entry in self.effects if sign * entry.effect > 0][:most]
        words = [f"{entry.item_id} ({_percent(entry.share)})" for entry in own]
        return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))

    @property
    def reading(self) -> str:
        """How shares and effects are to be read."""
        return (
            "A share is an effect over the sum of all effects without their signs: above 0 the "
            f"item drew {self.item_id}, below 0 it pushed it away. An effect is {self.meaning}."
        )

    def to_frame(self) -> pl.DataFrame:
        """Return the table `item_id, share, effect`."""
        columns = ("item_id", "share", "effect")
        return pl.DataFrame(
            {name: [getattr(entry, name) for entry in self.effects] for name in columns}
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON form, with the sentence."""
        return {**asdict(self), "sentence": self.sentence}

    @property
    def title(self) -> str:
        """What is explained."""
        who = "this history" if self.user_id is None else f"user {self.user_id}"
        return f"Item {self.item_id} for {who}: {self.model} gives it a score of {self.score:.4f}."

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """The table as text: item, share, effect; the items that are left come last."""
        shown = [
            (str(entry.item_id), _percent(entry.share), f"{entry.effect:+.4g}")
            for entry in self.effects
        ]
        if self.others:
            both = f"{_percent(self.others_drew)} and {_percent(self.others_pushed)}"
            shown.append((f"({self.others:,} more)", both, ""))
        return shown

    def _repr_html_(self) -> str:
        from transcf.tables import Table

        notes = (self.sentence, self.reading, *self.notes)
        return Table(self.title, ("past item", "share", "effect"), self.rows, notes)._repr_html_()

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        table = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in self.rows]
        return "\n".join([self.title, self.sentence, *table, self.reading, *self.notes])


def explanation(
    learned: FittedScorer,
    scorer: Scorer,
    user: tuple[int, Id] | None,
    history: Rows,
    item: Id,
    top: int,
    *,
    include_seen: bool,
) -> Explanation:
    """Explain the score of an item by `scorer`; see `Recommender.explain`.

    `user` has row and id; None for a history alone, which `scorer` has in row 0.
    """
    top = check_integer("top", top, 1)
    check_flag("include_seen", include_seen)
    known = learned.known
    target = int(known.items.require([item], "item")[0])
    if not learned.rankable[target]:
        raise UnknownIdError(f"item {item!r} has no training interactions, so it has no score.")
    if not include_seen and target in history:
        whose = "The history" if user is None else f"user {user[1]!r}"
        raise ParameterError(
            f"{whose} has item {item!r} already, so it is not recommended: include_seen=True "
            "explains it all the same."
        )
    found, row = learned.contributions(history, target), 0 if user is None else user[0]
    score = scorer.scores(np.array([row], np.int32), np.array([target], np.int32))
    # The largest positive effects, and half as many negative ones.
    order = np.argsort(-found.effects, kind="stable")
    drew, pushed = order[found.effects[order] > 0], order[found.effects[order] < 0][::-1]
    strongest = np.concatenate([drew[:top], pushed[: (top + 1) // 2]])
    rest = np.delete(found.shares, strongest)
    past = known.items.ids(found.history[strongest]).to_list()
    effects = (found.effects[strongest].tolist(), found.shares[strongest].tolist())
    notes: tuple[str, ...] = ()
    if len(found.history) < len(history):
        latest = f"the latest {len(found.history):,} were looked at"
        notes = (f"Of {len(history):,} past items {latest}, as if there were no others.",)
    remarks = learned.remarks(None if user is None else row, history, target, top)
    return Explanation(
        user_id=None if user is None else user[1],
        item_id=item,
        model=learned.name,
        score=float(score[0]),
        meaning=found.meaning,
        rest=found.rest,
        effects=tuple(map(Effect, past, *effects)),
        others=len(rest),
        others_drew=float(rest[rest > 0].sum()),
        others_pushed=float(rest[rest < 0].sum()),
        notes=notes + remarks.words,
        details=remarks.facts,
    )


def _percent(share: float) -> str:
    """Format a share as a percentage. Non-zero shares are never rounded to 0 %."""
    if share and abs(share) < 0.005:
        return f"{100 * share:+.1g} %"
    return f"{100 * share:+.0f} %"
