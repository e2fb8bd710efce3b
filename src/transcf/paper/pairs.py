"""Analyses of user-item pairs: distances before and after translation, and prediction of classes.

Ratings and categories of pairs are predicted from their vectors by random forests. Classes are
balanced to the smallest one, and accuracies are means over five folds. Folds are either random, as
published, or such that no item is in two of them: all pairs of an item share its vectors, so with
random folds a forest can recognise the item instead of its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import Rows
from transcf.errors import DataError, ParameterError, needs_extra
from transcf.experiments.pages import Drawing, bars
from transcf.kernels import Array
from transcf.paper.spaces import Analysis, Mask, Pairs, Space
from transcf.parallel import thread_count

#: What is predicted.
Target: TypeAlias = Literal["rating", "category"]
Labels: TypeAlias = npt.NDArray[np.int64]

_Z = 1.96  # 95 % of a normal distribution
_FEW_RATINGS, _RARE = 5, 0.03  # more ratings than that: a rarer one is merged with the next
_MAX_CATEGORIES = 10
#: Names of the two kinds of observed pairs.
LEARNED_FROM, HELD_OUT = "observed, learned from", "observed, held out"
#: Folds of the cross-validation.
FOLDS = 5
#: Default of the number of pairs that random forests are fitted on.
MAX_PAIRS = 2000


# -- distances ---------------------------------------------------------------------------------


def share(hits: Mask, users: Rows) -> dict[str, float]:
    """Return the share of hits in per cent with its 95 % interval over users, and their number.

    Pairs of one user are not independent, users are: the standard error is that of a ratio of sums
    over users. With h_u hits among the n_u pairs of a user and the share p, it is
    sqrt(U / (U - 1) sum_u (h_u - p n_u)^2) / sum_u n_u.
    """
    percent = 100 * float(hits.mean())
    _, owners = np.unique(users, return_inverse=True)
    residuals = np.bincount(owners, 100 * hits - percent)
    n_users = len(residuals)
    variance = n_users / max(1, n_users - 1) * np.square(residuals).sum()
    error = _Z * float(np.sqrt(variance) / len(hits))
    low, high = max(0.0, percent - error), min(100.0, percent + error)
    return {"closer_percent": percent, "low": low, "high": high, "number": len(hits)}


def closer(space: Space, pairs: Pairs, *, random_state: int = 0) -> Analysis:
    """Count pairs whose distance is smaller after the translation: |a-b|^2 > |a+r-b|^2.

    The share is given for observed pairs, for those in and not in the training data, for as many
    unobserved pairs of the same users, for observed pairs with the translations of other pairs (a
    random permutation), and by rating. Raises an `UnsupportedError` for a model without
    translations.
    """
    generator = np.random.default_rng(random_state)
    moves = space.translations(pairs.users, pairs.items)
    apart = space.differences(pairs.users, pairs.items)
    before, after = space.distances(apart, moves)
    drawn = pairs.unobserved(space, generator)
    far_before, far_after = space.distances(space.differences(*drawn), space.translations(*drawn))
    permuted = space.distances(apart, moves[generator.permutation(len(moves))])
    is_closer, learned = before > after, pairs.in_training
    all_pairs, by_rating = np.ones(len(pairs), bool), rating_groups(pairs)
    n, rated = len(pairs), sum(int(members.sum()) for members in by_rating.values())
    observed = {"observed": all_pairs, LEARNED_FROM: learned, HELD_OUT: ~learned}
    groups: list[tuple[str, Mask, Rows, int | None]] = [
        *((name, is_closer[some], pairs.users[some], n) for name, some in observed.items()),
        ("unobserved", far_before > far_after, drawn[0], None),
        ("observed, by the translation of another pair", permuted[0] > permuted[1], pairs.users, n),
        *((name, is_closer[some], pairs.users[some], rated) for name, some in by_rating.items()),
    ]
    rows = []
    for name, hits, users, total in groups:
        if len(hits):
            portion = total and 100 * len(hits) / total
            rows.append({"pairs": name, **share(hits, users), "portion_percent": portion})
    columns = ("pairs", "closer_percent", "low", "high", "portion_percent", "number")
    frame = pl.DataFrame(rows, infer_schema_length=None).select(columns)
    percent = dict(frame.select("pairs", "closer_percent").iter_rows())
    far = percent.get("unobserved")  # missing if users have all items
    lengths, distances = np.linalg.norm(moves.astype(np.float64), axis=1), np.sqrt(before)
    change = np.abs(np.sqrt(after) / np.maximum(distances, 1e-12) - 1)
    facts = {
        "observed_percent": round(percent["observed"], 4),
        "unobserved_percent": None if far is None else round(far, 4),
        "median_translation": float(np.median(lengths)),
        "median_distance": float(np.median(distances)),
        "median_ratio": float(np.median(lengths / np.maximum(distances, 1e-12))),
        "median_change_percent": 100 * float(np.median(change)),
    }
    notes = ("low and high: 95 % interval over users. Portions of ratings are of rated pairs.",)
    title = f"{space.name}: pairs that are closer after the translation"
    return Analysis("closer", title, frame, lambda: [_closer_chart(title, frame)], facts, notes)


def _closer_chart(title: str, frame: pl.DataFrame) -> Drawing:
    return bars(
        frame["pairs"].to_list(),
        {"closer": frame["closer_percent"].to_list()},
        errors={"closer": (frame["high"] - frame["closer_percent"]).to_list()},
        title=title,
        axis="% of the pairs, 95 % interval",
        digits=1,
    )


def rating_groups(pairs: Pairs) -> dict[str, Mask]:
    """Return which pairs are in which group of ratings, by name; empty without ratings.

    Each rating is a group, lowest first. If there are more than five, one with less than 3 % of the
    pairs is merged with the next. A rating of 0 means that there is none.
    """
    if pairs.ratings is None:
        return {}
    values, counts = np.unique(pairs.ratings[pairs.ratings > 0], return_counts=True)
    groups: list[list[float]] = []
    size = 0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if groups and size < _RARE * counts.sum() and len(values) > _FEW_RATINGS:
            groups[-1].append(value)
            size += count
        else:
            groups.append([value])
            size = count
    masks = {}
    for group in groups:
        ends = dict.fromkeys((f"{group[0]:g}", f"{group[-1]:g}"))  # one of a single rating
        masks[f"rating {' to '.join(ends)}"] = np.isin(pairs.ratings, group)
    return masks


# -- classes -----------------------------------------------------------------------------------


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
        f"accuracy and spread over {FOLDS} random folds, as published. other items: no item is in "
        "two folds.",
    )
    title = f"{next(iter(spaces.values())).name}: {target} of a pair, predicted from its vector"
    return Analysis(target, title, frame, lambda: [_accuracy_chart(title, frame)], facts, notes)


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


def frequent_categories(pairs: Pairs) -> list[str]:
    """Return the ten categories with the most pairs, the first one has most; [] without any."""
    if pairs.labels is None:
        return []
    times = np.bincount(pairs.labels[pairs.labels >= 0], minlength=len(pairs.names))
    order = np.argsort(-times, kind="stable")[:_MAX_CATEGORIES]
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
    with needs_extra("Telling classes of pairs apart", "plots"):
        from sklearn.dummy import DummyClassifier
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
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


def _accuracy_chart(title: str, frame: pl.DataFrame) -> Drawing:
    columns = {
        "random folds": ("accuracy_percent", "spread"),
        "folds of other items": ("other_items_percent", "other_items_spread"),
    }
    means, spreads = (
        {name: frame[pair[place]].to_list() for name, pair in columns.items()} for place in (0, 1)
    )
    axis = "accuracy in %, mean and spread of five folds"
    return bars(frame["vectors"].to_list(), means, errors=spreads, title=title, axis=axis, digits=1)
