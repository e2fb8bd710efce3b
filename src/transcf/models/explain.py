"""`Explanation`: which items of a history drew another one, for people and for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import Id, Rows
from transcf.errors import ParameterError, UnknownIdError, shown
from transcf.models.contributions import Effects
from transcf.models.fitted import FittedScorer
from transcf.pages.tables import Table
from transcf.retrieval.scorer import Scorer

#: Items that the sentence names, at most: those that drew, and those that pushed away.
_DREW, _PUSHED = 3, 2


@dataclass(frozen=True)
class Effect:
    """What one past item does to the score.

    Attributes:
        item_id: The past item.
        effect: What it does to the score, see `Explanation.meaning`; above 0 it drew the
            explained item, below 0 it pushed it away.
        share: The effect over the sum of the effects of all past items without their signs.
    """

    item_id: Id
    effect: float
    share: float


@dataclass(frozen=True)
class Explanation:
    """Which past items drew an item.

    Attributes:
        user_id: The user, or None for somebody known by a history alone.
        item_id: The item that is explained.
        model: What tables call the model.
        score: The score of the pair.
        meaning: What an effect is, after "An effect is".
        rest: What the score of somebody with this history is beyond the sum of all effects, such
            as the item's bias, where effects are terms of the score; else None.
        effects: Past items: those that drew the item most, then those that pushed it away most.
        others: How many past items are left, of those that were looked at.
        others_drew: The sum of their shares above 0.
        others_pushed: The sum of their shares below 0.
        notes: What else the model can say, in sentences.
        details: The same for machines.
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
        """Say in words what drew the item."""
        drew = [_named(entry) for entry in self.effects if entry.effect > 0][:_DREW]
        pushed = [_named(entry) for entry in self.effects if entry.effect < 0][:_PUSHED]
        if not (drew or pushed):
            return f"Nothing in the history drew {self.item_id} or pushed it away."
        away = f"{_listed(pushed)} pushed it away most"
        if not drew:
            return f"Nothing in the history drew {self.item_id}; {away}."
        drawn = f"{self.item_id} was drawn most by {_listed(drew)}"
        return f"{drawn}; {away}." if pushed else f"{drawn}."

    @property
    def reading(self) -> str:
        """Say how shares and effects are to be read."""
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
        """Say what is explained."""
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
        """Show it as a table in notebooks."""
        notes = (self.sentence, self.reading, *self.notes)
        return Table(self.title, ("past item", "share", "effect"), self.rows, notes)._repr_html_()

    def __str__(self) -> str:
        """Say it in a few lines."""
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in self.rows
        ]
        table = [f"  {line}" for line in lines]
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
    """Explain the score of an item.

    Args:
        learned: What the model has learned.
        scorer: Scores the person, in the user's row or in row 0.
        user: Row and id of the user; None for somebody known by a history alone.
        history: Item rows of the person, oldest first.
        item: Id of the item.
        top: How many past items to show that drew it; half as many are shown that pushed it away.
        include_seen: Whether an item of the history is explained.
    """
    if isinstance(top, bool) or not isinstance(top, int | np.integer) or top < 1:
        raise ParameterError(
            f"top={shown(top)} is not allowed; it must be a whole number of at least 1."
        )
    if not isinstance(include_seen, bool | np.bool_):
        raise ParameterError(
            f"include_seen={shown(include_seen)} is not allowed; it must be True or False."
        )
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
    strongest = _strongest(found.effects, int(top))
    rest = np.delete(found.shares, strongest)
    past = known.items.ids(found.history[strongest]).to_list()
    effects = (found.effects[strongest].tolist(), found.shares[strongest].tolist())
    notes: tuple[str, ...] = ()
    if len(found.history) < len(history):
        latest = f"the latest {len(found.history):,} were looked at"
        notes = (f"Of {len(history):,} past items {latest}, as if there were no others.",)
    remarks = learned.remarks(None if user is None else row, history, target, int(top))
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


def _strongest(effects: Effects, top: int) -> npt.NDArray[np.int64]:
    """Places of the `top` largest effects above 0, then of half as many below 0, largest first."""
    order = np.argsort(-effects, kind="stable")
    drew, pushed = order[effects[order] > 0], order[effects[order] < 0][::-1]
    return np.concatenate([drew[:top], pushed[: (top + 1) // 2]])


def _named(entry: Effect) -> str:
    return f"{entry.item_id} ({_percent(entry.share)})"


def _percent(share: float) -> str:
    """Write a share; what is not nothing does not look like it."""
    if share and abs(share) < 0.005:
        return f"{100 * share:+.1g} %"
    return f"{100 * share:+.0f} %"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
