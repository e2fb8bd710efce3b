"""Popularity baselines: the same list for all users, most popular, recent or rarest items first."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.errors import UnsupportedError
from transcf.io.tensors import Arrays, stored
from transcf.models.base import Recommender, init_from_params
from transcf.models.event_weights import UNITS, AgeUnit
from transcf.models.explain import Contributions
from transcf.models.fitted import FittedScorer
from transcf.models.params import setting, settings
from transcf.models.training import TrainingRun
from transcf.models.training_data import TrainingData
from transcf.models.trend import recent_events
from transcf.retrieval.scorer import BlockView, Scorer, Scores


@settings()
class NoSettings:
    """No parameters."""


class ItemScores(FittedScorer):
    """A score for each item, the same for all users."""

    def __init__(self, known: TrainingData, name: str, arrays: Arrays) -> None:
        super().__init__(known, name)
        self.item_scores = stored(arrays, "item_scores", np.float32, (len(known.items),))

    def arrays(self) -> Arrays:
        """Return the scores."""
        return {"item_scores": self.item_scores}

    def _score_block(self, users: Rows) -> Scores:
        """Score all items for some user rows: (n, n_items)."""
        return np.tile(self.item_scores, (len(users), 1))

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs of rows: (n,)."""
        return self.item_scores[items]

    def fold_in(self, histories: Histories) -> Scorer:
        """Return the same scores for all."""
        return BlockView(self.name, self.rankable, self._score_block)

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Refuse: scores do not depend on histories."""
        raise UnsupportedError(
            f"{self.name} cannot explain a score by a history: it is the same for all "
            "users; use a model such as TransCF or EASE."
        )


class Popularity(Recommender[NoSettings]):
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
    _is_floor: ClassVar[bool] = True
    __init__ = init_from_params(NoSettings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        scores = run.known.item_counts.astype(np.float32)
        return self._restore({"item_scores": scores}, run.known, self.settings)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: NoSettings) -> FittedScorer:
        return ItemScores(known, self.name, arrays)


@settings()
class RecentPopularitySettings:
    """Hyper-parameters of RecentPopularity."""

    half_life: float | None = setting(
        None,
        "Age at which an event counts half, in days or as a share of the log's events (`age_in`); "
        "None takes 30 days, or 5 % of the events.",
        above=0,
    )
    age_in: AgeUnit = setting("auto", f"What it counts in: {UNITS}.")


class RecentPopularity(Recommender[RecentPopularitySettings]):
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
    _is_floor: ClassVar[bool] = True
    __init__ = init_from_params(RecentPopularitySettings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        recent = recent_events(run.train, self.settings.half_life, self.settings.age_in)
        scores = recent.astype(np.float32)
        return self._restore({"item_scores": scores}, run.known, self.settings)

    def _restore(
        self, arrays: Arrays, known: TrainingData, settings: RecentPopularitySettings
    ) -> FittedScorer:
        return ItemScores(known, self.name, arrays)


class InversePopularity(Recommender[NoSettings]):
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
    _is_floor: ClassVar[bool] = True
    __init__ = init_from_params(NoSettings)

    def _learn(self, run: TrainingRun) -> FittedScorer:
        scores = -run.known.item_counts.astype(np.float32)
        return self._restore({"item_scores": scores}, run.known, self.settings)

    def _restore(self, arrays: Arrays, known: TrainingData, settings: NoSettings) -> FittedScorer:
        return ItemScores(known, self.name, arrays)
