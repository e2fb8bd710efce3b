"""Transition counts inside the sum of the mixture, added after training.

With the share T_ki of item i among the items that follow item k (`transition_counts`), strength
lambda and Z_k = sum_j exp(c_j - tau |p_k - b_j|^2) over all trained items j, the score is

    s(u, i) = -beta |a_u - b_i|^2 + log sum_k w_k (exp(c_i - tau |p_k - b_i|^2) + lambda Z_k T_ki)

which is c_i - beta |a_u - b_i|^2 + log sum_k w_k (exp(-tau |p_k - b_i|^2) + m_ki) with the sparse
matrix m_ki = lambda Z_k exp(-c_i) T_ki. Z_k makes both parts comparable: a strength of 1 gives the
counts as much weight as the vectors. A vector has too few numbers to remember single pairs; the
counts do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from transcf.data.ids import Rows
from transcf.data.interactions import Interactions, Mask
from transcf.errors import EvaluationError, UnsupportedError
from transcf.io.tensors import Arrays, checked
from transcf.kernels import Array
from transcf.kernels.mixture_scores import SparseTerms, UserQueries, read_only, score_users
from transcf.kernels.rows import padded
from transcf.models.transitions import transition_shares
from transcf.models.trend import NO_GAIN, NO_VALIDATION, WithItemOffsets, paired_gain, without_trend
from transcf.retrieval.scorer import Scores

if TYPE_CHECKING:
    from transcf.models.fitted import FittedScorer
    from transcf.models.mixture.fitted import Mixture
    from transcf.models.training import TrainingRun

#: Strengths that may be chosen. 1 is tried first, then larger ones while they gain, or else 0.5.
STRENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
#: Validation users of a full ranking that choose it: the gain is smaller than that of a trend.
_JUDGED_USERS = 4000
#: Names in files.
_STRENGTH, _PARTITION = "transition_strength", "transition_log_partition"
_TERMS = ("transition_starts", "transition_items", "transition_terms")
#: Smaller terms are left out: they would underflow in sums.
_LEAST_TERM = 1e-30
#: Trained items that are summed together, and most items that Z is summed over.
_TOGETHER, _MOST = 1024, 2**16


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transition counts of a fitted mixture: lambda > 0, log Z (n_items,) float64, and m."""

    strength: float
    log_partition: Array
    terms: SparseTerms

    @classmethod
    def of(
        cls, learned: Mixture, strength: float, log_partition: Array | None = None
    ) -> Transitions:
        """Count the transitions of the histories that a model was fitted on."""
        logs = log_partitions(learned) if log_partition is None else log_partition
        shares = transition_shares(learned.known.histories, ordered=learned.known.timed)
        rows = np.repeat(np.arange(len(logs)), np.diff(shares.indptr))
        with np.errstate(over="ignore"):  # infinite terms are refused where scores are used
            scale = np.exp(logs[rows] - learned.bias[shares.indices].astype(np.float64))
            shares.data = (strength * scale * shares.data).astype(np.float32)
        shares.data[shares.data < _LEAST_TERM] = 0
        shares.eliminate_zeros()
        starts, items = shares.indptr.astype(np.int64), shares.indices.astype(np.int32)
        return cls(strength, logs, _terms(starts, items, shares.data))

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_items: int) -> Transitions | None:
        """Return the transitions of a file, None if it has none; raise a ValueError if broken."""
        if _STRENGTH not in arrays:
            return None
        strength = float(checked(arrays, _STRENGTH, np.float64, (1,))[0])
        starts = checked(arrays, _TERMS[0], np.int64, (n_items + 1,))
        size = (len(arrays.get(_TERMS[1], ())),)
        items = checked(arrays, _TERMS[1], np.int32, size)
        values = checked(arrays, _TERMS[2], np.float32, size)
        logs = checked(arrays, _PARTITION, np.float64, (n_items,))
        sound = starts[0] == 0 and starts[-1] == size[0] and (np.diff(starts) >= 0).all()
        if not sound or (size[0] and not (items.min() >= 0 and items.max() < n_items)):
            raise ValueError(f"{_TERMS[0]} and {_TERMS[1]} should be a sparse matrix of items")
        return cls(strength, logs, _terms(starts, items, values))

    def arrays(self) -> Arrays:
        """Return the arrays of a model folder."""
        own = {_STRENGTH: np.array([self.strength]), _PARTITION: self.log_partition}
        return own | dict(zip(_TERMS, self.terms, strict=True))

    @cached_property
    def reach(self) -> float:
        """The largest |log m_ki|; infinite where a term is."""
        return float(np.abs(np.log(self.terms.values.astype(np.float64))).max(initial=0))

    @cached_property
    def _keys(self) -> Array:
        """The number of each entry by row and column, ascending."""
        starts, items, _ = self.terms
        rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        return rows * (len(starts) - 1) + items

    def of_pairs(self, past: Rows, items: Rows) -> Array:
        """Return m_ki of pairs of past items and scored items, (n,) float64; 0 where it is none."""
        if not len(self._keys):
            return np.zeros(len(past))
        wanted = past.astype(np.int64) * (len(self.terms.starts) - 1) + items
        places = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        values = self.terms.values[places].astype(np.float64)
        return np.where(self._keys[places] == wanted, values, 0.0)


def no_terms(n_items: int) -> SparseTerms:
    """Return a matrix without entries."""
    starts = np.zeros(n_items + 1, np.int64)
    return _terms(starts, np.empty(0, np.int32), np.empty(0, np.float32))


def _terms(starts: Array, items: Array, values: Array) -> SparseTerms:
    return SparseTerms(read_only(starts), read_only(items), read_only(values))


def log_partitions(
    learned: Mixture, past: Rows | None = None, trained: Mask | None = None
) -> Array:
    """Return log Z_k, (n,), of items `past` over items `trained`, or a part of them; None: all."""
    items = np.flatnonzero(learned.rankable if trained is None else trained)
    summed = items[:: -(-max(1, len(items)) // _MOST)]
    tau, vectors = learned.settings.tau, learned.items[summed]
    offsets = learned.bias[summed] - tau * np.square(vectors, dtype=np.float64).sum(axis=1)
    history = learned.history if past is None else learned.history[past]
    squares = -tau * np.square(history, dtype=np.float64).sum(axis=1)
    starts = np.append(np.arange(0, len(summed), _TOGETHER), len(summed))
    width = learned.item_points.shape[1]
    points = padded(np.float32(2 * tau) * vectors).reshape(-1, width)
    queries = UserQueries(starts, points, offsets.astype(np.float32))
    wide = padded(history).reshape(-1, width)
    logs = score_users(queries, wide, squares.astype(np.float32)).astype(np.float64)
    return np.logaddexp.reduce(logs, axis=0) + np.log(len(items) / max(1, len(summed)))


# -- the choice of the strength ----------------------------------------------------------------


def with_transitions(learned: FittedScorer, run: TrainingRun) -> FittedScorer:
    """Add transition counts by validation data, or as a fit before it; report the choice."""
    from transcf.models.mixture.fitted import Mixture

    own = without_trend(learned)
    assert isinstance(own, Mixture), "mixtures alone have transitions"
    asked = own.settings.transitions
    if asked == 0:
        return learned
    offset = learned.offset if isinstance(learned, WithItemOffsets) else None
    found, report = None, dict[str, Any](strength=0.0)
    if not isinstance(run.log, Interactions):
        if asked != "auto":
            raise UnsupportedError(
                f"transitions={asked!r} counts events of all users, and no process holds all "
                "events of a log in parts: leave it out, or fit without a cluster."
            )
        report |= {"reason": "a log in parts is not counted"}
    elif asked != "auto":
        found = Transitions.of(own, float(asked))
    elif isinstance(run.before, Mixture):
        kept = run.before.transitions
        found = None if kept is None else Transitions.of(own, kept.strength)
    elif run.validation is None:
        report |= {"reason": NO_VALIDATION}
    else:
        try:
            found, report = _choose(own, offset, run)
        except EvaluationError as error:
            report |= {"reason": f"it cannot be validated: {error}"}
    run.report["transitions"] = report
    if found is None:
        return learned
    report["strength"] = found.strength
    made = own.changed(transitions=found)
    return made if offset is None else WithItemOffsets(made, offset)


def _choose(
    own: Mixture, offset: Scores | None, run: TrainingRun
) -> tuple[Transitions | None, dict[str, Any]]:
    """Choose the strength on validation data, against none."""
    from transcf.evaluation.validation import as_validation

    assert run.validation is not None
    judge = as_validation(run.log, run.validation).sampled(_JUDGED_USERS)
    one = Transitions.of(own, 1.0)

    def metrics(transitions: Transitions | None) -> Array:
        made = own.changed(transitions=transitions)
        return judge.per_user(made if offset is None else WithItemOffsets(made, offset))

    without, best, values = metrics(None), one, metrics(one)
    gains = values.mean() > without.mean()
    for strength in STRENGTHS[2:] if gains else STRENGTHS[:1]:
        scaled = read_only(one.terms.values * np.float32(strength))
        trial = replace(one, strength=strength, terms=one.terms._replace(values=scaled))
        tried = metrics(trial)
        if tried.mean() <= values.mean():
            break
        best, values = trial, tried
    is_better, figures = paired_gain(judge, without, values)
    report = {"strength": best.strength} | figures
    if not is_better:
        return None, report | {"strength": 0.0, "reason": NO_GAIN}
    return best, report
