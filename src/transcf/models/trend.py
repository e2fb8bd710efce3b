# ruff: noqa: D102  (methods of the base class are documented there)
"""Trend: a prior of recent popularity that any model can add to its scores.

A trend that is set by a number adds `trend * sd * z_i` to the score of an item: z is the logarithm
of the item's recent events, standardised over the items that can be ranked, and sd the standard
deviation of the model's scores over items, so a trend of 1 has as much weight as the model itself.

`trend="auto"` adds

    strength * sd * (log(n_h,i + 1) - 0.3 * log(n_i + 1))

where n_i counts the item's events and n_h,i the same with weights `2^(-age / h)`, the age of an
event being the share of the log's events that came later. `fit` chooses strength and h on
validation data with what the model has learned; `refit` keeps them and counts again; `partial_fit`
updates the counts. The model's own vectors know the popularity of all times already, hence the
second term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Interactions
from transcf.errors import EvaluationError, ParameterError
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.models.event_weights import (
    AgeUnit,
    WeightSettings,
    by_age,
    counts_in_days,
    events_until,
)
from transcf.models.explain import Contributions, Remarks
from transcf.models.fitted import Composite, FittedScorer, TrainingData
from transcf.parallel import use_threads
from transcf.retrieval.scorer import Scorer, Scores, block_length

if TYPE_CHECKING:
    from transcf.data.partitioned import PartitionedLog
    from transcf.evaluation.validation import Validation
    from transcf.models.training import TrainingRun
    from transcf.retrieval.sums import SumForm

#: Adds a trend to a fitted scorer.
AddTrend: TypeAlias = Callable[[FittedScorer], FittedScorer]

#: Added to an item's recent events, so that those without any have a logarithm.
_FLOOR = 0.1
#: Users whose scores are used to estimate the standard deviation.
_USERS = 256
#: Names in files: the offsets, and the values and counts of an automatic trend.
_OFFSETS, _TREND, _RECENT = "item_offsets", "trend", "trend_recent"
#: Weight of the popularity of all times in an automatic trend.
_ALL_TIME = 0.3
#: What is tried, and where the search starts: half-life and strength.
_HALF_LIVES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3)
_STRENGTHS = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 5.0, 10.0)
_START = (0.02, 2.0)
#: Validation users of a full ranking that choose it, and the standard errors that they must gain.
_JUDGED_USERS, _ERRORS = 1000, 2
#: Memory for their scores, in bytes; those beyond it are computed in every trial.
_CACHE_BYTES = 512 * 2**20
#: Reasons in reports.
NO_GAIN = "the gain on validation data is not above two standard errors"
NO_VALIDATION = "there are no validation data to choose it by"


def manual_trend(log: Interactions | PartitionedLog, settings: object) -> AddTrend:
    """Return what adds a trend that is set by a number to scores, or nothing if there is none.

    The number is multiplied by the prior z, which is 0 for items without events.
    """
    if not isinstance(settings, WeightSettings) or not settings.event_weights.trend_by_hand:
        return lambda learned: learned
    assert isinstance(log, Interactions), "logs in parts are refused before"
    given = settings.event_weights
    if log.timestamps is None:
        raise ParameterError(
            f"trend={given.trend!r} needs timestamps and the log has none: leave trend out, or "
            "name their column."
        )
    recent = recent_events(log, given.trend_half_life, given.age_in)
    known, logs = log.by_item.counts > 0, np.log(recent + _FLOOR)
    prior = np.zeros(log.n_items)
    spread = logs[known].std()
    if spread > 0:
        prior[known] = (logs[known] - logs[known].mean()) / spread

    def add(learned: FittedScorer) -> FittedScorer:
        """Add the trend, in the item bias if there is one."""
        offset = (given.trend_by_hand * typical_spread(learned) * prior).astype(np.float32)
        return learned.with_bias(offset) or WithItemOffsets(learned, offset)

    return add


# -- the automatic trend -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AutoTrend:
    """An automatic trend and the counts that it is computed from."""

    strength: float  # what the prior is multiplied by, in units of `spread`
    half_life: float  # h, as a share of the events of the fit
    spread: float  # sd, the typical standard deviation of a user's scores
    half_life_events: float  # h times the events of the fit
    recent: Array  # n_h, (n_items,) float64

    @classmethod
    def of(cls, log: Interactions, strength: float, half_life: float, spread: float) -> AutoTrend:
        """Count the events of a log."""
        assert log.timestamps is not None, "a trend needs times"
        events = half_life * len(log)
        later = len(log) - events_until(log.timestamps)
        recent = np.bincount(log.item_rows, np.exp2(-later / events), log.n_items)
        return cls(strength, half_life, spread, events, recent)

    def offset(self, item_counts: Array) -> Scores:
        """Return what is added to the score of each item, by its events: (n_items,) float32."""
        prior = np.log1p(self.recent) - _ALL_TIME * np.log1p(item_counts)
        return (self.strength * self.spread * prior).astype(np.float32)

    def add_to(self, learned: FittedScorer) -> WithItemOffsets:
        """Return a scorer with the trend added."""
        return WithItemOffsets(learned, self.offset(learned.known.item_counts), self)

    def with_events(self, items: Rows, times: Array) -> AutoTrend:
        """Return the trend after further events of item rows, later than all before.

        Events of unknown items only make others older.
        """
        known = items != UNKNOWN
        weights = np.exp2((events_until(times) - len(items)) / self.half_life_events)
        added = np.bincount(items[known], weights[known], len(self.recent))
        faded = self.recent * np.exp2(-len(items) / self.half_life_events)
        return replace(self, recent=faded + added)

    def after(self, log: Interactions, old: TrainingData, new: TrainingData) -> AutoTrend:
        """Return the trend after further events, which count as later than all before.

        Pairs of a user and an item that were known before change nothing. `old` is the training
        data without the events of `log`, `new` with them.
        """
        recent = np.zeros(len(new.items))
        recent[new.items.rows(old.items.series)] = self.recent
        users = old.users.rows(log.users.series)[log.user_rows]
        items = old.items.rows(log.items.series)[log.item_rows]
        added = (users == UNKNOWN) | (items == UNKNOWN)
        pairs = old.seen.entry_rows.astype(np.int64) * len(old.items) + old.seen.indices
        added |= ~np.isin(users.astype(np.int64) * len(old.items) + items, pairs)
        times = log.positions if log.timestamps is None else log.timestamps
        rows = new.items.rows(log.items.series)[log.item_rows[added]]
        return replace(self, recent=recent).with_events(rows, times[added])

    def arrays(self) -> Arrays:
        values = (self.strength, self.half_life, self.spread, self.half_life_events)
        return {_TREND: np.array(values), _RECENT: self.recent}


def is_automatic(settings: object) -> bool:
    """Whether `fit` chooses the trend."""
    return isinstance(settings, WeightSettings) and settings.event_weights.trend == "auto"


def trend_of(learned: FittedScorer | None) -> AutoTrend | None:
    """Return the automatic trend of a fitted scorer, if it has one."""
    return learned.trend if isinstance(learned, WithItemOffsets) else None


def without_trend(learned: FittedScorer) -> FittedScorer:
    """Return what the model itself has learned, without the trend."""
    return learned.inner if isinstance(learned, WithItemOffsets) else learned


def with_trend(learned: FittedScorer, run: TrainingRun, kept: AutoTrend | None) -> FittedScorer:
    """Return a scorer with the trend that the settings of a run ask for, if they ask for one.

    A refit gives the automatic trend before it in `kept`: strength and half-life stay.
    """
    if not is_automatic(run.settings):
        # Snapshots of epochs have a manual trend already.
        return run.add_manual_trend(learned) if run.ending is None else learned
    log, trend, report = run.log, None, dict[str, Any](strength=0.0)
    if not isinstance(log, Interactions):
        report["reason"] = "a log in parts is not counted"
    elif log.timestamps is None:
        report["reason"] = "events have no times"
    elif log.timestamps.min() == log.timestamps.max():
        report["reason"] = "all events have the same time"
    elif kept is not None:
        trend = AutoTrend.of(log, kept.strength, kept.half_life, typical_spread(learned))
        report = {"strength": kept.strength, "half_life": kept.half_life}
    elif run.validation is None:
        report["reason"] = NO_VALIDATION
    else:
        try:
            trend, report = _choose(learned, log, run.judge_of(_JUDGED_USERS))
        except EvaluationError as error:
            report["reason"] = f"it cannot be validated: {error}"
    run.report["trend"] = report
    return learned if trend is None else trend.add_to(learned)


def _choose(
    learned: FittedScorer, log: Interactions, judge: Validation
) -> tuple[AutoTrend | None, dict[str, Any]]:
    """Choose strength and half-life by coordinate search, against no trend."""
    from transcf.retrieval.sums import CachedScorer, SumView

    cached, spread = CachedScorer(learned, _CACHE_BYTES), typical_spread(learned)
    recent = cache(lambda half_life: AutoTrend.of(log, 1.0, half_life, spread))

    def trend(half_life: float, strength: float) -> AutoTrend:
        return replace(recent(half_life), strength=strength)

    @cache
    def metrics(half_life: float, strength: float) -> Array:
        offset = trend(half_life, strength).offset(learned.known.item_counts)
        return judge.per_user(SumView(learned.name, [cached], [1.0], offset))

    without = judge.per_user(cached)
    chosen = coordinate_search(lambda *values: float(metrics(*values).mean()))
    is_better, figures = paired_gain(judge, without, metrics(*chosen))
    report = {"strength": chosen[1], "half_life": chosen[0]} | figures
    if not is_better:
        return None, report | {"strength": 0.0, "reason": NO_GAIN}
    return trend(*chosen), report


def paired_gain(judge: Validation, without: Array, better: Array) -> tuple[bool, dict[str, Any]]:
    """Return whether metrics of users gain more than two standard errors, and the figures."""
    gains = better - without
    error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.inf
    figures = {
        "metric": judge.metric,
        "users": len(gains),
        "without": float(without.mean()),
        "with": float(better.mean()),
        "standard_error": float(error) if np.isfinite(error) else None,
    }
    return bool(gains.mean() > _ERRORS * error), figures


def coordinate_search(metric: Callable[[float, float], float]) -> tuple[float, float]:
    """Return half-life and strength with the best metric, searched one after the other."""
    best, before = _START, None
    while best != before:
        before = best
        best = max([best, *((value, best[1]) for value in _HALF_LIVES)], key=lambda v: metric(*v))
        best = max([best, *((best[0], value) for value in _STRENGTHS)], key=lambda v: metric(*v))
    return best


# -- shared parts ------------------------------------------------------------------------------


def recent_events(
    log: Interactions, half_life: float | None, unit: AgeUnit = "auto", share: float = 0.05
) -> Array:
    """Return the weighted number of events of each item, older ones counting less: (n_items,).

    The default half-life is 30 days, or a share of the events.
    """
    usual = 30.0 if counts_in_days(log, unit) else share
    weights = by_age(log, half_life or usual, unit)
    return np.bincount(log.item_rows, weights, log.n_items)


def typical_spread(learned: FittedScorer) -> float:
    """Return the standard deviation of a user's scores over items, averaged over some users.

    One thread computes it: the last digits of a matrix product depend on the number of threads.
    """
    active = np.flatnonzero(learned.known.active)
    users = active[np.linspace(0, len(active) - 1, min(_USERS, len(active))).astype(np.int64)]
    step, spreads = block_length(len(learned.known.items)), []
    for first in range(0, len(users), step):
        with use_threads(1):
            block = learned.scores(users[first : first + step].astype(np.int32))
        spreads.append(block[:, learned.rankable].std(axis=1, dtype=np.float64))
    return float(np.concatenate(spreads).mean())


class WithItemOffsets(Composite):
    """`score(u, i) = inner score + offset_i`; everything else is that of the inner scorer."""

    def __init__(self, inner: FittedScorer, offset: Scores, trend: AutoTrend | None = None) -> None:
        super().__init__(inner.known, inner.name)
        self.inner, self.offset, self.trend = inner, offset, trend

    @cached_property
    def _biased(self) -> FittedScorer | None:
        """The inner scorer with the offsets in its item bias, which is faster; None without one."""
        return self.inner.with_bias(self.offset)

    def _compose(self, scorer_of: Callable[[FittedScorer], Scorer]) -> Scorer:
        from transcf.retrieval.sums import SumView

        if self._biased is not None:
            return scorer_of(self._biased)
        scorer = scorer_of(self.inner)
        return SumView(scorer.name, [scorer], [1.0], self.offset)

    def arrays(self) -> Arrays:
        trend = {} if self.trend is None else self.trend.arrays()
        return self.inner.arrays() | {_OFFSETS: self.offset} | trend

    def stored_arrays(self) -> Arrays:
        return self.inner.stored_arrays() | self.arrays()

    def attributes(self) -> dict[str, Any]:
        return self.inner.attributes() | {_OFFSETS: self.offset}

    def with_recent_events(self, items: Rows, times: Array) -> FittedScorer:
        if self.trend is None:
            return self
        trend, counts = self.trend.with_events(items, times), self.known.item_counts
        added = np.bincount(items[items != UNKNOWN], minlength=len(counts))
        return WithItemOffsets(self.inner, trend.offset(counts + added), trend)

    def with_trend_after(self, before: FittedScorer, log: Interactions) -> FittedScorer:
        kept = trend_of(before)
        if kept is None or self.trend is None:
            return self
        trend = replace(kept, spread=self.trend.spread).after(log, before.known, self.known)
        return trend.add_to(self.inner)

    def sum_form(self) -> SumForm | None:
        # Scores that are sums have item biases.
        return None if self._biased is None else self._biased.sum_form()

    def contributions(self, history: Rows, item: int) -> Contributions:
        found = self.inner.contributions(history, item)
        rest = None if found.rest is None else found.rest + float(self.offset[item])
        return replace(found, rest=rest)

    def remarks(self, user: int | None, history: Rows, item: int, top: int) -> Remarks:
        found, added = self.inner.remarks(user, history, item, top), float(self.offset[item])
        words = f"Recent popularity changes the score by {added:+.3g}, the same for every user."
        return Remarks((*found.words, words), found.facts | {"trend": added})

    @staticmethod
    def _of_inner(method: str) -> Any:
        """Make a method that is the one of the inner scorer: the offset does not matter to it."""
        return lambda self, *args: getattr(self.inner, method)(*args)

    position = _of_inner("position")
    translated_position = _of_inner("translated_position")
    ways = _of_inner("ways")
    item_similarity = _of_inner("item_similarity")
    user_similarity = _of_inner("user_similarity")


def restored(
    arrays: Arrays, known: TrainingData, restore: Callable[[Arrays], FittedScorer]
) -> FittedScorer:
    """Make a fitted scorer from the arrays of a folder, with offsets and a trend if it has some.

    `restore` makes the scorer from the arrays of the model itself. Wrong shapes are a ValueError.
    """
    if _OFFSETS not in arrays:
        return restore(arrays)
    offset = checked(arrays, _OFFSETS, np.float32, (len(known.items),))
    trend, added = None, (_OFFSETS, _TREND, _RECENT)
    if _TREND in arrays:
        strength, half_life, spread, events = checked(arrays, _TREND, np.float64, (4,)).tolist()
        recent = checked(arrays, _RECENT, np.float64, (len(known.items),))
        trend = AutoTrend(strength, half_life, spread, events, recent)
    own = {name: array for name, array in arrays.items() if name not in added}
    return WithItemOffsets(restore(own), offset, trend)
