"""Scores: the direct formula for pairs, and the same score as one inner product.

score(u, i) = const_u + x_u . y_i, with vectors built from (a, q) and from (b, n, bias) alone. So
ranking all items is one matrix product, and any inner-product index serves the model exactly.
"""

import numpy as np

from transcf.kernels import Array

from .exact import pair_cost
from .parameters import Form


def score_pairs(form: Form, a: Array, q: Array, b: Array, n: Array, item_bias: Array) -> Array:
    """Scores of (user, item) pairs by the direct formula.

    Args:
        form: which score.
        a: user vectors, (..., dim).
        q: means of the users' items, (..., dim).
        b: item vectors, (..., dim).
        n: means of the items' users, (..., dim).
        item_bias: (...,).

    Returns:
        (...,), higher is better.
    """
    return item_bias - pair_cost(form, a, q, b, n)


def user_vectors(form: Form, a: Array, q: Array) -> tuple[Array, Array]:
    """The user side of the linear form.

    Args:
        form: which score.
        a: user vectors, (n, dim).
        q: means of the users' items, (n, dim).

    Returns:
        x (n, width) and const (n,); width is 4 dim + 1 for "translation", dim + 1 for "still" and
        2 dim + 1 for "alt" and "dot".
    """
    one = np.ones((len(a), 1), a.dtype)
    parts: dict[Form, list[Array]] = {
        "translation": [one, -q * q, -2 * a * q, 2 * a, 2 * q],
        "still": [one, 2 * a],
        "alt": [one, 2 * a * (1 - a), -((1 - a) ** 2)],
        "dot": [one, a, q],
    }
    const = np.zeros(len(a), a.dtype) if form == "dot" else -(a * a).sum(axis=1)
    return np.hstack(parts[form]), const


def item_vectors(form: Form, b: Array, n: Array, item_bias: Array) -> Array:
    """The item side of the linear form, (n_items, width); the bias is in the first column."""
    bias = item_bias[:, None]
    short = bias - (b * b).sum(axis=1, keepdims=True)
    parts: dict[Form, list[Array]] = {
        "translation": [short, n * n, n, b, n * b],
        "still": [short, b],
        "alt": [bias, b, b * b],
        "dot": [bias, b, n * b],
    }
    return np.hstack(parts[form])
