"""Prediction of ratings and categories of pairs from their vectors, by random forests.

Classes are balanced to the smallest one, and accuracies are means over five folds. Folds are either
random, as published, or such that no item is in two of them: all pairs of an item share its
vectors, so with random folds a forest can recognise the item instead of its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.errors import DataError, MissingExtraError, ParameterError
from transcf.experiments.figures import Drawing, bars
from transcf.kernels import Array
from transcf.paper.analysis import MAX_PAIRS, Analysis
from transcf.paper.closer import rating_groups
from transcf.paper.spaces import Pairs, Space
from transcf.parallel import thread_count

#: What is predicted.
Target: TypeAlias = Literal["rating", "category"]
Labels: TypeAlias = npt.NDArray[np.int64]

_MAX_CATEGORIES = 10
#: Folds of the cross-validation.
FOLDS = 5


def classification(
    spaces: Mapping[str, Space],
    pairs: Pairs,
    target: Target,
    *,
    number: int = MAX_PAIRS,
    random_state: int = 0,
) -> Analysis:
    """Predict ratings or categories of pairs from their vectors.

    Of the first model, translations, a-b and item vectors are used; of the others, which have the
    same ids, translations, or else a-b. `number` limits the pairs after balancing. A `DataError`
    says that there are no such labels, or too few pairs of them.
    """
    if number < 1:
        raise ParameterError(f"number={number} is not allowed; it must be at least 1.")
    names, labels = labels_of(pairs, target)
    chosen = balanced(labels, number, np.random.default_rng(random_state))
    some, classes = pairs.take(chosen), labels[chosen]
    random_folds, item_folds = (
        accuracies(spaces, some, classes, by_item=by_item, random_state=random_state)
        for by_item in (False, True)
    )
    rows = [(name, *figures, *item_folds[name]) for name, figures in random_folds.items()]
    columns = ("accuracy_percent", "spread", "other_items_percent", "other_items_spread")
    frame = pl.DataFrame(rows, ["vectors", *columns], orient="row")
    facts = {
        "classes": names,
        "pairs": len(chosen),
        "pairs_of_a_class": len(chosen) // len(names),
        "items": len(np.unique(some.items)),
        "folds": FOLDS,
    }
    notes = (
        f"{facts['pairs']:,} pairs of {facts['items']:,} items, {facts['pairs_of_a_class']:,} of "
        f"each class ({', '.join(names)}); {FOLDS} folds, mean and spread over them.",
        "accuracy: random folds, as published. other items: no item is in two folds.",
    )
    title = f"{next(iter(spaces.values())).name}: {target} of a pair, predicted from its vector"
    return Analysis(target, title, frame, lambda: [_chart(title, frame)], facts, notes)


def labels_of(pairs: Pairs, target: Target) -> tuple[list[str], Labels]:
    """Return the names of classes and the class of each pair, (n,), -1 for none."""
    labels = np.full(len(pairs), -1, np.int64)
    if target == "rating":
        groups = rating_groups(pairs)
        for place, members in enumerate(groups.values()):
            labels[members] = place
        names = [name.removeprefix("rating ") for name in groups]
    else:
        names = frequent_categories(pairs)
        for place, name in enumerate(names):
            labels[pairs.labels == pairs.names.index(name)] = place
    if len(names) < 2:
        raise DataError(
            f"There is nothing to predict: these pairs have {len(names)} kinds of {target}."
        )
    return names, labels


def frequent_categories(pairs: Pairs, number: int = _MAX_CATEGORIES) -> list[str]:
    """Return the categories with the most pairs, most frequent first; empty without categories."""
    if pairs.labels is None:
        return []
    times = np.bincount(pairs.labels[pairs.labels >= 0], minlength=len(pairs.names))
    order = np.argsort(-times, kind="stable")[:number]
    return [pairs.names[place] for place in order if times[place]]


def balanced(
    labels: Labels, number: float, generator: np.random.Generator, *, copies: bool = False
) -> Labels:
    """Draw as many pairs of each class as the smallest has, at most `number` in all.

    `labels` are classes from 0 on, -1 for none. With `copies` a pair may be drawn several times, as
    in the published analysis. Raises a `DataError` if the smallest class has too few for the folds.
    """
    sizes = np.bincount(labels[labels >= 0])
    each = int(min(sizes.min(), number // len(sizes)))
    if each < FOLDS:
        raise DataError(
            f"The smallest class has {sizes.min():,} pairs, {each:,} would be used, and {FOLDS} "
            "folds need as many at least: give more pairs."
        )
    drawn = [
        generator.choice(np.flatnonzero(labels == label), each, replace=copies)
        for label in range(len(sizes))
    ]
    return np.concatenate(drawn)


def _vectors(spaces: Mapping[str, Space], pairs: Pairs) -> dict[str, Array]:
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


def accuracies(
    spaces: Mapping[str, Space],
    pairs: Pairs,
    classes: Labels,
    *,
    by_item: bool,
    trees: int | None = None,
    folds: int = FOLDS,
    random_state: int = 0,
) -> dict[str, tuple[float, float]]:
    """Return mean and spread over folds of the accuracy in per cent, by the name of the vectors.

    Unless `by_item`, which puts no item into two folds, folds are random. `trees` is by default
    that of scikit-learn; `folds` says how many of the five folds are computed.
    """
    try:
        from sklearn.dummy import DummyClassifier
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
    except ImportError as error:
        raise MissingExtraError("Telling classes of pairs apart", "plots") from error
    size = {} if trees is None else {"n_estimators": trees}
    kind, groups = (StratifiedGroupKFold, pairs.items) if by_item else (StratifiedKFold, None)
    parts = kind(FOLDS, shuffle=True, random_state=random_state).split(classes, classes, groups)
    numbered = list(enumerate(parts))[:folds]
    constant = np.zeros((len(classes), 1), np.float32)
    found = {}
    for name, values in (*_vectors(spaces, pairs).items(), ("random", constant)):
        scores = []
        for fold, (train, test) in numbered:
            if name == "random":
                model = DummyClassifier(strategy="uniform", random_state=random_state + fold)
            else:
                # Each tree has a seed of its own: results do not depend on the number of threads.
                model = RandomForestClassifier(
                    random_state=random_state + fold, n_jobs=thread_count(), **size
                )
            model.fit(values[train], classes[train])
            scores.append(100 * float(model.score(values[test], classes[test])))
        found[name] = (float(np.mean(scores)), float(np.std(scores, ddof=1)) if folds > 1 else 0.0)
    return found


def _chart(title: str, frame: pl.DataFrame) -> Drawing:
    columns = {
        "random folds": ("accuracy_percent", "spread"),
        "folds of other items": ("other_items_percent", "other_items_spread"),
    }
    return bars(
        frame["vectors"].to_list(),
        {name: frame[mean].to_list() for name, (mean, _) in columns.items()},
        errors={name: frame[spread].to_list() for name, (_, spread) in columns.items()},
        title=title,
        axis="accuracy in %, mean and spread of five folds",
        digits=1,
    )
