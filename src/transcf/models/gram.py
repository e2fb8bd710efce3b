"""Sums of outer products of rows, the same to the last bit for any number of threads."""

from __future__ import annotations

import math

import numpy as np

from transcf.kernels import Array
from transcf.kernels.als import add_grams

#: Parts of a Gram matrix, summed in order: the result does not depend on threads.
GRAM_PARTS = 16


def gram_cuts(n_rows: int) -> Array:
    """Where the parts of so many rows begin, and where the last one ends, (GRAM_PARTS + 1,)."""
    return np.arange(GRAM_PARTS + 1) * n_rows // GRAM_PARTS


def weighted_gram(vectors: Array, width: int, weights: Array) -> Array:
    """The sum of weight * y y' over rows y, flat in and out: (width * width,)."""
    return sum_grams(grams_of(vectors, width, weights, gram_cuts(len(weights))))


def grams_of(vectors: Array, width: int, weights: Array, cuts: Array) -> Array:
    """The same of each part, (n_parts, width * width); what is below the diagonal is debris."""
    parts = np.zeros((len(cuts) - 1, width * width), vectors.dtype)
    add_grams(vectors, width, weights, cuts, parts)
    return parts


def sum_grams(parts: Array) -> Array:
    """Add up what `grams_of` returns for all parts."""
    width = math.isqrt(parts.shape[1])
    upper = np.triu(parts.sum(axis=0, dtype=np.float64).reshape(width, width))
    gram: Array = (upper + np.triu(upper, 1).T).astype(parts.dtype)
    return gram.ravel()
