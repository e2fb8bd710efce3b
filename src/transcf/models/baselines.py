"""Baselines: the most popular, recent or rarest items for all users, and random scores."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.data.interactions import Interactions
from transcf.errors import UnsupportedError
from transcf.io.tensors import Arrays, stored
from transcf.kernels import Array
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import UNITS, AgeUnit
from transcf.models.explain import Contributions
from transcf.models.fitted import FittedScorer, ItemScores, TrainingData
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun
from transcf.models.trend import recent_events
from transcf.retrieval.scorer import BlockView, Scorer, Scores

S = TypeVar("S")


@settings()
class NoSettings:
    """No parameters."""


class SameForAll(Recommender[S]):
    """Base of the models whose scores are the same for all users."""

    name: ClassVar[str]
    _is_floor: ClassVar[bool] = True

    @abstractmethod
    def _scores(self, train: Interactions, counts: Array) -> Array:
        """Return a score for each item, (n_items,), from a log and the users of each item."""

    def _learn(self, run: TrainingRun) -> FittedScorer:
        scores = self._scores(run.train, run.known.item_counts).astype(np.float32)
        return self._restore({"item_scores": scores}, run.known, self.settings)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: S) -> FittedScorer:
        return ItemScores(known, self.name, arrays)


class Popularity(SameForAll[NoSettings]):
    """Items with most users come first.

    Formula: `score(u, i) = |N_i|`, the number of users of item i in training.

    Reference: folklore. Cremonesi, Koren and Turrin, "Performance of recommender algorithms on
    top-N recommendation tasks" (RecSys 2010), show how hard it is to beat.

    Attributes (after `fit`):
        item_scores_: (n_items,) float32.

    Example:
        >>> import polars as pl
        >>> from transcf import Popularity, read_interactions
        >>> log = read_interactions(pl.DataFrame(
        ...     {"user": ["ann", "ann", "bob", "cid"], "item": ["x", "y", "x", "z"]}))
        >>> Popularity().fit(log).recommend("cid", k=1)["item_id"].item()
        'x'
    """

    name = "popularity"
    __init__ = init_from_params(NoSettings)

    def _scores(self, train: Interactions, counts: Array) -> Array:
        return counts


@settings()
class RecentPopularitySettings:
    """Hyper-parameters of RecentPopularity."""

    half_life: float | None = setting(
        None,
        "Age at which an event counts half, in days or as a share of the log's events (`age_in`); "
        "None takes 30 days, or 2 % of the events.",
        above=0,
    )
    age_in: AgeUnit = setting("auto", f"What it counts in: {UNITS}.")


class RecentPopularity(SameForAll[RecentPopularitySettings]):
    """Recent popularity: older events count less. The baseline of timed data.

    Formula: `score(u, i) = sum over the events of item i of 2^(-age / half_life)`. Without
    timestamps all ages are alike, and it is plain popularity.

    Reference: Ji, Sun, Zhang and Li, "A re-visit of the popularity baseline in recommender systems"
    (SIGIR 2020), on how much popularity owes to the moment at which it is asked for.

    Attributes (after `fit`):
        item_scores_: (n_items,) float32.

    Example:
        >>> import polars as pl
        >>> from transcf import RecentPopularity, read_interactions
        >>> log = read_interactions(pl.DataFrame({
        ...     "user": ["ann", "bob", "cid", "dan"], "item": ["x", "x", "y", "z"],
        ...     "timestamp": [1, 2, 9, 3]}))
        >>> RecentPopularity().fit(log).recommend("dan", k=1)["item_id"].item()
        'y'
    """

    name = "recent-popularity"
    __init__ = init_from_params(RecentPopularitySettings)
    #: The default half-life is shorter.
    _revision: ClassVar[int] = 2

    def _scores(self, train: Interactions, counts: Array) -> Array:
        return recent_events(train, self.settings.half_life, self.settings.age_in, share=0.02)


class InversePopularity(SameForAll[NoSettings]):
    """Items with fewest users come first: a probe for biased protocols.

    Formula: `score(u, i) = -|N_i|`. It is useless, yet it wins under sampled protocols whose
    held-out items are rare; a table without it can mislead.

    Reference: the case against sampled metrics is Krichene and Rendle, "On sampled metrics for
    item recommendation" (KDD 2020).

    Attributes (after `fit`):
        item_scores_: (n_items,) float32.

    Example:
        >>> import polars as pl
        >>> from transcf import InversePopularity, read_interactions
        >>> log = read_interactions(pl.DataFrame(
        ...     {"user": ["ann", "bob", "bob", "cid"], "item": ["x", "x", "y", "z"]}))
        >>> InversePopularity().fit(log).recommend("cid", k=1)["item_id"].item()
        'y'
    """

    name = "inverse-popularity"
    __init__ = init_from_params(NoSettings)

    def _scores(self, train: Interactions, counts: Array) -> Array:
        return -counts.astype(np.float32)


Words: TypeAlias = npt.NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@settings()
class RandomSettings:
    """Hyper-parameters of Random."""

    random_state: int = setting(
        0, "Seed; another one gives another ranking.", low=0, high=2**63 - 1
    )


class Random(Recommender[RandomSettings]):
    """Scores that are uniform in [0, 1) and depend on seed, user and item alone.

    Formula: `score(u, i) = h(seed, u, i) / 2^24` with h the top 24 bits of a SplitMix64 stream
    that the seed and the user start and the item walks along. A pair therefore has the same
    score in any block, order or thread.

    Reference: Steele, Lea and Flood, "Fast splittable pseudorandom number generators"
    (OOPSLA 2014), for the hash.

    Attributes (after `fit`):
        user_keys_: (n_users,) uint64, where the stream of each user starts.

    Example:
        >>> import polars as pl
        >>> from transcf import Random, read_interactions
        >>> log = read_interactions(pl.DataFrame({"user": [1, 1, 2], "item": [7, 8, 9]}))
        >>> table = Random(random_state=3).fit(log).recommend(1)
        >>> table["item_id"].to_list(), table["rank"].to_list()
        ([9], [1])
    """

    name = "random"
    _is_floor: ClassVar[bool] = True
    __init__ = init_from_params(RandomSettings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        keys = _keys(self.settings.random_state, 0, run.train.n_users)
        return self._restore({"user_keys": keys}, run.known, self.settings)

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: RandomSettings
    ) -> FittedScorer:
        return Streams(known, self.name, arrays, settings.random_state)


class Streams(FittedScorer):
    """A stream of scores for each user."""

    def __init__(self, known: TrainingData, name: str, arrays: Arrays, seed: int) -> None:
        super().__init__(known, name)
        self.keys: Words = stored(arrays, "user_keys", np.uint64, (len(known.users),))
        self._seed = seed

    def arrays(self) -> Arrays:
        """Return where the streams start."""
        return {"user_keys": self.keys}

    def _score_block(self, users: Rows) -> Scores:
        items = np.arange(len(self.known.items), dtype=np.int32)
        scores = np.empty((len(users), len(items)), dtype=np.float32)
        for row, key in enumerate(self.keys[users]):  # one row at a time bounds memory
            scores[row] = _scores(np.full(1, key, dtype=np.uint64), items)
        return scores

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        return _scores(self.keys[users], items)

    def fold_in(self, histories: Histories) -> Scorer:
        """Return the scores of one stream for all new users, that of the user after the last."""
        items = np.arange(len(self.known.items), dtype=np.int32)
        scores = _scores(_keys(self._seed, len(self.known.users), 1), items)
        return BlockView(self.name, self.rankable, lambda rows: np.tile(scores, (len(rows), 1)))

    def with_histories(self, histories: Histories) -> Scorer:
        """Return this scorer: scores do not depend on histories."""
        return self

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Refuse: scores do not depend on histories."""
        raise UnsupportedError(
            f"{self.name} cannot explain a score by a history: it is drawn by chance; use "
            "a model such as TransCF or EASE."
        )


def _keys(random_state: int, first: int, count: int) -> Words:
    """Return the start of the streams of some users, (count,)."""
    seed = _mix(np.array([random_state], dtype=np.uint64) + _STEP)
    numbers = np.arange(first, first + count, dtype=np.uint64)
    return _mix(_mix(numbers + _STEP) ^ seed)


def _mix(words: Words) -> Words:
    """Scramble words: the finaliser of SplitMix64, a bijection."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def _scores(keys: Words, items: Rows) -> Scores:
    words = _mix(keys + (items.astype(np.uint64) + np.uint64(1)) * _STEP)
    return (words >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
