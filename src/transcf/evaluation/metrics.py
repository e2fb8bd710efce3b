"""From ranks to metrics, per user.

Every metric is a function of the ranks of a user's held-out items, 1 being the best place.
Under realistic ties a rank may lie between two places: it is then within the first N if fewer than
N places are before it (rank < N + 1), and discounts are taken at the rank itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from transcf.errors import ParameterError

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of the held-out items of each evaluated user.

    Attributes:
        users: (n_users,) user rows, ascending.
        indptr: (n_users + 1,) offsets; every user has at least one item.
        ranks: (n_items,) ranks from 1 on, ascending within each user.
    """

    users: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int64]
    ranks: Floats

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(n_users,) held-out items of each user."""
        return np.diff(self.indptr)

    def sum_by_user(self, values: Floats) -> Floats:
        """Add up one value per held-out item to one per user."""
        sums: Floats = np.add.reduceat(values, self.indptr[:-1]) if len(self.users) else values
        return sums

    def place_in_user(self) -> npt.NDArray[np.int64]:
        """(n_items,) 1 for the best-ranked held-out item of a user, 2 for the next, ..."""
        return np.arange(len(self.ranks)) - np.repeat(self.indptr[:-1], self.counts) + 1


def hit_rate(ranks: Ranks, n: int) -> Floats:
    """Whether any held-out item is among the first n."""
    return (_hits(ranks, n) > 0).astype(np.float64)


def recall(ranks: Ranks, n: int) -> Floats:
    """Share of the held-out items that are among the first n."""
    return _hits(ranks, n) / ranks.counts


def precision(ranks: Ranks, n: int) -> Floats:
    """Share of the first n places that hold a held-out item."""
    return _hits(ranks, n) / n


def reciprocal_rank(ranks: Ranks, n: int) -> Floats:
    """One over the rank of the best-ranked held-out item, 0 beyond n."""
    best = ranks.ranks[ranks.indptr[:-1]]
    return np.where(_within(best, n), 1 / best, 0.0)


def ndcg(ranks: Ranks, n: int) -> Floats:
    """Discounted cumulative gain over the best possible one, with binary relevance."""
    gains = np.where(_within(ranks.ranks, n), 1 / np.log2(ranks.ranks + 1), 0.0)
    best = np.cumsum(1 / np.log2(np.arange(1, n + 1) + 1))
    ideal: Floats = best[np.minimum(ranks.counts, n) - 1]
    return ranks.sum_by_user(gains) / ideal


def average_precision(ranks: Ranks, n: int) -> Floats:
    """Mean of the precision at each hit, over min(n, held-out items)."""
    precisions = np.where(_within(ranks.ranks, n), ranks.place_in_user() / ranks.ranks, 0.0)
    return ranks.sum_by_user(precisions) / np.minimum(ranks.counts, n)


def _hits(ranks: Ranks, n: int) -> Floats:
    return ranks.sum_by_user(_within(ranks.ranks, n).astype(np.float64))


def _within(ranks: Floats, n: int) -> npt.NDArray[np.bool_]:
    return ranks < n + 1


#: Metrics by the letters that stand before `@N`.
METRICS: dict[str, Callable[[Ranks, int], Floats]] = {
    "H": hit_rate,
    "N": ndcg,
    "MRR": reciprocal_rank,
    "R": recall,
    "P": precision,
    "MAP": average_precision,
}


def metric_names(at: Iterable[int]) -> list[str]:
    """Return all metric names for some list lengths.

    Example:
        >>> metric_names([10])
        ['H@10', 'N@10', 'MRR@10', 'R@10', 'P@10', 'MAP@10']
    """
    lengths = list(at)
    return [f"{letters}@{n}" for letters in METRICS for n in lengths]


def compute(ranks: Ranks, name: str) -> Floats:
    """Compute one metric per user by its name, such as "N@10"."""
    parts = re.fullmatch(r"([A-Z]+)@([1-9]\d*)", name)
    if parts is None or parts[1] not in METRICS:
        raise ParameterError(
            f"There is no metric {name!r}: write one of {', '.join(METRICS)}, then @ and the "
            "length of the list, such as N@10."
        )
    return METRICS[parts[1]](ranks, int(parts[2]))


def per_user_table(ranks: Ranks, names: Iterable[str]) -> pl.DataFrame:
    """Return one column per metric, one line per user of `ranks.users`."""
    return pl.DataFrame({name: compute(ranks, name) for name in names})
