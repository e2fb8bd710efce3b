"""Ranking metrics per user.

With a user's T targets at ranks r_0 <= r_1 <= ... (from 1), a target is in the top N if its place
`r - 1`, counted from 0, is below N. For whole ranks that is `r <= N`; a realistic rank of N + 1/2
still has half of its tie inside. Fractional ranks enter the formulas below as they are.

| name | value |
|---|---|
| HitRate@N | 1 if any target is in the top N |
| NDCG@N | sum of 1 / log2(r + 1) over targets in the top N, over that of ranks 1 to min(N, T) |
| MRR@N | 1 / r of the first target, 0 if it is not in the top N |
| Recall@N | share of the targets that are in the top N |
| Precision@N | targets in the top N, divided by N |
| MAP@N | sum of (j + 1) / r_j over targets in the top N, divided by min(N, T) |

`AUC` is computed on request and has no N: the share of candidates that a target outranks, averaged
over the user's targets. Candidates are the items that the protocol ranks against, without the
user's targets; equal scores count half, whatever the rule for ties. Metrics of whole lists are in
`lists`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.ids import Rows
from transcf.errors import ParameterError, shown
from transcf.protocols import protocol_named

Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of held-out items, user by user.

    Attributes:
        users: (n_users,) evaluated user rows.
        indptr: (n_users + 1,) where each user's targets start; every user has at least one.
        ranks: (n_targets,) ranks from 1, ascending for each user.
    """

    users: Rows
    indptr: Counts
    ranks: Floats

    @property
    def firsts(self) -> Floats:
        """(n_users,) the best rank of each user."""
        firsts: Floats = self.ranks[self.indptr[:-1]]
        return firsts

    @property
    def totals(self) -> Counts:
        """(n_users,) targets of each user."""
        return np.diff(self.indptr)

    def sum_in_top(self, values: Floats, n: int) -> Floats:
        """(n_users,) sum of a value over the targets in the top n."""
        inside = np.where(self.ranks < n + 1, values, 0.0)
        return np.asarray(np.add.reduceat(inside, self.indptr[:-1]), dtype=np.float64)


def _hit_rate(targets: Ranks, n: int) -> Floats:
    return np.asarray(targets.firsts < n + 1, dtype=np.float64)


def _ndcg(targets: Ranks, n: int) -> Floats:
    # The ideal DCG does not grow beyond the largest number of targets.
    most = min(n, int(targets.totals.max(initial=1)))
    best = np.cumsum(1.0 / np.log2(np.arange(2, most + 2)))
    gains = targets.sum_in_top(1.0 / np.log2(targets.ranks + 1), n)
    ideal: Floats = best[np.minimum(n, targets.totals) - 1]
    return gains / ideal


def _reciprocal_rank(targets: Ranks, n: int) -> Floats:
    return np.where(targets.firsts < n + 1, 1.0 / targets.firsts, 0.0)


def _recall(targets: Ranks, n: int) -> Floats:
    return targets.sum_in_top(np.ones(len(targets.ranks)), n) / targets.totals


def _precision(targets: Ranks, n: int) -> Floats:
    return targets.sum_in_top(np.ones(len(targets.ranks)), n) / n


def _average_precision(targets: Ranks, n: int) -> Floats:
    places = np.arange(len(targets.ranks)) - np.repeat(targets.indptr[:-1], targets.totals)
    gains = targets.sum_in_top((places + 1) / targets.ranks, n)
    return gains / np.minimum(n, targets.totals)


#: Metrics by the part of their name before the @, in the order of tables.
METRICS: dict[str, Callable[[Ranks, int], Floats]] = {
    "HitRate": _hit_rate,
    "NDCG": _ndcg,
    "MRR": _reciprocal_rank,
    "Recall": _recall,
    "Precision": _precision,
    "MAP": _average_precision,
}


#: Per-user metrics of recommendation lists, computed on request; see `lists`.
LIST_METRICS = ("novelty", "ILD")


def check_lengths(k: int | Sequence[int]) -> tuple[int, ...]:
    """Return list lengths as a tuple, or raise a `ParameterError`."""
    try:
        lengths = (k,) if isinstance(k, int) else tuple(k)
    except TypeError:  # None and the like
        lengths = ()
    if not lengths or not all(map(_is_length, lengths)):
        raise ParameterError(
            f"k={shown(k)} is not allowed; it must be one or more whole numbers of at least 1."
        )
    return tuple(map(int, lengths))


def _is_length(n: object) -> bool:
    """Whether `n` can be the N of a metric name."""
    return isinstance(n, Integral) and not isinstance(n, bool) and 1 <= int(n) < 2**63


def check_metric(name: str) -> tuple[str, int]:
    """Split "NDCG@10" into ("NDCG", 10), or raise a `ParameterError`."""
    match = re.fullmatch(r"(\w+)@([1-9]\d{0,17})", name) if isinstance(name, str) else None
    if match is None or match[1] not in METRICS:
        known = ", ".join(f"{kind}@10" for kind in METRICS)
        raise ParameterError(f"There is no metric {name!r}; use one like {known}.")
    return match[1], int(match[2])


def compute(ranks: Ranks, name: str) -> Floats:
    """Return one metric for each user: (n_users,).

    Example:
        >>> ranks = Ranks(np.array([0, 1], np.int32), np.array([0, 1, 2]), np.array([1.0, 3.0]))
        >>> compute(ranks, "NDCG@10").tolist()
        [1.0, 0.5]
    """
    kind, n = check_metric(name)
    return METRICS[kind](ranks, n)


def auc(indptr: Counts, beaten_by: Floats, against: Counts) -> Floats:
    """Area under the ROC curve of each user: (n_users,).

    Args:
        indptr: (n_users + 1,) where each user's targets start.
        beaten_by: (n_targets,) candidates that come before each target, equal ones half.
        against: (n_users,) candidates of each user.

    Example:
        >>> auc(np.array([0, 1, 3]), np.array([1.0, 0.0, 2.5]), np.array([4, 5])).tolist()
        [0.75, 0.75]
    """
    before = np.add.reduceat(beaten_by, indptr[:-1]) / np.diff(indptr)
    return np.asarray(1 - before / against, dtype=np.float64)


def metric_names(
    k: Sequence[int], *, beyond: bool = False, protocol: str | None = None
) -> list[str]:
    """List the per-user metrics in the order of tables.

    Args:
        k: Lengths N of the lists.
        beyond: Whether to include the metrics beyond accuracy.
        protocol: Protocols with sampled candidates have no list metrics; None is full ranking.

    Example:
        >>> metric_names([5], beyond=True)[5:]
        ['MAP@5', 'novelty@5', 'ILD@5', 'AUC']
    """
    has_lists = protocol is None or not protocol_named(protocol).sampled
    kinds = [*METRICS, *(LIST_METRICS if beyond and has_lists else ())]
    return [f"{kind}@{n}" for kind in kinds for n in k] + (["AUC"] if beyond else [])


def length_of(name: str) -> int | None:
    """Return the N of a per-user metric; None for "AUC".

    Raises:
        ParameterError: There is no such metric.
    """
    if name == "AUC":
        return None
    kind, _, n = name.partition("@") if isinstance(name, str) else ("", "", "")
    if kind in LIST_METRICS:
        return check_metric(f"NDCG@{n}")[1]
    return check_metric(name)[1]


def is_beyond(name: str) -> bool:
    """Whether a metric is computed on request only (`beyond=True`)."""
    return name == "AUC" or name.partition("@")[0] in LIST_METRICS
