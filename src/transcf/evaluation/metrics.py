"""From ranks to figures, per user.

With a user's T targets at ranks r_0 <= r_1 <= ... (from 1), a target is in the top N if its place
`r - 1`, counted from 0, is below N. For whole ranks that is `r <= N`; a realistic rank of N + 1/2
still has half of its tie inside. Fractional ranks enter the formulas below as they are.

| name | figure |
|---|---|
| H@N | 1 if any target is in the top N |
| N@N | sum of 1 / log2(r + 1) over targets in the top N, divided by that of ranks 1 to min(N, T) |
| MRR@N | 1 / r of the first target, 0 if it is not in the top N |
| R@N | share of the targets that are in the top N |
| P@N | targets in the top N, divided by N |
| MAP@N | sum of (j + 1) / r_j over targets in the top N, divided by min(N, T) |

Beside them, of the lists that full ranking makes: `coverage@N`, the share of rankable items that
is in anybody's top N, and `popularity@N`, the mean number of training interactions of the items
in a user's top N, averaged over users.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.ids import UNKNOWN, Rows
from transcf.errors import ParameterError

Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of held-out items, user by user.

    Attributes:
        users: (n_users,) evaluated user rows.
        indptr: (n_users + 1,) where each user's targets start; nobody is without one.
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
    # Longer lists than anybody has targets for have the same ideal.
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
    "H": _hit_rate,
    "N": _ndcg,
    "MRR": _reciprocal_rank,
    "R": _recall,
    "P": _precision,
    "MAP": _average_precision,
}


def check_lengths(at: int | Sequence[int]) -> tuple[int, ...]:
    """Return list lengths as a tuple, or raise a `ParameterError`."""
    lengths = (at,) if isinstance(at, int) else tuple(at)
    if not lengths or any(isinstance(n, bool) or int(n) != n or n < 1 for n in lengths):
        raise ParameterError(
            f"at={at!r} is not allowed; it must be one or more whole numbers of at least 1."
        )
    return lengths


def check_metric(name: str) -> tuple[str, int]:
    """Split "N@10" into ("N", 10), or raise a `ParameterError`."""
    match = re.fullmatch(r"(\w+)@([1-9]\d*)", name)
    if match is None or match[1] not in METRICS:
        known = ", ".join(f"{kind}@10" for kind in METRICS)
        raise ParameterError(f"There is no metric {name!r}; use one like {known}.")
    return match[1], int(match[2])


def compute(ranks: Ranks, name: str) -> Floats:
    """Return one metric for each user: (n_users,).

    Example:
        >>> ranks = Ranks(np.array([0, 1], np.int32), np.array([0, 1, 2]), np.array([1.0, 3.0]))
        >>> compute(ranks, "N@10").tolist()
        [1.0, 0.5]
    """
    kind, n = check_metric(name)
    return METRICS[kind](ranks, n)


def metric_names(at: Sequence[int]) -> list[str]:
    """Name every metric at every length, in the order of tables."""
    return [f"{kind}@{n}" for kind in METRICS for n in at]


def coverage(lists: Rows, n: int, n_rankable: int) -> float:
    """Share of the rankable items that is in the first n of any list."""
    shown = lists[:, :n]
    return len(np.unique(shown[shown != UNKNOWN])) / n_rankable


def mean_popularity(lists: Rows, n: int, item_counts: Counts) -> float:
    """Mean over users of the mean training interactions of the first n items of their lists."""
    shown = lists[:, :n]
    is_item = shown != UNKNOWN
    total = np.where(is_item, item_counts[shown], 0).sum(axis=1)
    return float((total / is_item.sum(axis=1)).mean())
