"""Ranking metrics per user, and metrics of whole lists.

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
user's targets; equal scores count half, whatever the rule for ties.

Metrics beyond accuracy are those of the top-N lists of full ranking:

| name | figure |
|---|---|
| novelty@N | mean of -log2(share of users who have the item in training) over the list, per user |
| ILD@N | mean of 1 - cosine(i, j) over all pairs of the list, per user |
| coverage@N | share of the rankable items that are in at least one list |
| popularity@N | mean training interactions of the items of a list, averaged over users |
| gini@N | Gini coefficient of how often each rankable item is recommended |
| future@N | share of what is in the lists that did not exist yet at the user's held-out event |

An item exists from its first event on, in any part of the log; of several held-out events of a
user the first one counts. An item that came later was learned from the future.

The vector of an item is its training column: 1 for each user who has it. So the distance of two
items is the same whatever model recommends them, and models can be compared. An item without
training users (a model may have learned from validation data, too) is as novel as one with a
single user, and at distance 1 of all others. A list with one item has no pairs, and the ILD 0.

Lists are (n_users, length) item rows, -1 where there are no more items. Memory is bounded: there
is never a matrix of users by items, or of items by items.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.errors import ParameterError, shown
from transcf.protocols import protocol_named
from transcf.retrieval.scorer import BLOCK_BYTES

Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of held-out items, user by user."""

    users: Rows  # (n_users,) evaluated user rows
    indptr: Counts  # (n_users + 1,) where each user's targets start; every user has at least one
    ranks: Floats  # (n_targets,) ranks from 1, ascending for each user
    #: (n_targets,) candidates, other targets aside, that come before each target; equal scores
    #: count half, whatever the rule for ties.
    beaten_by: Floats = field(default_factory=lambda: np.empty(0))
    #: (n_users,) how many such candidates each evaluated user has.
    against: Counts = field(default_factory=lambda: np.empty(0, np.int64))
    skipped: dict[str, int] = field(default_factory=dict)  # what was left out, and how many of it
    lists: Rows | None = None  # (n_users, length) best items, -1 where there are no more

    @property
    def firsts(self) -> Floats:
        """(n_users,) the best rank of each user."""
        firsts: Floats = self.ranks[self.indptr[:-1]]
        return firsts

    @property
    def totals(self) -> Counts:
        """(n_users,) targets of each user."""
        return np.diff(self.indptr)

    def sum_in_top(self, values: Floats | float, n: int) -> Floats:
        """(n_users,) sum of a value over the targets in the top n."""
        inside = np.where(self.ranks < n + 1, values, 0.0)
        return np.asarray(np.add.reduceat(inside, self.indptr[:-1]), dtype=np.float64)


def _ndcg(targets: Ranks, n: int) -> Floats:
    # The ideal DCG does not grow beyond the largest number of targets.
    most = min(n, int(targets.totals.max(initial=1)))
    best = np.cumsum(1.0 / np.log2(np.arange(2, most + 2)))
    gains = targets.sum_in_top(1.0 / np.log2(targets.ranks + 1), n)
    ideal: Floats = best[np.minimum(n, targets.totals) - 1]
    return gains / ideal


def _average_precision(targets: Ranks, n: int) -> Floats:
    places = np.arange(len(targets.ranks)) - np.repeat(targets.indptr[:-1], targets.totals)
    gains = targets.sum_in_top((places + 1) / targets.ranks, n)
    return gains / np.minimum(n, targets.totals)


#: Metrics by the part of their name before the @, in the order of tables.
METRICS: dict[str, Callable[[Ranks, int], Floats]] = {
    "HitRate": lambda targets, n: np.asarray(targets.firsts < n + 1, dtype=np.float64),
    "NDCG": _ndcg,
    "MRR": lambda targets, n: np.where(targets.firsts < n + 1, 1.0 / targets.firsts, 0.0),
    "Recall": lambda targets, n: targets.sum_in_top(1.0, n) / targets.totals,
    "Precision": lambda targets, n: targets.sum_in_top(1.0, n) / n,
    "MAP": _average_precision,
}
#: Per-user metrics of recommendation lists, computed on request.
LIST_METRICS = ("novelty", "ILD")


def check_lengths(k: int | Sequence[int]) -> tuple[int, ...]:
    """Return list lengths as a tuple, or raise a `ParameterError`."""
    try:
        lengths = (k,) if isinstance(k, int) else tuple(k)
    except TypeError:  # None and the like
        lengths = ()
    are_whole = all(isinstance(n, Integral) and not isinstance(n, bool) for n in lengths)
    if not lengths or not are_whole or not all(1 <= int(n) < 2**63 for n in lengths):
        raise ParameterError(
            f"k={shown(k)} is not allowed; it must be one or more whole numbers of at least 1."
        )
    return tuple(map(int, lengths))


def check_metric(name: str) -> tuple[str, int]:
    """Split "NDCG@10" into ("NDCG", 10), or raise a `ParameterError`."""
    match = re.fullmatch(r"(\w+)@([1-9]\d{0,17})", name) if isinstance(name, str) else None
    if match is None or match[1] not in METRICS:
        known = ", ".join(f"{kind}@10" for kind in METRICS)
        raise ParameterError(f"There is no metric {name!r}; use one like {known}.")
    return match[1], int(match[2])


def compute(ranks: Ranks, name: str) -> Floats:
    """Return one metric for each user: (n_users,)."""
    kind, n = check_metric(name)
    return METRICS[kind](ranks, n)


def auc(ranks: Ranks) -> Floats:
    """Return the area under the ROC curve of each user: (n_users,)."""
    before = np.add.reduceat(ranks.beaten_by, ranks.indptr[:-1]) / ranks.totals
    return np.asarray(1 - before / ranks.against, dtype=np.float64)


def metric_names(
    k: Sequence[int], *, beyond: bool = False, protocol: str | None = None
) -> list[str]:
    """List the per-user metrics in the order of tables; no protocol means full ranking."""
    has_lists = protocol is None or not protocol_named(protocol).sampled
    kinds = [*METRICS, *(LIST_METRICS if beyond and has_lists else ())]
    return [f"{kind}@{n}" for kind in kinds for n in k] + (["AUC"] if beyond else [])


def length_of(name: str) -> int | None:
    """Return the N of a per-user metric; None for "AUC"."""
    if name == "AUC":
        return None
    kind, _, n = str(name).partition("@")
    return check_metric(f"NDCG@{n}" if kind in LIST_METRICS else name)[1]


def is_beyond(name: str) -> bool:
    """Whether a metric is computed on request only (`beyond=True`)."""
    return name == "AUC" or name.partition("@")[0] in LIST_METRICS


# -- metrics of lists ------------------------------------------------------------------------


#: Bytes that one pair of a list takes while its cosine is looked up.
_PAIR_BYTES = 64
#: From this length on a list is judged by the sum of its vectors rather than pair by pair.
_LONG = 200


def coverage(lists: Rows, n: int, n_rankable: int) -> float:
    """Share of the rankable items that is in the first n of any list."""
    shown = lists[:, :n]
    return len(np.unique(shown[shown != UNKNOWN])) / n_rankable


def mean_popularity(lists: Rows, n: int, item_counts: Counts) -> float:
    """Mean over users of the mean training interactions of the first n items of their lists."""
    return float(_mean_of_items(lists[:, :n], item_counts).mean())


def novelty(lists: Rows, n: int, item_counts: Counts, n_users: int) -> Floats:
    """Mean self-information of the first n items of each list, in bits: (n_lists,)."""
    bits = np.log2(n_users) - np.log2(np.maximum(item_counts, 1))
    return _mean_of_items(lists[:, :n], bits)


def gini(lists: Rows, n: int, rankable: Mask) -> float:
    """Gini coefficient of how often each rankable item is in the first n of a list.

    0 if all come up equally often, (m - 1) / m if one of m items takes every place.
    """
    shown = lists[:, :n]
    times = np.bincount(shown[shown != UNKNOWN], minlength=len(rankable))
    times = np.sort(times[rankable])
    m, total = len(times), int(times.sum())
    # Differences of all pairs, |x - y|, by the places of the sorted numbers.
    return float(((2 * np.arange(1, m + 1) - m - 1) * times).sum() / (m * total))


def not_yet(lists: Rows, n: int, born: Counts, moments: Counts) -> float:
    """Share of the items among the first n of all lists that did not exist yet.

    `born` (n_items,) has the first event of each item, `moments` (n_lists,) the time of each list.
    """
    shown = lists[:, :n]
    is_item = shown != UNKNOWN
    is_later = born[shown] > moments[:, None]
    return int((is_later & is_item).sum()) / int(is_item.sum())


def diversity(lists: Rows, n: int, by_item: Csr) -> Floats:
    """Mean distance, 1 - cosine, of the pairs among the first n items of each list: (n_lists,)."""
    shown = lists[:, :n]
    found = np.zeros(len(shown))
    n_pairs = shown.shape[1] * (shown.shape[1] - 1) // 2
    if not n_pairs:
        return found
    if shown.shape[1] > _LONG:
        for row, items in enumerate(shown):
            found[row] = _distance_of_many(items[items != UNKNOWN], by_item)
        return found
    step = max(1, BLOCK_BYTES // (_PAIR_BYTES * n_pairs))
    for start in range(0, len(shown), step):
        found[start : start + step] = _distances(shown[start : start + step], by_item)
    return found


def _mean_of_items(shown: Rows, values: npt.NDArray[np.generic]) -> Floats:
    """Mean of a value of items over each list; every list has at least one item."""
    is_item = shown != UNKNOWN
    total = np.where(is_item, values[shown], 0).sum(axis=1)
    return np.asarray(total / is_item.sum(axis=1), dtype=np.float64)


def _distances(shown: Rows, by_item: Csr) -> Floats:
    """Mean distance of each list, pair by pair; a pair of many lists is looked up once."""
    first, second = np.triu_indices(shown.shape[1], 1)
    one, other = shown[:, first], shown[:, second]
    is_pair = (one != UNKNOWN) & (other != UNKNOWN)
    # The rarer item comes second: only its users are read.
    counts = by_item.counts
    swap = counts[one] < counts[other]
    common, rare = np.where(swap, other, one)[is_pair], np.where(swap, one, other)[is_pair]
    keys, places = np.unique(common.astype(np.int64) * by_item.n_rows + rare, return_inverse=True)
    distances = np.zeros(is_pair.shape)
    distances[is_pair] = 1 - _cosines(keys, by_item)[places]
    means: Floats = distances.sum(axis=1) / np.maximum(is_pair.sum(axis=1), 1)
    return means


def _cosines(keys: Counts, by_item: Csr) -> Floats:
    """Cosine of pairs of items, each `common * n_items + rare`, ascending: (n_pairs,)."""
    commons, starts = np.unique(keys // by_item.n_rows, return_index=True)
    ends = np.append(starts, len(keys))[1:].tolist()
    found, counts = np.zeros(len(keys)), by_item.counts
    has_it = np.zeros(by_item.n_columns, dtype=bool)
    for common, start, end in zip(commons.tolist(), starts.tolist(), ends, strict=True):
        rare = keys[start:end] % by_item.n_rows
        some = counts[rare] > 0
        if not some.any():
            continue
        users = by_item.row(common)
        has_it[users] = True
        partners = by_item.take(rare[some])
        both = np.add.reduceat(has_it[partners.indices], partners.indptr[:-1], dtype=np.int64)
        found[start:end][some] = both / np.sqrt(counts[common] * counts[rare[some]].astype(float))
        has_it[users] = False
    return found


def _distance_of_many(items: Rows, by_item: Csr) -> float:
    """Mean distance of the pairs of one list, without looking at pairs.

    The cosines of all ordered pairs sum up to |s|², s being the sum of the items' unit vectors.
    """
    m = len(items)
    if m < 2:
        return 0.0
    columns = by_item.take(items)
    has_users = columns.counts > 0
    lengths = np.sqrt(np.repeat(columns.counts, columns.counts))
    total = np.bincount(columns.indices, weights=1 / lengths, minlength=1)
    cosines = float(total @ total) - int(has_users.sum())
    return 1 - cosines / (m * (m - 1))
