"""`Scorer`: scores of users for items, by row, and the best items of users.

`LinearForm` has scores that are inner products, which rank fastest: dot products, distances and
cosines of vectors. `FormView` and `BlockView` make scorers of vectors and of functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.data.csr import Csr
from transcf.data.ids import UNKNOWN, Rows
from transcf.data.interactions import Mask

Scores: TypeAlias = npt.NDArray[np.float32]
Norms: TypeAlias = npt.NDArray[np.float64]

#: Memory that one block of scores may take, in bytes.
BLOCK_BYTES = 64 * 2**20


class Source(Protocol):
    """Scores of a block of users, computed for some items at a time.

    Tiles may be off by `error`; `pairs` returns the true scores.
    """

    @property
    def error(self) -> Scores:
        """(n,) largest difference between a score in a tile and the true one."""

    @property
    def size(self) -> Norms:
        """(n,) upper bound on the absolute values of a user's scores."""

    def fill(self, items: Rows, tile: Scores) -> None:
        """Write the scores of all users for some item rows: (n, n_items)."""

    def pairs(self, rows: Rows, items: Rows) -> Scores:
        """Return the true scores of pairs: (n,); rows count the users of the block."""


class Scorer:
    """Scores users for items, both given by row; every fitted model is one.

    A subclass has `name`, `rankable`, and one of `linear_form`, `_score_block` and `_delegate`.
    """

    if TYPE_CHECKING:

        @property
        def name(self) -> str:
            """Name in tables and errors."""

        @property
        def rankable(self) -> Mask:
            """(n_items,) items that may be ranked: those with training interactions."""

    def _delegate(self) -> Scorer | None:
        """Return the scorer that computes the scores; None if this one does."""
        return None

    def linear_form(self) -> LinearForm | None:
        """Return the scores as inner products, which rank fastest; None if they are not."""
        inner = self._delegate()
        return None if inner is None else inner.linear_form()

    def scores(self, users: Rows, items: Rows | None = None) -> Scores:
        """Score items for users; higher is better.

        Args:
            users: (n,) user rows.
            items: (n,) item rows, one for each user; None for all items.

        Returns:
            (n,) scores of the pairs, or (n, n_items) without `items`.
        """
        inner = self._delegate()
        if inner is not None:
            return inner.scores(users, items)
        return self._score_block(users) if items is None else self._score_pairs(users, items)

    def _score_block(self, users: Rows) -> Scores:
        """Score all items for some users: (n, n_items)."""
        form = self.linear_form()
        assert form is not None, f"{type(self).__name__} has neither linear_form nor _score_block"
        return form.scores(users)

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        """Score pairs: (n,). Scorers with a direct formula override this."""
        form = self.linear_form()
        if form is not None:
            return form.scores(users, items)
        scores = np.empty(len(users), dtype=np.float32)
        distinct, place = np.unique(users, return_inverse=True)
        order = np.argsort(place, kind="stable")
        step = block_length(len(self.rankable))
        for first in range(0, len(distinct), step):
            start, stop = np.searchsorted(place[order], (first, first + step))
            pairs = order[start:stop]
            block = self.scores(distinct[first : first + step].astype(np.int32))
            scores[pairs] = block[place[pairs] - first, items[pairs]]
        return scores

    def top_k(
        self, users: Rows, k: int, *, seen: Csr | None = None, allowed: Mask | None = None
    ) -> tuple[Rows, Scores]:
        """Find the best k items of each user.

        Args:
            users: (n,) user rows; a user may come twice.
            k: Length of the lists.
            seen: Items of each user row that are left out, or None.
            allowed: (n_items,) items to choose from, or None for all that can be ranked.

        Returns:
            Item rows (n, k) int32 and scores (n, k) float32 by descending score, equal scores by
            ascending item row; where fewer items are left the rest is -1 and NaN.

        Raises:
            EvaluationError: A score among the allowed items is NaN or infinite.

        Example:
            >>> items, scores = model.top_k(rows, 10, seen=model.seen_)  # doctest: +SKIP
        """
        from transcf.retrieval.topk import rank_tiles

        inner = self._delegate()
        if inner is not None:
            return inner.top_k(users, k, seen=seen, allowed=allowed)
        return rank_tiles(self, users, k, seen, self.rankable if allowed is None else allowed)

    def _block_users(self) -> int | None:
        """Return the most users of a block that is computed in tiles; None: all items at once."""
        inner = self._delegate()
        return None if inner is None else inner._block_users()

    def _open_block(self, users: Rows, items: Rows) -> Source:
        """Return the scores of some users for some or all of these items, to be read in tiles."""
        from transcf.retrieval.topk import BlockSource

        inner = self._delegate()
        if inner is not None:
            return inner._open_block(users, items)
        return BlockSource(np.asarray(self.scores(users), np.float32), items)


def row_norms(vectors: Scores) -> Norms:
    """Return the lengths of vectors (n, d) in float64, without a copy of all of them: (n,)."""
    norms, step = np.empty(len(vectors)), block_length(2 * vectors.shape[1])
    for start in range(0, len(vectors), step):
        some = vectors[start : start + step].astype(np.float64)
        norms[start : start + step] = np.linalg.norm(some, axis=1)
    return norms


def block_length(n_items: int, block_bytes: int = BLOCK_BYTES) -> int:
    """Return how many users fit into one block of scores."""
    return max(1, block_bytes // (4 * max(1, n_items)))


# -- scores as inner products ----------------------------------------------------------------


Geometry: TypeAlias = Literal["dot", "distance"]
#: Vectors (n, d) and constants (n,) of users.
UserSide: TypeAlias = tuple[Scores, Scores]


class LinearForm:
    """Scores as inner products: `score(u, i) = constants[u] + user_vectors[u] . item_vectors[i]`.

    The user side is computed for the users that are asked for: ranking takes no memory for others.

    Args:
        item_vectors: (n_items, d) float32.
        of_users: From user rows, or a slice of them, to vectors (n, d) and constants (n,).
        item_norms: (n_items,) lengths of the item vectors, where they are known.
    """

    def __init__(
        self,
        item_vectors: Scores,
        of_users: Callable[[Rows | slice], UserSide],
        item_norms: Norms | None = None,
    ) -> None:
        self.item_vectors, self.of_users = item_vectors, of_users
        if item_norms is not None:
            self.item_norms = item_norms

    @cached_property
    def _all_users(self) -> UserSide:
        return self.of_users(slice(None))

    @property
    def user_vectors(self) -> Scores:
        """(n_users, d) float32, computed at first use and kept."""
        return self._all_users[0]

    @property
    def user_constants(self) -> Scores:
        """(n_users,) float32, computed at first use and kept."""
        return self._all_users[1]

    @cached_property
    def item_norms(self) -> Norms:
        """(n_items,) lengths of the item vectors, computed at first use and kept."""
        return row_norms(self.item_vectors)

    def for_users(self, user_vectors: Scores, user_constants: Scores) -> LinearForm:
        """Return the same items for other users, (n, d) and (n,)."""
        return StoredForm(user_vectors, self.item_vectors, user_constants, self.item_norms)

    def scores(self, users: Rows, items: Rows | None = None) -> Scores:
        """Score pairs, (n,), or all items for some users, (n, n_items).

        Pairs are scored in float64 and rounded to float32, as `top_k` does.
        """
        if items is not None:
            distinct, places = np.unique(users, return_inverse=True)
            vectors, constants = self.of_users(distinct)
            few = StoredForm(vectors, self.item_vectors, constants)
            return few.scores(places.astype(np.int32), items)
        vectors, constants = self.of_users(users)
        scores: Scores = vectors @ self.item_vectors.T
        scores += constants[:, None]
        return scores


class StoredForm(LinearForm):
    """A linear form whose two sides are arrays, all float32."""

    def __init__(
        self, user_vectors: Scores, item_vectors: Scores, constants: Scores,
        item_norms: Norms | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            item_vectors, lambda rows: (user_vectors[rows], constants[rows]), item_norms
        )

    def scores(self, users: Rows, items: Rows | None = None) -> Scores:
        """Score pairs, (n,), or all items for some users, (n, n_items)."""
        if items is None:
            return super().scores(users)
        from transcf.kernels.topk import pair_scores

        return pair_scores(self.user_vectors, self.item_vectors, self.user_constants, users, items)


def user_side(geometry: Geometry, vectors: Scores, has_bias: bool) -> UserSide:
    """Vectors (n, d) and constants (n,) of users in a linear form of their vectors (n, dim)."""
    if geometry == "dot" and not has_bias:
        return vectors, np.zeros(len(vectors), vectors.dtype)
    one = np.ones((len(vectors), 1), vectors.dtype)
    if geometry == "dot":
        return np.hstack([one, vectors]), np.zeros(len(vectors), vectors.dtype)
    return np.hstack([one, 2 * vectors]), -np.square(vectors).sum(axis=1)


def vector_form(
    geometry: Geometry, users: Scores, items: Scores, bias: Scores | None = None
) -> LinearForm:
    """`score(u, i) = x_u . y_i + c_i`, or `-|x_u - y_i|^2 + c_i` by distance."""
    first = np.zeros(len(items), items.dtype) if bias is None else bias
    if geometry == "distance":
        first = first - np.square(items).sum(axis=1)
    plain = geometry == "dot" and bias is None
    return LinearForm(
        items if plain else np.hstack([first[:, None], items]),
        lambda rows: user_side(geometry, users[rows], bias is not None),
    )


def nearness_form(vectors: Scores) -> LinearForm:
    """Minus the squared distance between vectors (n, d) of one kind."""
    return vector_form("distance", vectors, vectors)


def cosine_form(vectors: Scores) -> LinearForm:
    """The cosine between vectors (n, d) of one kind; 0 where one has no length."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    turned = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return StoredForm(turned, turned, np.zeros(len(vectors), np.float32))


# -- scorers made from functions and vectors ---------------------------------------------------


@dataclass(frozen=True, eq=False)
class BlockView(Scorer):
    """A scorer made from a function."""

    name: str  # in errors
    rankable: Mask  # (n_columns,) what may be ranked
    score: Callable[[Rows], Scores]  # from (n,) rows to (n, n_columns) scores
    sparse: bool = False  # whether a score of 0 means that there is no relation at all

    def _score_block(self, users: Rows) -> Scores:
        return self.score(users)

    def _score_pairs(self, users: Rows, items: Rows) -> Scores:
        scores: Scores = self.score(users)[np.arange(len(users)), items]
        return scores


@dataclass(frozen=True, eq=False)
class FormView(Scorer):
    """A scorer made from inner products; `name` is for errors."""

    name: str
    rankable: Mask
    form: LinearForm

    def linear_form(self) -> LinearForm:
        """Return the vectors."""
        return self.form


def nearest(similarity: Scorer, rows: Rows, k: int) -> tuple[Rows, Scores]:
    """Find the k most similar others of each row, as `top_k` does."""
    n = len(similarity.rankable)
    itself = Csr(np.arange(n + 1, dtype=np.int64), np.arange(n, dtype=np.int32), n)
    found, scores = similarity.top_k(rows, k, seen=itself)
    if isinstance(similarity, BlockView) and similarity.sparse:
        unrelated = scores == 0
        found[unrelated], scores[unrelated] = UNKNOWN, np.nan
    return found, scores
