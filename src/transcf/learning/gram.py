"""Sums of outer products of rows, the same to the last bit for any number of threads."""

from __future__ import annotations

import numpy as np

from transcf.kernels import Array
from transcf.kernels.als import add_grams

#: Parts of a Gram matrix, summed in order: the result does not depend on threads.
GRAM_PARTS = 16


def weighted_gram(vectors: Array, width: int, weights: Array) -> Array:
    """The sum of weight * y y' over rows y, flat in and out: (width * width,)."""
    cuts = np.arange(GRAM_PARTS + 1) * len(weights) // GRAM_PARTS
    parts = np.zeros((GRAM_PARTS, width * width), vectors.dtype)
    add_grams(vectors, width, weights, cuts, parts)
    upper = np.triu(parts.sum(axis=0, dtype=np.float64).reshape(width, width))
    gram: Array = (upper + np.triu(upper, 1).T).astype(vectors.dtype)
    return gram.ravel()
