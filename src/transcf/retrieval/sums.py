"""Scores that are logarithms of sums of inner products' exponentials: several questions for each.

`score(u, i) = log sum_q exp(constant_q + vector_q . item_vector_i)` over the queries q of a user. A
store that ranks by inner products is asked once for each query. What a query has not found scores
at most its last one found, t_q, so that what no query has found scores at most log sum_q exp(t_q)
(which is at most the largest t_q plus the logarithm of their number): if the k-th best of what was
found is above that, nothing is missing; else each query looks further.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask
from transcf.retrieval.scorer import LinearForm, Scores, StoredForm
from transcf.retrieval.topk import top_k
from transcf.retrieval.views import FormView

#: Finds the best of queries: vectors, constants, how many, and what is left out of each.
Search: TypeAlias = Callable[[Scores, Scores, int, Csr | None], tuple[Rows, Scores]]

#: What a query is asked for at first, at least, and how much further it looks each time.
_FIRST, _FURTHER = 32, 4
#: Queries that show an index what will be asked.
_SAMPLE = 50_000
#: Users whose queries are made together.
_USERS = 1024


@dataclass(frozen=True, eq=False)
class Queries:
    """What is asked for some users.

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

    def of(self, user: int) -> tuple[Scores, Scores]:
        """Vectors and constants of one of the users."""
        own = slice(self.starts[user], self.starts[user + 1])
        return self.vectors[own], self.constants[own]


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
        pieces = [
            _thinned(self.of_users(users[first : first + _USERS]), _SAMPLE * _USERS // len(users))
            for first in range(0, len(users), _USERS)
        ]
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


def top_k_of_sums(
    form: SumForm, users: Rows, k: int, *, seen: Csr | None = None, allowed: Mask | None = None
) -> tuple[Rows, Scores]:
    """Find the best k items of each user exactly, by candidates; as `top_k`.

    Args:
        form: What scores them.
        users: (n,) rows.
        k: Length of the lists.
        seen: Items of each user row that are left out, or None.
        allowed: (n_items,) items to choose from, or None for all.
    """
    mask = np.ones(len(form.item_vectors), dtype=bool) if allowed is None else allowed

    def search(
        vectors: Scores, constants: Scores, length: int, hidden: Csr | None
    ) -> tuple[Rows, Scores]:
        queries = StoredForm(vectors, form.item_vectors, constants)
        rows = np.arange(len(vectors), dtype=np.int32)
        return top_k(FormView("queries", mask, queries), rows, length, seen=hidden)

    hidden = None if seen is None else seen.take(users)
    return best_of_sums(search, form.of_users(users), form.item_vectors, k, hidden)


def best_of_sums(
    search: Search, queries: Queries, item_vectors: Scores, k: int, seen: Csr | None
) -> tuple[Rows, Scores]:
    """Find the best k items of users by what a search finds for each of their queries.

    The answer is exact if the search is.

    Args:
        search: Ranks items by inner products.
        queries: Of the users; nobody has none.
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
        vectors, constants = queries.of(user)
        hidden = None
        if seen is not None:
            hidden = seen.take(np.full(len(vectors), user))
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
    """What any query of a user has found, and its scores, best first, equal scores by row."""
    items = np.unique(found[found != UNKNOWN]).astype(np.int32)
    products = vectors.astype(np.float64) @ item_vectors[items].T.astype(np.float64)
    scores = log_sums(products + constants[:, None]).astype(np.float32)
    order = np.lexsort((items, -scores))
    return items[order], scores[order]


def _is_proven(found: Rows, linear: Scores, scores: Scores, k: int) -> bool:
    """Whether nothing that no query has found can be among the best k."""
    if (found[:, -1] == UNKNOWN).any():  # a query has met everything that is left
        return True
    if len(scores) < k:
        return False
    last = linear[:, -1].astype(np.float64)
    bound = log_sums(last[:, None])[0]
    # Scores are rounded, and an equal one may come first by its row.
    rounding = 2.0**-22 * (np.abs(last).max() + abs(float(scores[k - 1])))
    return bool(scores[k - 1] > bound + rounding)


def log_sums(terms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Logarithms of the sums of exponentials of each column: (m,).

    Example:
        >>> log_sums(np.log([[1.0, 2.0], [3.0, 2.0]])).round(6).tolist() == [1.386294, 1.386294]
        True
    """
    if not terms.shape[1]:
        return np.empty(0)
    highest = terms.max(axis=0)
    sums: npt.NDArray[np.float64] = highest + np.log(np.exp(terms - highest).sum(axis=0))
    return sums


def _thinned(queries: Queries, most: int) -> tuple[Scores, Scores]:
    """Return vectors and constants of about so many queries, spread evenly, and nothing besides."""
    some = slice(None, None, max(1, -(-len(queries.items) // max(1, most))))
    return queries.vectors[some].copy(), queries.constants[some].copy()
