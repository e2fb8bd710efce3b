"""All analyses of a model, as far as model and data allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from transcf.analysis.classes import PAIRS, classification
from transcf.analysis.closer import closer
from transcf.analysis.maps import likeness, maps
from transcf.analysis.pairs import Pairs
from transcf.analysis.result import Analysis
from transcf.analysis.spaces import Space, space_of
from transcf.analysis.tastes import tastes
from transcf.analysis.toy import toy
from transcf.analysis.variety import variety
from transcf.data.ids import Id, Rows
from transcf.data.interactions import Interactions
from transcf.errors import (
    DataError,
    MissingExtraError,
    ParameterError,
    UnsupportedError,
    is_word,
    shown,
)
from transcf.models.base import Recommender
from transcf.models.training_data import TrainingData

#: Called with one line of text that tells what is being done.
OnProgress: TypeAlias = Callable[[str], None]

#: Names of the analyses, in their order, and what each says.
WHAT = {
    "variety": "how many ratings and categories users have",
    "closer": "whether translations bring users closer to their items, and how far",
    "rating": "whether vectors of pairs tell ratings",
    "category": "whether vectors of pairs tell categories",
    "map": "t-SNE of vectors by category",
    "likeness": "how alike vectors of two categories are",
    "tastes": "which tastes a user has",
    "toy": "the idea in two dimensions, on made-up data",
}
#: What "all" stands for: what is about the model.
ABOUT_MODELS = tuple(name for name in WHAT if name != "toy")
#: Most pairs of a log that distances are worked out for.
_MOST_PAIRS = 30_000


def check_what(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of analyses, "all" written out, or raise a `ParameterError`.

    Example:
        >>> check_what(["closer", "variety"])
        ('closer', 'variety')
    """
    found: list[str] = []
    for name in names:
        if name != "all" and not is_word(name, WHAT):
            raise ParameterError(
                f"There is no analysis {shown(name)}: use all, or some of {', '.join(WHAT)}."
            )
        found += ABOUT_MODELS if name == "all" else (name,)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, eq=False)
class Subject:
    """What is analysed.

    Attributes:
        models: Fitted models on the same ids, by name; the first is what it is about, the others
            stand beside it.
        log: Events of the same users and items, with what is known of them.
        user: Whose tastes to show; None takes somebody with a history of middling length.
        number: Most pairs that random forests look at.
        random_state: Of all draws.
    """

    models: Mapping[str, Recommender[Any]]
    log: Interactions
    user: Id | None = None
    number: int = PAIRS
    random_state: int = 0

    def __post_init__(self) -> None:
        """Refuse models of other data."""
        first = next(iter(self.models.values()))
        for name, model in self.models.items():
            if model.users_ != first.users_ or model.items_ != first.items_:
                raise ParameterError(
                    f"{name} knows other users or items than {next(iter(self.models))}: models "
                    "that are compared have to be fitted on the same data."
                )

    @cached_property
    def spaces(self) -> dict[str, Space]:
        """Where each model has its users and items."""
        return {name: space_of(model) for name, model in self.models.items()}

    @property
    def space(self) -> Space:
        """That of the first model."""
        return next(iter(self.spaces.values()))

    @cached_property
    def pairs(self) -> Pairs:
        """The log's events as pairs of the model."""
        return Pairs.of(self.space, self.log)

    def analyze(self, name: str) -> Analysis:
        """Run one analysis by name.

        Raises:
            DataError: The data do not allow it.
            UnsupportedError: The model does not.
        """
        return _RUNS[check_what([name])[0]](self)

    def all(
        self, names: Iterable[str], on_progress: OnProgress = lambda text: None
    ) -> tuple[list[Analysis], dict[str, str]]:
        """Run several analyses.

        Returns:
            What was found, and why others could not be run, by name.
        """
        found, missing = [], {}
        for name in names:
            on_progress(WHAT[name])
            try:
                found.append(self.analyze(name))
            except (DataError, MissingExtraError, UnsupportedError) as error:
                missing[name] = str(error)
        return found, missing


def typical_users(known: TrainingData, number: int) -> Rows:
    """Return users with histories of different lengths, short to long, evenly spread: rows."""
    active = np.flatnonzero(known.active)
    order = active[np.argsort(known.seen.counts[active], kind="stable")]
    places = np.unique(((np.arange(number) + 0.5) / number * len(order)).astype(np.int64))
    return order[places].astype(np.int32)


def _closer(subject: Subject) -> Analysis:
    generator = np.random.default_rng(subject.random_state)
    some = subject.pairs.at_most(_MOST_PAIRS, generator)
    return closer(subject.space, some, random_state=subject.random_state)


def _classes(subject: Subject, target: Any) -> Analysis:
    return classification(
        subject.spaces, subject.pairs, target,
        number=subject.number, random_state=subject.random_state,
    )  # fmt: skip


def _tastes(subject: Subject) -> Analysis:
    known, user = subject.space.known, subject.user
    if user is None:
        user = known.users.ids(typical_users(known, 1))[0]
    return tastes(subject.space, subject.log, user, random_state=subject.random_state)


_RUNS: dict[str, Callable[[Subject], Analysis]] = {
    "variety": lambda subject: variety(subject.log),
    "closer": _closer,
    "rating": partial(_classes, target="rating"),
    "category": partial(_classes, target="category"),
    "map": lambda s: maps(s.spaces, s.pairs, random_state=s.random_state),
    "likeness": lambda s: likeness(s.space, s.pairs, random_state=s.random_state),
    "tastes": _tastes,
    "toy": lambda subject: toy(random_state=subject.random_state),
}
