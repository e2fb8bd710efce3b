"""The analyses by name, and `Subject`, which runs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from transcf.data.ids import Id
from transcf.data.interactions import Interactions
from transcf.errors import (
    DataError,
    MissingExtraError,
    ParameterError,
    UnsupportedError,
    check_word,
)
from transcf.experiments.experiment import OnProgress
from transcf.models.base import Recommender
from transcf.paper.categories import likeness, maps, tastes, variety
from transcf.paper.pairs import classification, closer
from transcf.paper.spaces import Analysis, Pairs, Space, space_of, typical_users

#: Names and descriptions of the analyses, in order.
WHAT = {
    "variety": "how many ratings and categories users have",
    "closer": "whether translations bring users closer to their items, and how far",
    "rating": "whether vectors of pairs predict ratings",
    "category": "whether vectors of pairs predict categories",
    "map": "t-SNE of vectors by category",
    "likeness": "how similar vectors of two categories are",
    "tastes": "which categories a user is near to",
}
_MAX_DISTANCES = 30_000  # pairs of a log whose distances are computed


def check_what(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of analyses, "all" expanded; raise a `ParameterError` for an unknown one."""
    found: list[str] = []
    for name in names:
        check_word("what", name, ("all", *WHAT))
        found += WHAT if name == "all" else (name,)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, eq=False)
class Subject:
    """Models and data to analyse."""

    #: By name, fitted on the same ids; the first is analysed, the others are compared with it.
    models: Mapping[str, Recommender[Any]]
    log: Interactions  # of the same users and items
    user: Id | None = None  # of "tastes"; None takes one with a history of median length

    def __post_init__(self) -> None:
        first = next(iter(self.models.values()))
        for name, model in self.models.items():
            if model.users_ != first.users_ or model.items_ != first.items_:
                raise ParameterError(
                    f"{name} knows other users or items than {next(iter(self.models))}: models "
                    "that are compared have to be fitted on the same data."
                )

    @cached_property
    def spaces(self) -> dict[str, Space]:
        """The space of each model."""
        return {name: space_of(model) for name, model in self.models.items()}

    @cached_property
    def pairs(self) -> Pairs:
        """The events of the log as pairs of the first model."""
        return Pairs.of(next(iter(self.spaces.values())), self.log)

    def analyze(self, name: str) -> Analysis:
        """Run one analysis by name; a `TransCFError` says why the data or model do not allow it."""
        if name == "variety":
            return variety(self.log)
        space = next(iter(self.spaces.values()))
        match name:
            case "closer":
                some = self.pairs.at_most(_MAX_DISTANCES, np.random.default_rng(0))
                return closer(space, some)
            case "rating" | "category":
                return classification(self.spaces, self.pairs, name)
            case "map":
                return maps(self.spaces, self.pairs)
            case "likeness":
                return likeness(space, self.pairs)
            case _:
                known, user = space.known, self.user
                user = known.users.ids(typical_users(known, 1))[0] if user is None else user
                return tastes(space, self.log, user)

    def all(
        self, names: Iterable[str], on_progress: OnProgress = lambda text: None
    ) -> tuple[list[Analysis], dict[str, str]]:
        """Run several analyses; return them, and why others could not be run, by name."""
        found, missing = [], {}
        for name in names:
            on_progress(WHAT[name])
            try:
                found.append(self.analyze(name))
            except (DataError, MissingExtraError, UnsupportedError) as error:
                missing[name] = str(error)
        return found, missing
