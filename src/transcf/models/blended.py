"""What a `Blend` has learned, and the search for its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Mask
from transcf.errors import UnsupportedError
from transcf.io.tensors import Arrays, stored
from transcf.models.explain import Remarks
from transcf.models.fitted import FittedScorer, TrainingData
from transcf.parallel import use_threads
from transcf.retrieval.scorer import Scorer, Scores
from transcf.retrieval.sums import SumView

Floats: TypeAlias = npt.NDArray[np.float64]
Epochs: TypeAlias = npt.NDArray[np.int64]
P = TypeVar("P")

#: Scores with a smaller spread are all equal, and are not divided by it.
_LEAST_SPREAD = float(np.finfo(np.float32).tiny)
#: The search tries the weights 0, 1/20, 2/20 and so on.
_STEPS = 20
#: Most rounds of the search through all parts.
_ROUNDS = 10
#: Memory for the scores of all parts during the search, in bytes.
_CACHE_BYTES = 512 * 2**20


class Blended(FittedScorer):
    """`score(u, i) = sum over parts of weight * score of the part / spread of the part`.

    Weights are not negative and add up to 1; parts of weight 0 are kept and not computed. The
    epoch of a part without epochs is 0. All three arrays are (n_parts,).
    """

    def __init__(
        self, known: TrainingData, name: str, parts: Sequence[FittedScorer], weights: Floats,
        spreads: Floats, best_epochs: Epochs,
    ) -> None:  # fmt: skip
        super().__init__(known, name)
        self.parts, self.weights, self.spreads = tuple(parts), weights, spreads
        self.best_epochs = best_epochs

    @classmethod
    def from_arrays(
        cls,
        arrays: Arrays,
        known: TrainingData,
        name: str,
        restore: Sequence[Callable[[Arrays, TrainingData], FittedScorer]],
    ) -> Blended:
        """Restore a blend from the arrays of a folder; `restore` has a function for each part."""
        n_parts = (len(restore),)
        weights = stored(arrays, "weights", np.float64, n_parts)
        spreads = stored(arrays, "spreads", np.float64, n_parts)
        epochs = stored(arrays, "best_epochs", np.int64, n_parts)
        if not (weights >= 0).all() or not np.isclose(weights.sum(), 1):
            raise ValueError(f"weights should be shares of 1 and are {weights.tolist()}")
        parts = []
        for number, make in enumerate(restore, start=1):
            prefix = f"part{number}."
            own = {
                key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)
            }
            parts.append(make(own, known))
        return cls(known, name, parts, weights, spreads, epochs)

    def arrays(self) -> Arrays:
        """Return weights, spreads and epochs, and the arrays of the parts as `part1.NAME`."""
        own = {"weights": self.weights, "spreads": self.spreads, "best_epochs": self.best_epochs}
        return own | {
            f"part{number}.{name}": array
            for number, part in enumerate(self.parts, start=1)
            for name, array in part.arrays().items()
        }

    def attributes(self) -> dict[str, Any]:
        """Return the parts, their weights and their spreads."""
        return {"parts": self.parts, "weights": self.weights, "spreads": self.spreads}

    @cached_property
    def _weighted(self) -> list[tuple[FittedScorer, float]]:
        return weighted_parts(self.parts, self.weights, self.spreads)

    @cached_property
    def _view(self) -> SumView:
        return self._sum(lambda part: part)

    def _delegate(self) -> Scorer:
        return self._view

    def _sum(self, scorer_of: Callable[[FittedScorer], Scorer]) -> SumView:
        """Return the weighted sum of a scorer of each part."""
        scorers = tuple(scorer_of(part) for part, _ in self._weighted)
        return SumView(self.name, scorers, tuple(factor for _, factor in self._weighted))

    def fold_in(self, histories: Histories) -> Scorer:
        """Score all items for new users, as every part does."""
        return self._sum(lambda part: part.fold_in(histories))

    def with_histories(self, histories: Histories) -> Scorer:
        """Return a scorer of the same users with other histories, as every part does."""
        return self._sum(lambda part: part.with_histories(histories))

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        """Fold in new users with steps of training, in the parts that support them."""
        trained: list[Scorer] = []

        def place(part: FittedScorer) -> Scorer:
            try:
                trained.append(part.fold_in_with_sgd(histories, steps))
            except UnsupportedError:
                return part.fold_in(histories)
            return trained[-1]

        view = self._sum(place)
        return view if trained else super().fold_in_with_sgd(histories, steps)

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        """Return what each part adds to the score."""
        row, rows = (0 if user is None else user), np.array([item], np.int32)
        alone = Histories.of([history], len(self.known.items))
        added: dict[str, float] = {}
        for part, factor in self._weighted:
            scorer = part.fold_in(alone) if user is None else part
            score = float(scorer.scores(np.array([row], np.int32), rows)[0])
            is_taken = part.name in added
            added[f"{part.name} {len(added) + 1}" if is_taken else part.name] = factor * score
        listed = ", ".join(f"{name} {value:+.3g}" for name, value in added.items())
        return Remarks((f"What each part adds to the score: {listed}.",), {"parts": added})

    def item_similarity(self) -> Scorer:
        """Return that of the part with the largest weight, of those that have one."""
        return self._of_first(lambda part: part.item_similarity(), super().item_similarity)

    def user_similarity(self) -> Scorer:
        """Return that of the part with the largest weight, of those that have one."""
        return self._of_first(lambda part: part.user_similarity(), super().user_similarity)

    def _of_first(
        self, similarity_of: Callable[[FittedScorer], Scorer], otherwise: Callable[[], Scorer]
    ) -> Scorer:
        for place in np.argsort(-self.weights, kind="stable")[: len(self._weighted)]:
            try:
                return similarity_of(self.parts[place])
            except UnsupportedError:
                continue
        return otherwise()


def weighted_parts(parts: Sequence[P], weights: Floats, spreads: Floats) -> list[tuple[P, float]]:
    """Return the parts with a weight above 0, each with the factor of its scores."""
    factors = weights / np.where(spreads > _LEAST_SPREAD, spreads, 1.0)
    listed = zip(parts, weights.tolist(), factors.tolist(), strict=True)
    return [(part, factor) for part, weight, factor in listed if weight > 0]


class CachedScorer(Scorer):
    """A scorer that caches up to `room` bytes of scores, which every trial of a search repeats."""

    name: str
    rankable: Mask

    def __init__(self, scorer: Scorer, room: int) -> None:
        self._scorer, self._left = scorer, room
        self.name, self.rankable = scorer.name, scorer.rankable
        self._kept: dict[bytes, Scores] = {}

    def _score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        return self._cached(lambda: self._scorer.scores(users), users)

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        return self._cached(lambda: self._scorer.scores(users, items), users, items)

    def _cached(self, score: Callable[[], Scores], *rows: Rows) -> Scores:
        key = hashlib.sha256(b"".join(array.tobytes() + b"|" for array in rows)).digest()
        if key in self._kept:
            return self._kept[key]
        with use_threads(1):  # the last digits depend on threads, and might change the weights
            scores = score()
        if scores.nbytes <= self._left:
            self._kept[key] = scores
            self._left -= scores.nbytes
        return scores


def best_weights(
    judge: Callable[[SumView], float], name: str, parts: Sequence[Scorer], spreads: Floats
) -> tuple[Floats, float]:
    """Return the weights with the best metric of `judge`, and the metric."""
    cached = [CachedScorer(part, _CACHE_BYTES // len(parts)) for part in parts]

    def metric(weights: Floats) -> float:
        scorers, factors = zip(*weighted_parts(cached, weights, spreads), strict=True)
        return judge(SumView(name, scorers, factors))

    return search(metric, len(parts))


def search(metric: Callable[[Floats], float], n_parts: int) -> tuple[Floats, float]:
    """Find the weights with the best metric by coordinate search.

    From equal weights on, each part in turn is given every share from 0 to 1 while the others
    share the rest in proportion. Of equal metrics the share nearest to the current one wins. For
    two parts this tries all weights.

    Example:
        >>> weights, _ = search(lambda weights: -abs(weights[0] - 0.3), 2)
        >>> weights.round(2).tolist()
        [0.3, 0.7]
    """
    known: dict[tuple[float, ...], float] = {}

    def metric_of(weights: Floats) -> float:
        key = tuple(weights.round(9).tolist())
        if key not in known:
            known[key] = metric(weights)
        return known[key]

    weights = np.full(n_parts, 1 / n_parts)
    best = metric_of(weights)
    for _ in range(_ROUNDS):
        before = best
        for part in range(n_parts):
            start, shares = weights, np.arange(_STEPS + 1) / _STEPS
            for share in shares[np.argsort(np.abs(shares - start[part]), kind="stable")]:
                trial = _with_share(start, part, float(share))
                if metric_of(trial) > best:
                    weights, best = trial, metric_of(trial)
        if best == before:
            break
    return weights, best


def _with_share(weights: Floats, part: int, share: float) -> Floats:
    """Give one part a share, and the rest to the others in proportion to their weights."""
    others = weights.copy()
    others[part] = 0.0
    if not others.any():
        others[:] = 1.0
        others[part] = 0.0
    changed: Floats = (1 - share) * others / others.sum()
    changed[part] = share
    return changed
