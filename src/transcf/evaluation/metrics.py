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

On request, from counts rather than ranks, and at no N: `AUC`, the share of the candidates other
than the user's targets that a target comes before, equal scores half whatever the rule for ties,
averaged over the targets. Candidates are what the protocol ranks against: all items that the user
has not touched, or the sampled ones. What is measured of whole lists is in `lists`.
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


#: Metrics of lists beside them, which are computed on request; see `lists`.
LIST_METRICS = ("novelty", "ILD")


def check_lengths(at: int | Sequence[int]) -> tuple[int, ...]:
    """Return list lengths as a tuple, or raise a `ParameterError`."""
    try:
        lengths = (at,) if isinstance(at, int) else tuple(at)
    except TypeError:  # None and the like
        lengths = ()
    if not lengths or not all(map(_is_length, lengths)):
        raise ParameterError(
            f"at={shown(at)} is not allowed; it must be one or more whole numbers of at least 1."
        )
    return tuple(map(int, lengths))


def _is_length(n: object) -> bool:
    """Tell whether it is a length that the name of a metric can carry."""
    return isinstance(n, Integral) and not isinstance(n, bool) and 1 <= int(n) < 2**63


def check_metric(name: str) -> tuple[str, int]:
    """Split "N@10" into ("N", 10), or raise a `ParameterError`."""
    match = re.fullmatch(r"(\w+)@([1-9]\d{0,17})", name) if isinstance(name, str) else None
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
    at: Sequence[int], *, beyond: bool = False, protocol: str | None = None
) -> list[str]:
    """Name every metric that each user has a value of, in the order of tables.

    Args:
        at: Lengths N of the lists.
        beyond: Whether to go beyond accuracy.
        protocol: Those that sample candidates make no lists; None does.

    Example:
        >>> metric_names([5], beyond=True)[5:]
        ['MAP@5', 'novelty@5', 'ILD@5', 'AUC']
    """
    has_lists = protocol is None or not protocol_named(protocol).sampled
    kinds = [*METRICS, *(LIST_METRICS if beyond and has_lists else ())]
    return [f"{kind}@{n}" for kind in kinds for n in at] + (["AUC"] if beyond else [])


def length_of(name: str) -> int | None:
    """Return the N of any metric that a user can have a value of; None of "AUC", which has none.

    Raises:
        ParameterError: There is no such metric.
    """
    if name == "AUC":
        return None
    kind, at, n = name.partition("@") if isinstance(name, str) else ("", "", "")
    if kind in LIST_METRICS:
        return check_metric(f"N{at}{n}")[1]
    return check_metric(name)[1]


def is_beyond(name: str) -> bool:
    """Tell whether a metric goes beyond accuracy, and so has to be asked for."""
    return name == "AUC" or name.partition("@")[0] in LIST_METRICS
