"""Scores as inner products: dot products, distances and cosines of vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from transcf.data.ids import Rows
from transcf.retrieval.scorer import Norms, Scores

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
        from transcf.kernels.products import row_norms

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
    """A linear form whose two sides are arrays.

    Args:
        user_vectors: (n_users, d) float32.
        item_vectors: (n_items, d) float32.
        user_constants: (n_users,) float32.
        item_norms: As for `LinearForm`.
    """

    def __init__(
        self,
        user_vectors: Scores,
        item_vectors: Scores,
        user_constants: Scores,
        item_norms: Norms | None = None,
    ) -> None:
        super().__init__(
            item_vectors, lambda rows: (user_vectors[rows], user_constants[rows]), item_norms
        )

    def scores(self, users: Rows, items: Rows | None = None) -> Scores:
        """Score pairs, (n,), or all items for some users, (n, n_items)."""
        if items is None:
            return super().scores(users)
        from transcf.kernels.products import pair_scores

        return pair_scores(self.user_vectors, self.item_vectors, self.user_constants, users, items)


def user_side(geometry: Geometry, vectors: Scores, has_bias: bool) -> UserSide:
    """Vectors (n, d) and constants (n,) of users in a linear form of their vectors.

    Args:
        geometry: "dot" or "distance".
        vectors: (n, dim).
        has_bias: Whether items have a bias.
    """
    if geometry == "dot" and not has_bias:
        return vectors, np.zeros(len(vectors), vectors.dtype)
    one = np.ones((len(vectors), 1), vectors.dtype)
    if geometry == "dot":
        return np.hstack([one, vectors]), np.zeros(len(vectors), vectors.dtype)
    return np.hstack([one, 2 * vectors]), -np.square(vectors).sum(axis=1)


def vector_form(
    geometry: Geometry, users: Scores, items: Scores, bias: Scores | None = None
) -> LinearForm:
    """`score(u, i) = x_u . y_i + c_i`, or `-|x_u - y_i|^2 + c_i` by distance.

    Args:
        geometry: "dot" or "distance".
        users: x, (n_users, dim).
        items: y, (n_items, dim).
        bias: c, (n_items,), or None for none.
    """
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
