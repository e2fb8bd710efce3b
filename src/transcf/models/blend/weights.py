"""How much each part has to say: the weights that validation data finds best."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from transcf.data.ids import Rows
from transcf.data.interactions import Mask
from transcf.models.blend.learned import Floats, voices
from transcf.parallel import use_threads
from transcf.retrieval.scorer import Scorer, Scores
from transcf.retrieval.views import SumView

#: Weights that are tried, as parts of a whole: 0, 1/20, 2/20 and so on.
_STEPS = 20
#: Rounds through all parts; a search ends before, when a round finds nothing better.
_ROUNDS = 10
#: Memory for scores that are kept from one trial to the next, in bytes.
_ROOM = 512 * 2**20


class Remembered(Scorer):
    """A scorer that keeps its answers: the same are asked for again with every trial.

    What does not fit is scored anew each time.

    Args:
        scorer: What scores.
        room: Bytes to keep.
    """

    def __init__(self, scorer: Scorer, room: int) -> None:
        """Start without any."""
        self._scorer, self._left = scorer, room
        self._kept: dict[bytes, Scores] = {}

    @property
    def name(self) -> str:
        """What errors call it."""
        return self._scorer.name

    @property
    def rankable(self) -> Mask:
        """(n_items,) what may be ranked."""
        return self._scorer.rankable

    def _score_block(self, users: Rows) -> Scores:
        """Score everything for some rows: (n, n_columns)."""
        return self._recall(lambda: self._scorer.scores(users), users)

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        return self._recall(lambda: self._scorer.scores(users, items), users, items)

    def _recall(self, score: Callable[[], Scores], *asked: Rows) -> Scores:
        digest = hashlib.sha256()
        for rows in asked:
            digest.update(rows.tobytes() + b"|")
        key = digest.digest()
        if key in self._kept:
            return self._kept[key]
        with use_threads(1):  # more would show in the last digits, and might show in the weights
            scores = score()
        if scores.nbytes <= self._left:
            self._kept[key] = scores
            self._left -= scores.nbytes
        return scores


def equal_weights(n_parts: int) -> Floats:
    """Return the weights of parts that nothing is known of: (n_parts,)."""
    return np.full(n_parts, 1 / n_parts)


def best_weights(
    judge: Callable[[SumView], float], name: str, parts: Sequence[Scorer], spreads: Floats
) -> tuple[Floats, float]:
    """Return the weights that are judged best, and how well.

    Args:
        judge: Higher is better.
        name: What errors call the blend.
        parts: What is blended.
        spreads: (n_parts,) what scores of each are divided by.
    """
    kept = [Remembered(part, _ROOM // len(parts)) for part in parts]

    def figure(weights: Floats) -> float:
        heard = voices(kept, weights, spreads)
        scorers, factors = tuple(part for part, _ in heard), tuple(factor for _, factor in heard)
        return judge(SumView(name, scorers, factors))

    return search(figure, len(parts))


def search(figure: Callable[[Floats], float], n_parts: int) -> tuple[Floats, float]:
    """Find the weights with the best figure: all that there are for two parts, else one by one.

    From equal weights on, each part in turn is given every share from 0 to 1 while the others
    share the rest as they did. Of equal figures the one nearest to where the search stands wins.

    Args:
        figure: From weights (n_parts,), which add up to 1, to how good they are.
        n_parts: How many.

    Example:
        >>> weights, _ = search(lambda weights: -abs(weights[0] - 0.3), 2)
        >>> weights.round(2).tolist()
        [0.3, 0.7]
    """
    known: dict[tuple[float, ...], float] = {}

    def figure_of(weights: Floats) -> float:
        key = tuple(weights.round(9).tolist())
        if key not in known:
            known[key] = figure(weights)
        return known[key]

    weights = equal_weights(n_parts)
    best = figure_of(weights)
    for _ in range(_ROUNDS):
        before = best
        for part in range(n_parts):
            start = weights
            shares = np.arange(_STEPS + 1) / _STEPS
            for share in shares[np.argsort(np.abs(shares - start[part]), kind="stable")]:
                trial = with_share(start, part, float(share))
                if figure_of(trial) > best:
                    weights, best = trial, figure_of(trial)
        if best == before:
            break
    return weights, best


def with_share(weights: Floats, part: int, share: float) -> Floats:
    """Give one part a share, and the rest to the others in the proportions that they had.

    Example:
        >>> with_share(np.array([0.5, 0.25, 0.25]), 0, 0.0).tolist()
        [0.0, 0.5, 0.5]
    """
    others = weights.copy()
    others[part] = 0.0
    if not others.any():
        others[:] = 1.0
        others[part] = 0.0
    changed: Floats = (1 - share) * others / others.sum()
    changed[part] = share
    return changed
