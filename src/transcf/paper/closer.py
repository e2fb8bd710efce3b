"""Distances of users and items before and after translation; ratings and categories per user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.errors import DataError
from transcf.experiments.figures import Drawing, bars
from transcf.paper.analysis import Analysis
from transcf.paper.spaces import Mask, Pairs, Space

_Z = 1.96  # 95 % of a normal distribution
_FEW_RATINGS, _RARE = 5, 0.03  # more ratings than that: a rarer one is merged with the next
_MAX_BARS = 12  # of the chart of variety

#: Names of the two kinds of observed pairs.
LEARNED_FROM, HELD_OUT = "observed, learned from", "observed, held out"

Counts = npt.NDArray[np.int64]


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
    by_rating = rating_groups(pairs)
    n, rated = len(pairs), sum(int(members.sum()) for members in by_rating.values())
    groups: dict[str, tuple[Mask, Rows, int | None]] = {
        "observed": (is_closer, pairs.users, n),
        LEARNED_FROM: (is_closer[learned], pairs.users[learned], n),
        HELD_OUT: (is_closer[~learned], pairs.users[~learned], n),
        "unobserved": (far_before > far_after, drawn[0], None),
        "observed, by the translation of another pair": (permuted[0] > permuted[1], pairs.users, n),
    }
    for name, members in by_rating.items():
        groups[name] = (is_closer[members], pairs.users[members], rated)
    shares = {name: share(hits, users) for name, (hits, users, _) in groups.items() if len(hits)}
    frame = pl.DataFrame(
        [
            {"pairs": name, **found, "portion_percent": total and 100 * found["number"] / total}
            for name, found in shares.items()
            for total in [groups[name][2]]
        ],
        infer_schema_length=None,
    ).select("pairs", "closer_percent", "low", "high", "portion_percent", "number")
    lengths, distances = np.linalg.norm(moves.astype(np.float64), axis=1), np.sqrt(before)
    far = shares.get("unobserved")  # missing if users have all items
    change = np.abs(np.sqrt(after) / np.maximum(distances, 1e-12) - 1)
    facts = {
        "observed_percent": round(shares["observed"]["closer_percent"], 4),
        "unobserved_percent": round(far["closer_percent"], 4) if far else None,
        "median_translation": float(np.median(lengths)),
        "median_distance": float(np.median(distances)),
        "median_ratio": float(np.median(lengths / np.maximum(distances, 1e-12))),
        "median_change_percent": 100 * float(np.median(change)),
    }
    notes = (
        "low and high: 95 % interval over users. Portions of ratings are of rated pairs.",
        f"Medians over the observed pairs: |r| {facts['median_translation']:.3g}, |a-b| "
        f"{facts['median_distance']:.3g}, |r| / |a-b| {facts['median_ratio']:.2g}, change of the "
        f"distance by r {facts['median_change_percent']:.2g} %.",
    )

    def draw() -> list[Drawing]:
        main = [name for name in shares if name not in by_rating]
        charts = {"observed and unobserved pairs": main, "by rating": list(by_rating)}
        return [_chart(space.name, what, names, shares) for what, names in charts.items() if names]

    title = f"{space.name}: pairs that are closer after the translation"
    return Analysis("closer", title, frame, draw, facts, notes)


def _chart(
    model: str, what: str, names: Sequence[str], shares: Mapping[str, dict[str, float]]
) -> Drawing:
    found = [shares[name] for name in names]
    return bars(
        names,
        {"closer": [one["closer_percent"] for one in found]},
        errors={"closer": [one["high"] - one["closer_percent"] for one in found]},
        title=f"{model}: closer after translation, {what}",
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
    return {_rating_name(group): np.isin(pairs.ratings, group) for group in groups}


def _rating_name(group: Sequence[float]) -> str:
    first, last = f"{group[0]:g}", f"{group[-1]:g}"
    return f"rating {first}" if first == last else f"rating {first} to {last}"


def variety(log: Interactions) -> Analysis:
    """Count the different ratings and categories of each user; a log without both is an error."""
    counts: dict[str, Counts] = {}
    facts: dict[str, object] = {"users": int((log.by_user.counts > 0).sum())}
    if log.ratings is not None:
        values, codes = np.unique(log.ratings, return_inverse=True)
        keys = np.unique(log.user_rows.astype(np.int64) * len(values) + codes)
        different = np.bincount(keys // len(values), minlength=log.n_users)
        counts["ratings"] = different[log.by_user.counts > 0]
        several = 100 * float((counts["ratings"] >= 2).mean())
        facts["users_with_two_or_more_ratings_percent"] = round(several, 4)
    if log.categories is not None:
        pairs = log.by_user.to_scipy() @ log.item_categories.to_scipy()
        different = np.diff(pairs.tocsr().indptr).astype(np.int64)
        counts["categories"] = different[different > 0]
        single = 100 * float((counts["categories"] == 1).mean())
        facts["users_with_a_single_category_percent"] = round(single, 4)
    if not counts:
        raise DataError("This log has neither ratings nor categories: there is nothing to count.")
    frame = pl.concat([_distribution(what, numbers) for what, numbers in counts.items()])
    note = "Categories: of the users with an item whose category is known."
    return Analysis(
        "variety",
        "Different ratings and categories of a user",
        frame,
        lambda: [_variety_chart(what, numbers) for what, numbers in counts.items()],
        facts,
        (note,) if len(counts) > 1 else (),
    )


def _distribution(what: str, numbers: Counts) -> pl.DataFrame:
    times = np.bincount(numbers)
    some = np.flatnonzero(times)
    return pl.DataFrame(
        {
            "what": [what] * len(some),
            "different": some,
            "users": times[some],
            "users_percent": 100 * times[some] / len(numbers),
        }
    )


def _variety_chart(what: str, numbers: Counts) -> Drawing:
    last = min(int(numbers.max()), _MAX_BARS)
    times = np.bincount(np.minimum(numbers, last), minlength=last + 1)[1:]
    names = [str(number) for number in range(1, last + 1)]
    if numbers.max() > last:
        names[-1] += " or more"
    shares = (100 * times / len(numbers)).tolist()
    title = f"Different {what} of a user"
    return bars(names, {"users": shares}, title=title, axis="% of the users", digits=1)
