"""What a fitted model keeps: training data, and learned arrays that score.

`TrainingData` has the ids and interactions, `Growth` adds new ones. `FittedScorer` has the learned
arrays, which score users and items by row. `check_fit` looks at the result of a fit.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.data.csr import Csr, Histories, offsets
from transcf.data.ids import IdMap, Rows
from transcf.data.interactions import Interactions
from transcf.errors import (
    DataError,
    EvaluationError,
    FitWarning,
    UnsupportedError,
)
from transcf.io.tensors import Arrays, stored
from transcf.kernels import Array
from transcf.models.explain import Contributions, Remarks, by_leaving_out
from transcf.retrieval.scorer import BlockView, Scorer, Scores

if TYPE_CHECKING:
    from transcf.models.training import TrainingRun
    from transcf.retrieval.sums import SumForm


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Ids and interactions."""

    users: IdMap
    items: IdMap
    seen: Csr  # items of each user, as a set
    histories: Histories  # the same in the order of events, oldest first
    timed: bool  # whether that is the order of time; else it is that of the log

    @classmethod
    def of(cls, log: Interactions) -> TrainingData:
        """Keep what is needed of a log."""
        timed = log.timestamps is not None
        return cls(log.users, log.items, log.by_user, log.histories, timed)

    @cached_property
    def item_counts(self) -> npt.NDArray[np.int64]:
        """(n_items,) training interactions of each item."""
        return np.bincount(self.seen.indices, minlength=len(self.items))

    @cached_property
    def by_item(self) -> Csr:
        """Users of each item in training."""
        return self.seen.transposed()

    @cached_property
    def rankable(self) -> npt.NDArray[np.bool_]:
        """(n_items,) items with training interactions."""
        return self.item_counts > 0

    @cached_property
    def active(self) -> npt.NDArray[np.bool_]:
        """(n_users,) users with training interactions."""
        return self.seen.counts > 0

    def average_item(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the mean of values of items, (n_items, ...), over all interactions: (...)."""
        mean: npt.NDArray[np.float64] = self.item_counts @ values / self.item_counts.sum()
        return mean

    def typical_items(self, number: int) -> npt.NDArray[np.int64]:
        """Return rows of items as interactions would draw them, evenly spread: (number,)."""
        ends = np.cumsum(self.item_counts)
        drawn = (np.arange(number) + 0.5) / number * ends[-1]
        rows: npt.NDArray[np.int64] = np.searchsorted(ends, drawn)
        return rows

    def facts(self) -> dict[str, Any]:
        """Sizes for reports."""
        return {
            "users": int(np.count_nonzero(self.active)),
            "items": int(np.count_nonzero(self.rankable)),
            "interactions": len(self.seen.indices),
        }


@dataclass(frozen=True)
class Growth:
    """Training data of a model with a log added; rows in the order of ids."""

    known: TrainingData  # each pair once; new items come last in a history
    old_users: Rows  # the new row of each user of the model, (n_old_users,)
    old_items: Rows  # the new row of each item of the model, (n_old_items,)
    event_users: Rows  # user row of each event of the log, (n_events,)
    event_items: Rows  # item row of each, (n_events,)

    @classmethod
    def of(cls, known: TrainingData, log: Interactions) -> Growth:
        """Add a log to the training data of a model; an empty log or ids of another kind raise."""
        if not len(log):
            raise DataError("There is nothing to add: the log has no interactions.")
        users = merged(known.users, log.users, "user")
        items = merged(known.items, log.items, "item")
        old_users, old_items = users.rows(known.users.series), items.rows(known.items.series)
        event_users = users.rows(log.users.series)[log.user_rows]
        event_items = items.rows(log.items.series)[log.item_rows]
        owners = np.concatenate([old_users[known.seen.entry_rows], event_users[log.in_order]])
        owned = np.concatenate([old_items[known.histories.items], event_items[log.in_order]])
        pairs = owners.astype(np.int64) * len(items) + owned
        first = np.sort(np.unique(pairs, return_index=True)[1])  # of repeated pairs
        order = first[np.argsort(owners[first], kind="stable")]
        indptr = offsets(np.bincount(owners[first], minlength=len(users)))
        histories = Histories(indptr, owned[order].astype(np.int32), len(items))
        grown = TrainingData(users, items, histories.matrix, histories, known.timed)
        return cls(grown, old_users, old_items, event_users, event_items)

    def of_users(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values of the model's users in their new rows, zeros elsewhere."""
        return _spread(values, self.old_users, len(self.known.users))

    def of_items(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values of the model's items in their new rows, zeros elsewhere."""
        return _spread(values, self.old_items, len(self.known.items))

    def places(self, users: Rows, items: Rows) -> npt.NDArray[np.int64]:
        """Return the positions of pairs of rows among the entries of `known.seen`: (n,)."""
        n_items, seen = len(self.known.items), self.known.seen
        keys = seen.entry_rows.astype(np.int64) * n_items + seen.indices
        return np.searchsorted(keys, users.astype(np.int64) * n_items + items)


def merged(known: IdMap, new: IdMap, what: str) -> IdMap:
    """Return the ids of a model and of a log together; text and integers do not mix."""
    if len(new) and known.is_text != new.is_text:
        kinds = ["text" if ids.is_text else "integers" for ids in (known, new)]
        raise DataError(
            f"{what} ids of the model are {kinds[0]} and the new ones {kinds[1]}: convert them."
        )
    return IdMap(pl.concat([known.series, new.series]).unique().sort())


def _spread(values: npt.NDArray[Any], rows: Rows, n_rows: int) -> npt.NDArray[Any]:
    spread = np.zeros((n_rows, *values.shape[1:]), values.dtype)
    spread[rows] = values
    return spread


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
    def users_(self) -> IdMap:
        """User ids."""
        return self.known.users

    @property
    def items_(self) -> IdMap:
        """Item ids."""
        return self.known.items

    @property
    def seen_(self) -> Csr:
        """Items of each user in training."""
        return self.known.seen

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
        """Fold in new users in every part."""
        return self._compose(lambda part: part.fold_in(histories))

    def with_histories(self, histories: Histories) -> Scorer:
        """Return a scorer of the same users with other histories in every part."""
        return self._compose(lambda part: part.with_histories(histories))

    def fold_in_with_sgd(self, histories: Histories, steps: int) -> Scorer:
        """Fold in new users with steps of training in every part."""
        return self._compose(lambda part: part.fold_in_with_sgd(histories, steps))


class ItemScores(FittedScorer):
    """A score for each item, the same for all users."""

    def __init__(self, known: TrainingData, name: str, arrays: Arrays) -> None:
        super().__init__(known, name)
        self.item_scores = stored(arrays, "item_scores", np.float32, (len(known.items),))

    def arrays(self) -> Arrays:
        """Return the scores."""
        return {"item_scores": self.item_scores}

    def _score_block(self, users: Rows) -> Scores:
        return np.tile(self.item_scores, (len(users), 1))

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
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
    from transcf.data.partitioned import PartitionedLog
    from transcf.evaluation.validation import Validation, as_validation
    from transcf.models.trend import trend_of

    if not isinstance(run.validation, Interactions | PartitionedLog | Validation):
        return None  # models that do not validate take anything
    try:
        judge = run.judge or as_validation(run.log, run.validation, _USERS).sampled(_USERS)
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
