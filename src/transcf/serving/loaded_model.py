"""`LoadedModel`: one version of a model, loaded, with all that answers need; it never changes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from transcf.data.histories import Histories
from transcf.data.ids import UNKNOWN, Id, IdMap, Rows
from transcf.data.interactions import Mask
from transcf.data.json_text import to_json
from transcf.errors import UnsupportedError
from transcf.io.model_json import NAME
from transcf.models.fitted import FittedScorer
from transcf.models.recommender import Recommender
from transcf.models.registry import load_version
from transcf.serving.item_metadata import NOTHING, ItemMetadata
from transcf.serving.sharing import share_vectors

#: Where a model's report keeps the number of the newest event that it has learned from.
EVENTS_AFTER = "events_after"
#: Users that are asked for at once before a version is served.
_MANY = 128


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A loaded version.

    Attributes:
        version: Its number.
        folder: Where it was read from.
        model: The model, its arrays mapped.
        facts: What is known of items, by id as text.
        can: What the model can do, by name.
        since: When it was loaded, in seconds since 1970.
    """

    version: int
    folder: Path
    model: Recommender[Any]
    facts: Mapping[str, ItemMetadata]
    can: Mapping[str, bool]
    since: float = field(default_factory=time.time)

    @classmethod
    def load(cls, version: int, folder: Path, facts: Mapping[str, ItemMetadata]) -> LoadedModel:
        """Read a version, compare it with its checksums, and ask it once.

        Raises:
            TransCFError: It is damaged, not whole, or does not answer.
        """
        model = load_version(folder, mapped=True)
        digest = _checksum(folder)
        share_vectors(model.learned_, f"{version}-{digest}")
        served = cls(version, folder, model, facts, _abilities(model.learned_))
        served.warm_up()
        return served

    def warm_up(self) -> None:
        """Make what the first requests would have to wait for."""
        known = self.learned.known
        # Some models have a kernel for one user and another for many.
        user = known.users.ids(np.flatnonzero(known.active)[:_MANY]).to_list()
        items = known.items.ids(np.flatnonzero(self.learned.rankable)[:1]).to_list()
        self.model.recommend(user[:1], k=10)
        self.model.recommend(user, k=10)
        if self.can["fold_in"]:
            self.model.recommend_for(items, k=10, exclude_seen=False)
        if self.can["explain"]:
            self.model.explain(user[0], items[0], include_seen=True)
        if self.can["similar_items"]:
            self.model.similar_items(items, k=1)
        for kept in (self.popular, self.about):
            assert len(kept), "made now that nobody waits"

    @property
    def learned(self) -> FittedScorer:
        """What scores."""
        return self.model.learned_

    @property
    def users(self) -> IdMap:
        """User ids."""
        return self.learned.known.users

    @property
    def items(self) -> IdMap:
        """Item ids."""
        return self.learned.known.items

    @property
    def after(self) -> int:
        """Number of the newest event that the model has learned from."""
        number = self.model.report_.get(EVENTS_AFTER, 0)
        return number if isinstance(number, int) else 0

    @cached_property
    def popular(self) -> Rows:
        """Item rows by the number of their users, most first; equal ones by id."""
        counts = np.where(self.learned.rankable, self.learned.known.item_counts, -1)
        order = np.argsort(-counts, kind="stable").astype(np.int32)
        return order[: np.count_nonzero(self.learned.rankable)]

    @cached_property
    def item_facts(self) -> list[ItemMetadata]:
        """What is known of each item row."""
        return [self.facts.get(str(item), NOTHING) for item in self.items.series.to_list()]

    @cached_property
    def shelves(self) -> dict[str, Rows]:
        """Item rows of each category, by its name."""
        found: dict[str, list[int]] = {}
        for row, fact in enumerate(self.item_facts):
            for name in fact.categories:
                found.setdefault(name, []).append(row)
        return {name: np.array(found[name], np.int32) for name in sorted(found)}

    @cached_property
    def _pieces(self) -> list[str | None]:
        return [None] * len(self.items)

    def item_json(self, row: int) -> str:
        """Return what answers say of an item, without the braces around it."""
        piece = self._pieces[row]
        if piece is None:
            piece = self.described(self.items.series[row])
            self._pieces[row] = piece
        return piece

    def described(self, item: Id) -> str:
        """Return the same of any item, also of one that the model does not know."""
        fact = self.facts.get(str(item), NOTHING)
        said = {"item": item, "title": fact.title, "categories": fact.categories}
        return to_json(said, compact=True)[1:-1]

    def title(self, item: Id) -> str | None:
        """Return the title of an item, if it has one."""
        return self.facts.get(str(item), NOTHING).title

    def in_categories(self, names: tuple[str, ...]) -> Mask:
        """(n_items,) items of any of these categories."""
        mask = np.zeros(len(self.items), dtype=bool)
        for name in names:
            mask[self.shelves.get(name, np.empty(0, np.int32))] = True
        return mask

    @cached_property
    def about(self) -> dict[str, Any]:
        """Return what the files of the version say of it: settings, sizes, checksums, card."""
        about = json.loads((self.folder / NAME).read_text(encoding="utf-8"))
        card = self.folder / "README.md"
        return {
            "version": self.version,
            "since": self.since,
            "folder": str(self.folder.name if self.version == 1 else self._short),
            "model": self.model.name,
            "class": type(self.model).__name__,
            "library": about["library"],
            "parameters": self.model.get_params(),
            "report": self.model.report_,
            "files": about["files"],
            "card": card.read_text(encoding="utf-8") if card.is_file() else "",
            "can": dict(self.can),
        }

    @property
    def _short(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"


def plain_id(ids: IdMap, value: Id) -> Id:
    """Return an id as the model has it: integers may come as text, and the other way round.

    Example:
        >>> import polars as pl
        >>> plain_id(IdMap(pl.Series([7, 9])), "7"), plain_id(IdMap(pl.Series(["7"])), 7)
        (7, '7')
    """
    if ids.is_text:
        return str(value)
    return ids.parse(value) if isinstance(value, str) else value


def rows_of(ids: IdMap, values: list[Id]) -> Rows:
    """Return the row of each id, `UNKNOWN` where there is none."""
    return ids.rows([plain_id(ids, value) for value in values])


def usable_rows(served: LoadedModel, values: list[Id]) -> Rows:
    """Return rows of items that the model can place, in the given order, without the others."""
    rows = rows_of(served.items, values)
    rows = rows[rows != UNKNOWN]
    usable: Rows = rows[served.learned.rankable[rows]]
    return usable


def _abilities(learned: FittedScorer) -> dict[str, bool]:
    """Find out what a model can do by asking for it."""
    first = np.flatnonzero(learned.rankable)[:1].astype(np.int32)
    history = Histories.of([first], len(learned.known.items))
    tries = {
        "fold_in": lambda: learned.fold_in(history),
        "explain": lambda: learned.contributions(first, int(first[0])),
        "similar_items": learned.item_similarity,
        "similar_users": learned.user_similarity,
    }
    can = {name: _works(ask) for name, ask in tries.items()}
    can["translations"] = can["fold_in"] and learned.moved(None, first, first) is not None
    return can


def _checksum(folder: Path) -> str:
    """Return what tells the files of a version from any others."""
    return hashlib.sha256((folder / NAME).read_bytes()).hexdigest()[:16]


def _works(ask: Any) -> bool:
    try:
        ask()
    except UnsupportedError:
        return False
    return True
