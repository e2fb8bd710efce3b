"""Usual scores as inner products: dot products, distances and cosines of vectors."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from transcf.retrieval.scorer import LazyForm, LinearForm, Scores, StoredForm

Geometry: TypeAlias = Literal["dot", "distance"]


def user_side(geometry: Geometry, vectors: Scores, has_bias: bool) -> tuple[Scores, Scores]:
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
    return LazyForm(
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
