"""The first vectors of everybody and everything, before anything is learned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transcf.kernels import Array

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
        for first in range(0, len(array), _ROWS):  # the same numbers as all at once, in less room
            some = array[first : first + _ROWS]
            some[:] = drawn_in(scale) * generator.standard_normal(some.shape, drawn_in)
    return arrays
