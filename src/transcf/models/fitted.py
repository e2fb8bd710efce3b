# ruff: noqa: D102  (methods of the base class are documented there)
"""`FittedScorer`: learned arrays, which score users and items by row.

`check_fit` looks at the result of a fit.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Histories
from transcf.data.ids import Rows
from transcf.data.training_data import TrainingData as TrainingData
from transcf.errors import EvaluationError, FitWarning, UnsupportedError
from transcf.io.tensors import Arrays, stored
from transcf.kernels import Array
from transcf.models.explain import Contributions, Remarks, by_leaving_out
from transcf.retrieval.scorer import BlockView, Scorer, Scores

if TYPE_CHECKING:
    from transcf.data.interactions import Interactions
    from transcf.models.training import TrainingRun
    from transcf.retrieval.sums import SumForm


class FittedScorer(Scorer, ABC):
    """Learned arrays and how they score; immutable.

    A subclass has `arrays`, and either `linear_form` or `_score_block`. It overrides what else it
    supports: fold-in, explanations, similar items and users. Below, `user` is the row of a user,
    or None for a history alone, and `history` has item rows, oldest first.
    """

    name: str

    def __init__(self, known: TrainingData, name: str) -> None:
        self.known, self.name = known, name

    def __getstate__(self) -> dict[str, Any]:
        """Leave out cached properties, which are large and cannot be pickled."""
        kinds = type(self).__mro__
        lazy = {
            n for kind in kinds for n, v in vars(kind).items() if isinstance(v, cached_property)
        }
        return {name: value for name, value in vars(self).items() if name not in lazy}

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return the arrays of a model folder, by name."""

    def stored_arrays(self) -> Arrays:
        """Return the arrays of a saved model: `arrays`, and what makes a loaded model faster."""
        return self.arrays()

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes of the model, by name without the trailing underscore."""
        return self.arrays()

    @property
    def rankable(self) -> npt.NDArray[np.bool_]:
        """(n_items,) items with training interactions."""
        return self.known.rankable

    # -- scores of the model's own users -----------------------------------------------------

    def sum_form(self) -> SumForm | None:
        """Return the score as a logarithm of a sum over inner products, if it is one."""
        return None

    def with_bias(self, offset: Scores) -> FittedScorer | None:
        """Return a scorer with a number added to each item's bias; None if it has no biases."""
        return None

    def with_recent_events(self, items: Rows, times: Array) -> FittedScorer:
        """Return a scorer whose automatic trend counts further events; itself without a trend.

        `items` has their item rows, `UNKNOWN` for unknown items.
        """
        return self

    def with_trend_after(self, before: FittedScorer, log: Interactions) -> FittedScorer:
        """Return a refitted scorer that keeps the counts of the automatic trend before the refit.

        Events of the log that are not part of them are added. This is for logs without the times of
        old events.
        """
        return self

    # -- new users, explanations, similar items and users --------------------------------------

    def fold_in(self, histories: Histories) -> Scorer:
        """Return a scorer with a row for each new user, given by the items of their history."""
        raise UnsupportedError(
            f"{self.name} cannot recommend to users it was not fitted on: fit again with them, "
            "or use a model such as TransCF."
        )

    def with_histories(self, histories: Histories) -> Scorer:
        """Return a scorer of the model's users with other histories, one for each user row.

        By default users are folded in. Models whose trained vectors no history gives keep them.
        """
        return self.fold_in(histories)

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        """Return the same after some steps of training for each new user."""
        raise UnsupportedError(
            f"{self.name} places newcomers without any training: leave out steps={steps}."
        )

    def contributions(self, history: Rows, item: int) -> Contributions:
        """Return the effects of the items of a history, (n,) rows, on the score of an item."""
        return by_leaving_out(self.fold_in, self.known, history, item)

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        """Return further information about a score; `top` bounds lists."""
        return Remarks()

    def position(self, user: int | None, history: Rows) -> Scores | None:
        """Return the position of a user in the space of item vectors, (dim,), or None."""
        return None

    def translated_position(self, user: int | None, history: Rows, items: Rows) -> Scores | None:
        """Return the translated positions of a user for some items, (n, dim), or None."""
        return None

    def ways(self, user: int | None, history: Rows, item: int) -> tuple[Scores, Scores] | None:
        """Return the translated position by each past item, and its share of an item's score.

        Points (n, dim) and shares (n,) that add up to 1; None for models with one translation.
        """
        return None

    def item_similarity(self) -> Scorer:
        """Return a scorer of items against items."""
        raise UnsupportedError(
            f"{self.name} has neither vectors nor weights of items, so none are similar: use a "
            "model such as TransCF, EASE or ItemKNN."
        )

    def user_similarity(self) -> Scorer:
        """Return a scorer of users against users."""
        raise UnsupportedError(
            f"{self.name} has no vectors of users, so none are similar: use a model such as "
            "TransCF."
        )


class Composite(FittedScorer):
    """A scorer composed of other fitted scorers: what `_compose` makes of a scorer of each."""

    @abstractmethod
    def _compose(self, scorer_of: Callable[[FittedScorer], Scorer]) -> Scorer:
        """Combine a scorer of each part."""

    @cached_property
    def _view(self) -> Scorer:
        return self._compose(lambda part: part)

    def _delegate(self) -> Scorer:
        return self._view

    def fold_in(self, histories: Histories) -> Scorer:
        return self._compose(lambda part: part.fold_in(histories))

    def with_histories(self, histories: Histories) -> Scorer:
        return self._compose(lambda part: part.with_histories(histories))

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        return self._compose(lambda part: part.fold_in_with_sgd(histories, steps))


class ItemScores(FittedScorer):
    """A score for each item, the same for all users."""

    def __init__(self, known: TrainingData, name: str, arrays: Arrays) -> None:
        super().__init__(known, name)
        self.item_scores = stored(arrays, "item_scores", np.float32, (len(known.items),))

    def arrays(self) -> Arrays:
        return {"item_scores": self.item_scores}

    def _score_block(self, users: Rows) -> Scores:
        return np.tile(self.item_scores, (len(users), 1))

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        return self.item_scores[items]

    def fold_in(self, histories: Histories) -> Scorer:
        return BlockView(self.name, self.rankable, self._score_block)

    def contributions(self, history: Rows, item: int) -> Contributions:
        raise UnsupportedError(
            f"{self.name} cannot explain a score by a history: it is the same for all "
            "users; use a model such as TransCF or EASE."
        )


def popularity_scorer(known: TrainingData) -> ItemScores:
    """Return a scorer of items by their number of users, the same for all users."""
    return ItemScores(known, "popularity", {"item_scores": known.item_counts.astype(np.float32)})


# -- warnings of a poor fit -------------------------------------------------------------------


#: Vectors have collapsed where the median norm is below this, or below this share of the largest.
_SMALLEST_NORM, _SMALLEST_SHARE = 1e-3, 1e-2
#: Users that models without epochs are validated on.
_USERS = 1000


def check_fit(learned: FittedScorer, run: TrainingRun, stacklevel: int) -> dict[str, Any] | None:
    """Compare a fit with popularity on validation data; warn if it is worse, or has collapsed.

    Returns:
        `metric`, `model`, `popularity` and the number of `users`; None without validation data.
    """
    compared = _compare_with_popularity(learned, run)
    problems = [_collapse(learned)]
    if compared is not None and compared["model"] < compared["popularity"]:
        problems.append(
            f"{learned.name} ranks below popularity on the validation data ({compared['metric']} "
            f"{compared['model']:.4f}, popularity {compared['popularity']:.4f}): change its "
            "parameters, or use another model."
        )
    for problem in filter(None, problems):
        warnings.warn(problem, FitWarning, stacklevel=stacklevel + 1)
    return compared


def _collapse(learned: FittedScorer) -> str:
    known, attributes = learned.known, learned.attributes()
    sides = {"user": known.active, "item": known.item_counts > 0}
    for side, has_events in sides.items():
        vectors = attributes.get(f"{side}_vectors")
        if vectors is None:
            continue
        norms = np.linalg.norm(vectors[has_events], axis=1)
        median, largest = float(np.median(norms)), float(norms.max())
        if median < max(_SMALLEST_NORM, _SMALLEST_SHARE * largest):
            return (
                f"{learned.name}: the {side} vectors have collapsed (median norm {median:.2g}, "
                f"largest {largest:.2g}), so that rankings are arbitrary: lower regularization, or "
                "leave it at its default."
            )
    return ""


def _compare_with_popularity(learned: FittedScorer, run: TrainingRun) -> dict[str, Any] | None:
    if run.validation is None:
        return None
    from transcf.models.trend import trend_of

    try:
        judge = run.judge or run.judge_of(_USERS)
        floor = judge.per_user(popularity_scorer(learned.known))
        is_recorded = run.ending is not None and trend_of(learned) is None
        figure = run.best_metric if is_recorded else judge(learned)
    except EvaluationError:  # there are no users to evaluate
        return None
    if figure is None:
        return None
    return {
        "metric": judge.metric,
        "model": figure,
        "popularity": float(floor.mean()),
        "users": len(floor),
    }
