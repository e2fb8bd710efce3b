"""What the vectors of pairs know of ratings and categories that no model has seen.

A random forest (scikit-learn's, with its defaults) is asked to tell the class of a pair from a
vector of the pair. Classes are balanced to the smallest one, accuracies are those of five folds.

Two kinds of folds: at random, as published, and such that no item is on both sides. All pairs of an
item share its vectors, so that a forest which has met the item need only recognise it; what it
tells of items that it has not met is what the vectors know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.analysis.closer import rating_groups
from transcf.analysis.pairs import Pairs
from transcf.analysis.result import Analysis
from transcf.analysis.spaces import Space
from transcf.errors import DataError, MissingExtraError, ParameterError
from transcf.kernels import Array
from transcf.pages import Drawing
from transcf.pages.figures import bars
from transcf.parallel import thread_count

#: What is to be told.
Target: TypeAlias = Literal["rating", "category"]

#: Categories that are told apart: the most frequent ones.
CATEGORIES = 10
#: Folds of the cross-validation.
FOLDS = 5
#: Pairs that are looked at unless said otherwise.
PAIRS = 2000
#: What a guess without looking is called.
RANDOM = "random"

Labels: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Accuracy:
    """Mean accuracy over folds and its spread, in per cent."""

    percent: float
    spread: float


def classification(
    spaces: Mapping[str, Space],
    pairs: Pairs,
    target: Target,
    *,
    number: int = PAIRS,
    random_state: int = 0,
) -> Analysis:
    """Tell ratings or categories of pairs from their vectors.

    Args:
        spaces: Models with the same ids by name, the first of which is what it is about: its
            translations, its a-b and its item vectors are looked at. Of the others it is
            translations where they have some, else a-b.
        pairs: Observed ones, in the rows that all models share.
        target: "rating" or "category" (of the ten most frequent).
        number: Most pairs to look at, after balancing.
        random_state: Of the draw of pairs, the folds and the forests.

    Raises:
        DataError: There are no such labels, or too few pairs of them.
        MissingExtraError: scikit-learn is not installed.
    """
    if number < 1:
        raise ParameterError(f"number={number} is not allowed; it must be at least 1.")
    names, labels = labels_of(pairs, target)
    chosen = balanced(labels, number, np.random.default_rng(random_state))
    some, classes = pairs.take(chosen), labels[chosen]
    vectors = _vectors(spaces, some)
    found = {
        name: [_accuracy(values, classes, groups, random_state) for groups in (None, some.items)]
        for name, values in vectors.items()
    }
    guess = [_guessing(classes, groups, random_state) for groups in (None, some.items)]
    found[RANDOM] = guess
    frame = pl.DataFrame(
        {
            "vectors": list(found),
            "accuracy_percent": [folds[0].percent for folds in found.values()],
            "spread": [folds[0].spread for folds in found.values()],
            "other_items_percent": [folds[1].percent for folds in found.values()],
            "other_items_spread": [folds[1].spread for folds in found.values()],
        }
    )
    first = next(iter(spaces.values()))
    facts = {
        "classes": names,
        "pairs": len(chosen),
        "pairs_of_a_class": len(chosen) // len(names),
        "items": len(np.unique(some.items)),
        "folds": FOLDS,
    }
    title = f"{first.name}: {target} of a pair, told from its vector by a random forest"

    def draw() -> list[Drawing]:
        return [_figure(title, frame)]

    return Analysis(target, title, frame, draw, facts, _notes(facts, target))


def labels_of(pairs: Pairs, target: Target) -> tuple[list[str], Labels]:
    """Return names of classes and the class of each pair, (n,), -1 where it has none."""
    labels = np.full(len(pairs), -1, np.int64)
    if target == "rating":
        groups = rating_groups(pairs)
        for place, members in enumerate(groups.values()):
            labels[members] = place
        names = [name.removeprefix("rating ") for name in groups]
    else:
        names = frequent_categories(pairs)
        places = {pairs.names.index(name): place for place, name in enumerate(names)}
        for category, place in places.items():
            labels[pairs.labels == category] = place
    if len(names) < 2:
        raise DataError(
            f"There is nothing to tell apart: these pairs have {len(names)} kinds of {target}."
        )
    return names, labels


def frequent_categories(pairs: Pairs, number: int = CATEGORIES) -> list[str]:
    """Return the categories with the most pairs, most frequent first; none where there are none."""
    if pairs.labels is None:
        return []
    times = np.bincount(pairs.labels[pairs.labels >= 0], minlength=len(pairs.names))
    order = np.argsort(-times, kind="stable")[:number]
    return [pairs.names[place] for place in order if times[place]]


def balanced(labels: Labels, number: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw as many places of every class as the smallest has, and `number` in all at most.

    Args:
        labels: (n,) classes from 0 on, -1 for none.
        number: Most places.
        generator: Draws them.

    Raises:
        DataError: The smallest class has too few for the folds.
    """
    sizes = np.bincount(labels[labels >= 0])
    each = min(int(sizes.min()), number // len(sizes))
    if each < FOLDS:
        raise DataError(
            f"The smallest class has {sizes.min():,} pairs, {each:,} would be looked at, and "
            f"{FOLDS} folds need as many at least: give more pairs."
        )
    drawn = [
        generator.choice(np.flatnonzero(labels == label), each, replace=False)
        for label in range(len(sizes))
    ]
    return np.concatenate(drawn)


def _vectors(spaces: Mapping[str, Space], pairs: Pairs) -> dict[str, Array]:
    """What forests look at, by name."""
    found: dict[str, Array] = {}
    for place, (name, space) in enumerate(spaces.items()):
        if space.has_translations:
            found[f"{name}: r"] = space.translations(pairs.users, pairs.items)
        emb = " (emb)" if space.has_translations else ""
        if place == 0 or not space.has_translations:
            found[f"{name}: a-b{emb}"] = space.differences(pairs.users, pairs.items)
        if place == 0:
            found[f"{name}: item b alone"] = space.items[pairs.items]
    return found


def _accuracy(values: Array, classes: Labels, groups: Any, seed: int) -> Accuracy:
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ImportError as error:
        raise MissingExtraError("Telling classes of pairs apart", "plots") from error
    # The same trees whatever the number of threads: each has a seed of its own.
    return _cross_validated(
        lambda fold: RandomForestClassifier(random_state=seed + fold, n_jobs=thread_count()),
        values, classes, groups, seed,
    )  # fmt: skip


def _guessing(classes: Labels, groups: Any, seed: int) -> Accuracy:
    from sklearn.dummy import DummyClassifier

    nothing = np.zeros((len(classes), 1), np.float32)
    return _cross_validated(
        lambda fold: DummyClassifier(strategy="uniform", random_state=seed + fold),
        nothing, classes, groups, seed,
    )  # fmt: skip


def _cross_validated(make: Any, values: Array, classes: Labels, groups: Any, seed: int) -> Accuracy:
    """Fit on four folds, judge on the fifth, each in turn."""
    scores = []
    for fold, (train, test) in enumerate(_folds(classes, groups, seed)):
        model = make(fold).fit(values[train], classes[train])
        scores.append(100 * float(model.score(values[test], classes[test])))
    return Accuracy(float(np.mean(scores)), float(np.std(scores, ddof=1)))


def _folds(classes: Labels, groups: Any, seed: int) -> Iterator[tuple[Any, Any]]:
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    yield from kind(FOLDS, shuffle=True, random_state=seed).split(classes, classes, groups)


def _notes(facts: Mapping[str, Any], target: Target) -> tuple[str, ...]:
    of_items = (
        " All pairs of an item have its category, so that recognising the item is enough at random."
        if target == "category"
        else ""
    )
    return (
        f"{facts['pairs']:,} pairs of {facts['items']:,} items, {facts['pairs_of_a_class']:,} of "
        f"each class ({', '.join(facts['classes'])}); {FOLDS} folds, mean and spread over them.",
        f"accuracy: folds at random, as published.{of_items} other items: no item is in two folds, "
        "so that the forest has not met it.",
    )


def _figure(title: str, frame: pl.DataFrame) -> Drawing:
    series = {
        "folds at random": "accuracy_percent",
        "folds of other items": "other_items_percent",
    }
    spreads = {"folds at random": "spread", "folds of other items": "other_items_spread"}
    return bars(
        frame["vectors"].to_list(),
        {name: frame[column].to_list() for name, column in series.items()},
        errors={name: frame[column].to_list() for name, column in spreads.items()},
        title=title,
        axis="accuracy in %, mean and spread of five folds",
        digits=1,
    )
