"""Rows of vectors as kernels want them: flat, each padded with zeros to whole lanes."""

import math
from functools import partial
from typing import Any

from transcf.parallel import parallel_for

from . import Array, aligned_zeros
from .decorators import compiled, inlined
from .lanes import LANES, fill, load, prefetch, store, sum_lanes, zeros

#: Starting a thread costs more than copying fewer rows than this.
_ROWS_OF_A_THREAD = 1024


def copy_rows(into: Array, source: Array, rows: Array | None = None) -> None:
    """Copy rows of an array, or those that are listed, on all threads: into (n, d), in place."""

    def work(first: int, end: int) -> None:
        some = slice(first, end)
        into[some] = source[some] if rows is None else source[rows[some]]

    parallel_for(len(into), work, least=_ROWS_OF_A_THREAD)


def padded_width(dim: int) -> int:
    """Numbers of a padded row."""
    return -(-dim // LANES) * LANES


def padded(vectors: Array) -> Array:
    """Rows (n, dim) with zeros up to whole lanes, flat."""
    count, dim = vectors.shape
    flat = aligned_zeros((count * padded_width(dim),), vectors.dtype)
    flat.reshape(-1, padded_width(dim))[:, :dim] = vectors
    return flat


def unpadded(flat: Array, width: int, dim: int) -> Array:
    """The rows (n, dim) of padded ones."""
    return flat.reshape(-1, width)[:, :dim].copy()


def multiply_rows(rows: Array, width: int, matrix: Array, products: Array) -> None:
    """Multiply every row by a matrix, (width * width,); all arrays are flat and of one type."""
    parallel_for(len(rows) // width, partial(_multiply_rows, rows, width, matrix, products))


@compiled
def _multiply_rows(
    rows: Array, width: int, matrix: Array, products: Array, first: int, end: int
) -> None:
    """The rows first..end-1 of `multiply_rows`."""
    for at in range(first * width, end * width, width):
        for start in range(0, width, LANES):
            total = zeros(load(matrix, start))
            for k in range(width):
                total = total + fill(rows[at + k]) * load(matrix, k * width + start)
            store(products, at + start, total)


@inlined
def dot(left: Array, i: int, right: Array, j: int, width: int) -> float:
    """left[i : i + width] . right[j : j + width]."""
    total = load(left, i) * load(right, j)
    for k in range(LANES, width, LANES):
        total = total + load(left, i + k) * load(right, j + k)
    return sum_lanes(total)


@inlined
def add_scaled(into: Array, i: int, source: Array, j: int, width: int, factor: Any) -> None:
    """into[i : i + width] += factor * source[j : j + width]."""
    by = fill(factor)
    for k in range(0, width, LANES):
        store(into, i + k, load(into, i + k) + by * load(source, j + k))


@inlined
def bring_into_ball(rows: Array, i: int, width: int, power: int) -> None:
    """Divide rows[i : i + width] by its norm (power 1) or its squared norm (2) if that is above 1.

    Power 0 leaves it as it is.
    """
    squared = dot(rows, i, rows, i, width)
    if squared > 1 and power > 0:
        length = squared if power > 1 else math.sqrt(squared)
        by = fill(rows.dtype.type(1) / length)
        for k in range(0, width, LANES):
            store(rows, i + k, by * load(rows, i + k))


@inlined
def clear(into: Array, i: int, width: int) -> None:
    """into[i : i + width] = 0; a slice would take ten times as long to compile."""
    for k in range(0, width, LANES):
        store(into, i + k, zeros(load(into, i + k)))


@inlined
def copy(into: Array, i: int, source: Array, j: int, width: int) -> None:
    """into[i : i + width] = source[j : j + width]."""
    for k in range(0, width, LANES):
        store(into, i + k, load(source, j + k))


@inlined
def prefetch_row(array: Array, start: int, length: int) -> None:
    """Prefetch `array[start:start + length]`, which will be written soon."""
    for k in range(0, length, 64 // array.itemsize):
        prefetch(array, start + k)
