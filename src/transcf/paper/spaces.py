"""Vectors of users, items and pairs of any model with a vector for every user and every item.

`Space` has the points and translations of a fitted model, `Pairs` the user-item pairs of a log in
the rows of that model, and `Analysis` is the result of an analysis of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.atomic import atomic_write_text
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Interactions
from transcf.data.json_text import to_json
from transcf.errors import DataError, UnsupportedError
from transcf.experiments.pages import Drawing
from transcf.kernels import Array
from transcf.models.base import Recommender
from transcf.models.factors import Factors
from transcf.models.fitted import TrainingData
from transcf.models.mixture.fitted import Mixture
from transcf.models.transcf.fitted import Translated
from transcf.tables import Table, text_of

#: Returns the translations of pairs of rows, (n, dim).
Translate: TypeAlias = Callable[[Rows, Rows], Array]
Mask: TypeAlias = npt.NDArray[np.bool_]

_CHUNK = 4096  # pairs translated at once
_MAX_DRAWS = 50  # draws of an unobserved item before a pair is left out


@dataclass(frozen=True, eq=False)
class Space:
    """Points of users and items, and translations of pairs."""

    name: str  # of the model in tables
    known: TrainingData
    users: Array  # a, (n_users, dim) float32
    items: Array  # b, (n_items, dim) float32
    translate: Translate | None = None  # returns r of pairs of rows

    @property
    def has_translations(self) -> bool:
        """Whether the model translates users."""
        return self.translate is not None

    def translations(self, users: Rows, items: Rows) -> Array:
        """Return r of pairs of rows, (n, dim) float32; an `UnsupportedError` if there is none."""
        if self.translate is None:
            raise UnsupportedError(
                f"{self.name} has no translations: use TransCF (not its variants none and emb) or "
                "TransCFMixture."
            )
        found = np.empty((len(users), self.users.shape[1]), np.float32)
        for start in range(0, len(users), _CHUNK):
            some = slice(start, start + _CHUNK)
            found[some] = self.translate(users[some], items[some])
        return found

    def differences(self, users: Rows, items: Rows) -> Array:
        """Return a - b of pairs of rows, (n, dim) float32."""
        apart: Array = self.users[users] - self.items[items]
        return apart

    def vectors(self, users: Rows, items: Rows) -> Array:
        """Return the translations of pairs, or a - b for a model without translations."""
        has_some = self.has_translations
        return self.translations(users, items) if has_some else self.differences(users, items)

    def distances(self, apart: Array, moves: Array) -> tuple[Array, Array]:
        """Return |a-b|^2 and |a+r-b|^2, (n,) float64 each, from a-b and r, (n, dim) each."""
        apart, moves = apart.astype(np.float64), moves.astype(np.float64)
        return np.square(apart).sum(axis=1), np.square(apart + moves).sum(axis=1)

    def nearness(self, users: Rows, items: Rows) -> Array:
        """Return squared distances of pairs after the translation, if any: (n,) float64."""
        apart = self.differences(users, items)
        moves = self.translations(users, items) if self.has_translations else np.zeros_like(apart)
        return self.distances(apart, moves)[1]


def space_of(model: Recommender[Any]) -> Space:
    """Return the space of a fitted model.

    TransCFMixture translates a user once for each item k of the history. The translation of a pair
    is then the mean of all r_uk, weighted by their shares in the score of the pair.

    Raises an `UnsupportedError` if the model has no vector for every user and every item.
    """
    inner = model._without_trend()
    known = inner.known
    match inner:
        case Mixture():
            moves = inner.translations if inner.settings.tau else None
            return Space(model.name, known, inner.users, inner.items, moves)
        case Translated():
            variant = inner.score_function.name
            # "emb" scores as the published variant; its translation is a - b.
            moves = None if variant in ("none", "emb") else inner.translations
            return Space(model.name, known, inner.users, inner.items, moves)
        case Factors():
            return Space(model.name, known, inner.users, inner.items)
    raise UnsupportedError(
        f"{model.name} has no vector for every user and every item, so that there is nothing to "
        "analyse: take TransCF, TransCFMixture, CML or another model of factors."
    )


@dataclass(frozen=True, eq=False)
class Pairs:
    """User-item pairs in the rows of a model."""

    users: Rows
    items: Rows
    ratings: npt.NDArray[np.float32] | None
    labels: npt.NDArray[np.int64] | None  # category of the item as an index of `names`, or -1
    names: tuple[str, ...]  # of categories
    in_training: Mask  # whether the model was fitted on the pair

    @classmethod
    def of(cls, space: Space, log: Interactions) -> Self:
        """Return the events of a log whose user and item the model was fitted on."""
        known = space.known
        users = known.users.rows(log.users.series)[log.user_rows]
        items = known.items.rows(log.items.series)[log.item_rows]
        usable = (users != UNKNOWN) & (items != UNKNOWN)
        usable[usable] = known.active[users[usable]] & (known.item_counts > 0)[items[usable]]
        if not usable.any():
            raise DataError(
                f"{space.name} has learned from none of the users and items of this data: give the "
                "data that it was fitted on."
            )
        users, items = users[usable], items[usable]
        return cls(
            users,
            items,
            None if log.ratings is None else log.ratings[usable],
            None if log.categories is None else item_labels(log)[log.item_rows][usable],
            log.category_names,
            np.isin(_keys(users, items), _seen_keys(known)),
        )

    def __len__(self) -> int:
        return len(self.users)

    def take(self, some: npt.NDArray[np.integer] | Mask) -> Self:
        """Return some of the pairs, by index or mask."""
        return replace(
            self,
            users=self.users[some],
            items=self.items[some],
            ratings=None if self.ratings is None else self.ratings[some],
            labels=None if self.labels is None else self.labels[some],
            in_training=self.in_training[some],
        )

    def at_most(self, number: int, generator: np.random.Generator) -> Self:
        """Return a random sample of at most `number` pairs, in order."""
        if len(self) <= number:
            return self
        return self.take(np.sort(generator.choice(len(self), number, replace=False)))

    def unobserved(self, space: Space, generator: np.random.Generator) -> tuple[Rows, Rows]:
        """Draw for each pair an item, uniformly, that its user has neither here nor in training.

        Returns rows of users and items; fewer than there are pairs if users have almost all items.
        """
        choices = np.flatnonzero(space.known.item_counts > 0).astype(np.int32)
        own = np.union1d(_keys(self.users, self.items), _seen_keys(space.known))
        drawn = generator.choice(choices, len(self.users))
        taken = np.isin(_keys(self.users, drawn), own)
        for _ in range(_MAX_DRAWS):
            if not taken.any():
                break
            places = np.flatnonzero(taken)
            drawn[places] = generator.choice(choices, len(places))
            taken[places] = np.isin(_keys(self.users[places], drawn[places]), own)
        return self.users[~taken], drawn[~taken]


def item_labels(log: Interactions) -> npt.NDArray[np.int64]:
    """Return a category of each item, (n_items,), -1 for none.

    Of several categories, the one with the fewest items is taken, then the first by name.
    """
    of_items = log.item_categories
    sizes = np.bincount(of_items.indices, minlength=max(1, of_items.n_columns))
    order = np.lexsort((of_items.indices, sizes[of_items.indices], of_items.entry_rows))
    labels = np.full(log.n_items, -1, np.int64)
    some = of_items.counts > 0
    labels[some] = of_items.indices[order][of_items.indptr[:-1][some]]
    return labels


def _keys(users: Rows, items: Rows) -> npt.NDArray[np.int64]:
    """Return one number for each pair of rows."""
    return (users.astype(np.int64) << 32) + items


def _seen_keys(known: TrainingData) -> npt.NDArray[np.int64]:
    return _keys(known.seen.entry_rows, known.seen.indices)


def typical_users(known: TrainingData, number: int) -> Rows:
    """Return rows of users at even quantiles of the history length, short to long."""
    active = np.flatnonzero(known.active)
    order = active[np.argsort(known.seen.counts[active], kind="stable")]
    places = np.unique(((np.arange(number) + 0.5) / number * len(order)).astype(np.int64))
    return order[places].astype(np.int32)


@dataclass(frozen=True, eq=False)
class Analysis:
    """The result of an analysis."""

    name: str  # one of `WHAT`
    title: str
    frame: pl.DataFrame
    draw: Callable[[], Sequence[Drawing]]  # draws the charts; needs matplotlib
    facts: Mapping[str, Any] = field(default_factory=dict)  # most important figures, JSON values
    notes: Sequence[str] = ()  # how to read the figures

    @cached_property
    def figures(self) -> tuple[Drawing, ...]:
        """The charts; drawn at first access."""
        return tuple(self.draw())

    @property
    def table(self) -> Table:
        """The figures as a table of text."""

        def named(name: str) -> str:
            return name.replace("_percent", " %").replace("_", " ")

        frame = self.frame.rename(named)
        facts = ", ".join(f"{named(name)} {text_of(fact)}" for name, fact in self.facts.items())
        return Table.of(frame, self.title, [*self.notes, f"{facts}."], digits=2)

    def to_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "analysis": self.name,
            "title": self.title,
            "facts": dict(self.facts),
            "rows": self.frame.to_dicts(),
            "notes": list(self.notes),
        }

    def svg_files(self, name: str) -> dict[str, str]:
        """Return the text of an SVG file per chart, by file name."""
        charts = enumerate(self.figures, start=1)
        return {f"{name}-{number}.svg": drawing.to_file() for number, drawing in charts}

    def write(self, folder: Path) -> list[Path]:
        """Write `NAME.json`, `NAME.csv` and an SVG file per chart, and return their paths."""
        texts = {f"{self.name}.json": to_json(self.to_dict()) + "\n"}
        texts[f"{self.name}.csv"] = self.frame.write_csv()
        texts |= self.svg_files(self.name)
        return [atomic_write_text(folder / name, text) for name, text in texts.items()]
