"""Whether translations bring users closer to their items, and how far they bring them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.analysis.pairs import Pairs
from transcf.analysis.result import Analysis
from transcf.analysis.spaces import Space
from transcf.data.ids import Rows
from transcf.kernels import Array
from transcf.pages import Drawing
from transcf.pages.figures import bars

#: Standard errors on each side of a share: 95 % of a normal distribution.
_SIDES = 1.96
#: So many ratings are a group each; of more, rare ones are put together with the next.
_FEW_RATINGS = 5
#: What is rare: a smaller share of the rated pairs.
_RARE = 0.03
#: Distances that change by less, in per cent, stay what they were but for their signs.
_LITTLE = 5.0


@dataclass(frozen=True)
class Share:
    """A share of pairs in per cent, with its 95 % interval over users."""

    percent: float
    low: float
    high: float
    pairs: int

    @classmethod
    def of(cls, hits: npt.NDArray[np.bool_], users: Rows) -> Share:
        """Work it out; pairs of one user are not independent, users are.

        The standard error is that of a ratio of sums over users: with h_u hits among the n_u pairs
        of a user and the share p, sqrt(U / (U - 1) sum_u (h_u - p n_u)^2) / sum_u n_u.
        """
        n = len(hits)
        share = float(hits.mean())
        _, owners = np.unique(users, return_inverse=True)
        residuals = np.bincount(owners, hits - share)
        people = len(residuals)
        error = float(np.sqrt(people / max(1, people - 1) * np.square(residuals).sum()) / n)
        low, high = max(0.0, share - _SIDES * error), min(1.0, share + _SIDES * error)
        return cls(100 * share, 100 * low, 100 * high, n)


def closer(space: Space, pairs: Pairs, *, random_state: int = 0) -> Analysis:
    """Count pairs whose distance is smaller after the translation: |a-b|^2 > |a+r-b|^2.

    Pairs that the model has learned from and pairs that it has not are told apart: of the former
    each user's mean q holds the item and each item's mean n the user. As many unobserved pairs are
    drawn as there are observed ones, for each user. The last row says what the observed pairs
    would have by the translations of other pairs, dealt at random.

    Args:
        space: Of a model with translations.
        pairs: Observed ones.
        random_state: Of the draws.

    Raises:
        UnsupportedError: The model moves nobody.
    """
    generator = np.random.default_rng(random_state)
    moves = space.translations(pairs.users, pairs.items)
    apart = space.differences(pairs.users, pairs.items)
    before, after = space.distances(apart, moves)
    is_closer = before > after
    drawn = pairs.unobserved(space, generator)
    far_before, far_after = space.distances(space.differences(*drawn), space.translations(*drawn))
    dealt = space.distances(apart, moves[generator.permutation(len(moves))])
    groups = {
        "observed": (is_closer, pairs.users),
        "observed, learned from": (is_closer[pairs.in_training], pairs.users[pairs.in_training]),
        "observed, held out": (is_closer[~pairs.in_training], pairs.users[~pairs.in_training]),
        "unobserved": (far_before > far_after, drawn[0]),
        "observed, by the translation of another pair": (dealt[0] > dealt[1], pairs.users),
    }
    shares = {name: Share.of(*group) for name, group in groups.items() if len(group[0])}
    portions = _portions(shares, pairs)
    by_rating = rating_groups(pairs)
    rated = sum(int(members.sum()) for members in by_rating.values())
    for name, members in by_rating.items():
        shares[name] = Share.of(is_closer[members], pairs.users[members])
        portions[name] = 100 * int(members.sum()) / rated
    facts = _facts(shares, moves, before, after)
    title = f"{space.name}: pairs that are closer after the translation"

    def draw() -> list[Drawing]:
        return _figures(space.name, shares, list(by_rating))

    return Analysis("closer", title, _frame(shares, portions), draw, facts, _notes(facts))


def _portions(shares: dict[str, Share], pairs: Pairs) -> dict[str, float | None]:
    """Portions of the observed pairs; of the others there is none."""
    return {
        name: 100 * share.pairs / len(pairs) if name.startswith("observed") else None
        for name, share in shares.items()
    }


def rating_groups(pairs: Pairs) -> dict[str, npt.NDArray[np.bool_]]:
    """Return which pairs are in which group of ratings, by name; none where there are no ratings.

    Every rating is a group, lowest first; where there are more than five of them, one with less
    than 3 % of the pairs is put together with the next. Ratings of 0 stand for "none given" and are
    in no group.

    Example:
        >>> ratings = np.array([1, 2, 5, 5, 5, 0], np.float32)
        >>> nobody = np.zeros(6, np.int32)
        >>> some = Pairs(nobody, nobody, ratings, None, (), nobody > 0)
        >>> [(name, int(mask.sum())) for name, mask in rating_groups(some).items()]
        [('rating 1', 1), ('rating 2', 1), ('rating 5', 3)]
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


def _frame(shares: dict[str, Share], portions: dict[str, float | None]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "pairs": list(shares),
            "closer_percent": [share.percent for share in shares.values()],
            "low": [share.low for share in shares.values()],
            "high": [share.high for share in shares.values()],
            "portion_percent": [portions[name] for name in shares],
            "number": [share.pairs for share in shares.values()],
        }
    )


def _facts(
    shares: dict[str, Share], moves: Array, before: Array, after: Array
) -> dict[str, float | None]:
    lengths, distances = np.linalg.norm(moves.astype(np.float64), axis=1), np.sqrt(before)
    unobserved = shares.get("unobserved")  # nothing may be left to draw
    change = np.abs(np.sqrt(after) / np.maximum(distances, 1e-12) - 1)
    return {
        "observed_percent": round(shares["observed"].percent, 4),
        "unobserved_percent": round(unobserved.percent, 4) if unobserved else None,
        "median_translation": float(np.median(lengths)),
        "median_distance": float(np.median(distances)),
        "median_ratio": float(np.median(lengths / np.maximum(distances, 1e-12))),
        "median_change_percent": 100 * float(np.median(change)),
    }


def _notes(facts: Mapping[str, Any]) -> tuple[str, ...]:
    ratio, change = facts["median_ratio"], facts["median_change_percent"]
    far = (
        f"Medians over the observed pairs: |r| is {facts['median_translation']:.3g} and |a-b| is "
        f"{facts['median_distance']:.3g}; |r| is {ratio:.2g} of the distance, which it changes by "
        f"{change:.2g} %."
    )
    meaning = (
        "That is too little to bring anybody near: a share counts on which side of a right angle "
        "to a-b the vector r points, and says next to nothing about distances."
        if change < _LITTLE
        else "Users are really moved here: closer means nearer to the item. Being moved for every "
        "item, they come closer to unobserved ones, too."
    )
    intervals = "low and high: 95 % interval over users. Portions of ratings are of rated pairs."
    return (intervals, far, meaning)


def _figures(name: str, shares: dict[str, Share], by_rating: list[str]) -> list[Drawing]:
    main = [group for group in shares if group not in by_rating]
    drawings = []
    for names, what in ((main, "observed and unobserved pairs"), (by_rating, "by rating")):
        if names:
            found = [shares[each] for each in names]
            drawings.append(
                bars(
                    names,
                    {"closer": [share.percent for share in found]},
                    errors={"closer": [share.high - share.percent for share in found]},
                    title=f"{name}: closer after translation, {what}",
                    axis="% of the pairs, 95 % interval",
                    digits=1,
                )
            )
    return drawings
