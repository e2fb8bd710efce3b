"""Usual scores as inner products: dot products, distances and cosines of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from transcf.retrieval.scorer import LazyForm, LinearForm, Scores, StoredForm


def dot_form(users: Scores, items: Scores, item_bias: Scores) -> LinearForm:
    """`score(u, i) = x_u . y_i + c_i`.

    Args:
        users: (n_users, d).
        items: (n_items, d).
        item_bias: (n_items,).
    """

    def make_users(rows: Any) -> tuple[Scores, Scores]:
        vectors = users[rows]
        one = np.ones((len(vectors), 1), vectors.dtype)
        return np.hstack([one, vectors]), np.zeros(len(vectors), vectors.dtype)

    return LazyForm(np.hstack([item_bias[:, None], items]), make_users)


def distance_form(users: Scores, items: Scores, item_bias: Scores) -> LinearForm:
    """`score(u, i) = -|x_u - y_i|^2 + c_i`, with the shapes of `dot_form`."""

    def make_users(rows: Any) -> tuple[Scores, Scores]:
        vectors = users[rows]
        one = np.ones((len(vectors), 1), vectors.dtype)
        return np.hstack([one, 2 * vectors]), -np.square(vectors).sum(axis=1)

    short = item_bias - np.square(items).sum(axis=1)
    return LazyForm(np.hstack([short[:, None], items]), make_users)


def nearness_form(vectors: Scores) -> LinearForm:
    """Minus the squared distance between vectors (n, d) of one kind."""
    return distance_form(vectors, vectors, np.zeros(len(vectors), np.float32))


def cosine_form(vectors: Scores) -> LinearForm:
    """The cosine between vectors (n, d) of one kind; 0 where one has no length."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    turned = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return StoredForm(turned, turned, np.zeros(len(vectors), np.float32))
