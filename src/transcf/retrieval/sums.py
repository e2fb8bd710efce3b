"""Scores that are logarithms of sums of inner products' exponentials: several queries per user.

`score(u, i) = log sum_q exp(constant_q + vector_q . item_vector_i)` over the queries q of a user. A
store that ranks by inner products is asked once for each query. An item that a query has not found
scores at most t_q for it, the query's last result, so that an item that no query has found scores
at most log sum_q exp(t_q). If the k-th best item found is above that, no item is missing; else each
query looks further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.retrieval.forms import LinearForm, StoredForm
from transcf.retrieval.scorer import Scores

#: Finds the best items of queries: vectors, constants, how many, and what is left out of each.
Search: TypeAlias = Callable[[Scores, Scores, int, Csr | None], tuple[Rows, Scores]]

#: Items that a query asks for at first, at least, and how much further it looks each time.
_FIRST, _FURTHER = 32, 4
#: Queries that an index is tuned with.
_SAMPLE = 50_000
#: Users whose queries are made together.
_USERS = 1024


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries of some users.

    Attributes:
        starts: Where each user's queries start, (n + 1,) int64.
        items: The past item that each comes from, (n_queries,) int32 rows.
        vectors: (n_queries, d) float32.
        constants: (n_queries,) float32.
    """

    starts: npt.NDArray[np.int64]
    items: Rows
    vectors: Scores
    constants: Scores


@dataclass(frozen=True, eq=False)
class SumForm:
    """A score as a logarithm of a sum over queries.

    Attributes:
        item_vectors: (n_items, d) float32.
        of_users: From user rows, (n,), to their queries.
        n_users: How many users there are.
    """

    item_vectors: Scores
    of_users: Callable[[Rows], Queries]
    n_users: int

    def sample(self) -> LinearForm:
        """Return the items, and queries of users spread evenly over all of them."""
        users = np.arange(self.n_users, dtype=np.int32)
        users = users[:: -(-max(1, self.n_users) // _SAMPLE)]
        most = max(1, _SAMPLE * _USERS // len(users))
        pieces = []
        for first in range(0, len(users), _USERS):
            queries = self.of_users(users[first : first + _USERS])
            some = slice(None, None, max(1, -(-len(queries.items) // most)))
            pieces.append((queries.vectors[some].copy(), queries.constants[some].copy()))
        vectors, constants = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        return StoredForm(vectors, self.item_vectors, constants)

    def shifted(self, offset: Scores) -> SumForm:
        """Return the same with a number added to the score of each item."""

        def longer(users: Rows) -> Queries:
            own = self.of_users(users)
            one = np.ones((len(own.vectors), 1), np.float32)
            vectors = np.hstack([one, own.vectors])
            return Queries(own.starts, own.items, vectors, own.constants)

        return SumForm(np.hstack([offset[:, None], self.item_vectors]), longer, self.n_users)


def best_of_sums(
    search: Search, queries: Queries, item_vectors: Scores, k: int, seen: Csr | None
) -> tuple[Rows, Scores]:
    """Find the best k items of users by searching for each of their queries.

    The lists are exact if the search is.

    Args:
        search: Ranks items by inner products.
        queries: Of the users, at least one each.
        item_vectors: (n_items, d) float32.
        k: Length of the lists.
        seen: Items that are left out, one row for each of the users, or None.

    Returns:
        As `top_k`.
    """
    n = len(queries.starts) - 1
    items = np.full((n, k), UNKNOWN, dtype=np.int32)
    scores = np.full((n, k), np.nan, dtype=np.float32)
    for user in range(n if k else 0):
        own = slice(queries.starts[user], queries.starts[user + 1])
        vectors, constants = queries.vectors[own], queries.constants[own]
        hidden = None if seen is None else seen.take(np.full(len(vectors), user))
        length = min(max(2 * k, _FIRST), len(item_vectors))
        while True:
            found, linear = search(vectors, constants, length, hidden)
            best, values = _scored(found, vectors, constants, item_vectors)
            if length == len(item_vectors) or _is_proven(found, linear, values, k):
                break
            length = min(_FURTHER * length, len(item_vectors))
        count = min(k, len(best))
        items[user, :count], scores[user, :count] = best[:count], values[:count]
    return items, scores


def _scored(
    found: Rows, vectors: Scores, constants: Scores, item_vectors: Scores
) -> tuple[Rows, Scores]:
    """Return the items found and their scores, best first, equal scores by row."""
    items = np.unique(found[found != UNKNOWN]).astype(np.int32)
    products = vectors.astype(np.float64) @ item_vectors[items].T.astype(np.float64)
    scores = np.logaddexp.reduce(products + constants[:, None], axis=0).astype(np.float32)
    order = np.lexsort((items, -scores))
    return items[order], scores[order]


def _is_proven(found: Rows, linear: Scores, scores: Scores, k: int) -> bool:
    """Whether no item that no query has found can be among the best k."""
    if (found[:, -1] == UNKNOWN).any():  # a query has found everything that is left
        return True
    if len(scores) < k:
        return False
    last = linear[:, -1].astype(np.float64)
    bound = np.logaddexp.reduce(last)
    # Scores are rounded, and an equal one may come first by its row.
    rounding = 2.0**-22 * (np.abs(last).max() + abs(float(scores[k - 1])))
    return bool(scores[k - 1] > bound + rounding)
