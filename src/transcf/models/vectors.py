"""Arrays of vectors: initialization, norm constraint and Gram matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from transcf.kernels import Array
from transcf.kernels.als import add_grams
from transcf.kernels.neighborhood import bound_rows

#: Rows that are drawn at once.
_ROWS = 1 << 14


def first_vectors(
    sizes: Sequence[int],
    dim: int,
    scale: float,
    generator: np.random.Generator,
    dtype: npt.DTypeLike = np.float32,
    drawn_in: type[np.float32] | type[np.float64] = np.float64,
) -> list[Array]:
    """Draw normal vectors, one array after the other.

    Args:
        sizes: Rows of each array.
        dim: Numbers of a row.
        scale: Their standard deviation.
        generator: Where they come from.
        dtype: Type of the arrays.
        drawn_in: Type that the numbers are drawn in.

    Returns:
        (size, dim) each.

    Example:
        >>> users, items = first_vectors([3, 5], 2, 0.1, np.random.default_rng(0))
        >>> users.shape, items.dtype
        ((3, 2), dtype('float32'))
    """
    arrays = [np.empty((size, dim), dtype) for size in sizes]
    for array in arrays:
        for first in range(0, len(array), _ROWS):  # the same numbers, less memory
            some = array[first : first + _ROWS]
            some[:] = drawn_in(scale) * generator.standard_normal(some.shape, drawn_in)
    return arrays


NormConstraint: TypeAlias = Literal["norm", "squared", "none"]

#: The power of its norm by which a vector outside of the ball is divided.
NORM_POWERS: dict[NormConstraint, int] = {"none": 0, "norm": 1, "squared": 2}


def constrain_norms(matrix: Array, how: NormConstraint, beyond: float = 1.0) -> bool:
    """Project rows longer than `beyond` into the unit ball, in place.

    Returns:
        Whether all rows are finite.
    """
    squared_norms = bound_rows(matrix, NORM_POWERS[how], beyond)
    return bool(np.isfinite(squared_norms).all())


#: Parts of a Gram matrix, summed in order: the result does not depend on threads.
GRAM_PARTS = 16


def gram_cuts(n_rows: int) -> Array:
    """Return the boundaries of the parts of so many rows, (GRAM_PARTS + 1,)."""
    return np.arange(GRAM_PARTS + 1) * n_rows // GRAM_PARTS


def weighted_gram(vectors: Array, width: int, weights: Array) -> Array:
    """Return the sum of weight * y y' over rows y, flat in and out: (width * width,)."""
    return sum_grams(grams_of(vectors, width, weights, gram_cuts(len(weights))))


def grams_of(vectors: Array, width: int, weights: Array, cuts: Array) -> Array:
    """Return the sum of each part, (n_parts, width * width); only upper triangles are valid."""
    parts = np.zeros((len(cuts) - 1, width * width), vectors.dtype)
    add_grams(vectors, width, weights, cuts, parts)
    return parts


def sum_grams(parts: Array) -> Array:
    """Add up the parts that `grams_of` returns."""
    width = math.isqrt(parts.shape[1])
    upper = np.triu(parts.sum(axis=0, dtype=np.float64).reshape(width, width))
    gram: Array = (upper + np.triu(upper, 1).T).astype(parts.dtype)
    return gram.ravel()
