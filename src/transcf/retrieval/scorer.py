"""What ranking needs of a model: rows in, scores out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import IdMap, Rows

Scores: TypeAlias = npt.NDArray[np.float32]

#: Memory that one block of scores may take, in bytes.
BLOCK_BYTES = 64 * 2**20


class Scorer(Protocol):
    """Anything that scores users against items; every fitted model is one."""

    @property
    def name(self) -> str:
        """What tables and errors call it."""

    @property
    def rankable(self) -> npt.NDArray[np.bool_]:
        """(n_items,) which items may be ranked: those with training interactions."""

    def linear_form(self) -> LinearForm | None:
        """Return the scores as inner products, which rank fastest; None if they are not."""

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some users: (n, n_items), higher is better."""

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score (user, item) pairs: (n,)."""


@runtime_checkable
class KnowsIds(Protocol):
    """A scorer that knows whom and what its rows stand for, and what it was fitted on.

    Attributes:
        users_: User ids, one for each user row.
        items_: Item ids, one for each item row.
        seen_: Items of each user row that it has learned from.
    """

    users_: IdMap
    items_: IdMap
    seen_: Csr


@dataclass(frozen=True, eq=False)
class LinearForm:
    """Scores as inner products: `score(u, i) = constants[u] + user_vectors[u] . item_vectors[i]`.

    Attributes:
        user_vectors: (n_users, d) float32.
        item_vectors: (n_items, d) float32.
        user_constants: (n_users,) float32; they do not change the order of a user's items.
    """

    user_vectors: Scores
    item_vectors: Scores
    user_constants: Scores

    @cached_property
    def item_norms(self) -> npt.NDArray[np.float64]:
        """(n_items,) lengths of the item vectors."""
        from transcf.kernels.products import row_norms

        return row_norms(self.item_vectors)

    def of_users(self, users: Rows) -> tuple[Scores, Scores]:
        """Vectors (n, d) and constants (n,) of some users."""
        return self.user_vectors[users], self.user_constants[users]

    def for_users(self, user_vectors: Scores, user_constants: Scores) -> LinearForm:
        """Return the same items for other users, (n, d) and (n,)."""
        form = LinearForm(user_vectors, self.item_vectors, user_constants)
        vars(form)["item_norms"] = self.item_norms  # the cache is theirs, too
        return form

    def score_block(self, users: Rows) -> Scores:
        """Score all items for some users: one matrix product, (n, n_items)."""
        vectors, constants = self.of_users(users)
        scores: Scores = vectors @ self.item_vectors.T
        scores += constants[:, None]
        return scores

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs in float64, rounded to float32: (n,), the scores that `top_k` returns."""
        from transcf.kernels.products import pair_scores

        return pair_scores(self.user_vectors, self.item_vectors, self.user_constants, users, items)


class LazyForm(LinearForm):
    """A linear form whose user side is made when it is needed, for the users that need it.

    A large model answers its first request at once, and ranking takes no memory for users whose
    turn it is not.
    """

    def __init__(
        self, item_vectors: Scores, make_users: Callable[[Any], tuple[Scores, Scores]]
    ) -> None:
        """Keep the item side, and the way from rows (or a slice) to vectors and constants."""
        object.__setattr__(self, "item_vectors", item_vectors)
        object.__setattr__(self, "_make_users", make_users)

    def of_users(self, users: Any) -> tuple[Scores, Scores]:
        """Vectors (n, d) and constants (n,) of some users."""
        made: tuple[Scores, Scores] = vars(self)["_make_users"](users)
        return made

    @cached_property
    def user_vectors(self) -> Scores:
        """(n_users, d) float32, made at first use and kept."""
        return self.of_users(slice(None))[0]

    @cached_property
    def user_constants(self) -> Scores:
        """(n_users,) float32, made at first use and kept."""
        return self.of_users(slice(None))[1]

    def score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs in float64, rounded to float32: (n,), the scores that `top_k` returns."""
        distinct, places = np.unique(users, return_inverse=True)
        vectors, constants = self.of_users(distinct)
        few = LinearForm(vectors, self.item_vectors, constants)
        return few.score_pairs(places.astype(np.int32), items)


def block_length(n_items: int, block_bytes: int = BLOCK_BYTES) -> int:
    """How many users fit into one block of scores."""
    return max(1, block_bytes // (4 * max(1, n_items)))
