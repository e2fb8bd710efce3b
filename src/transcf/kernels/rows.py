"""Rows of vectors, flat and each padded with zeros to whole lanes; projections and Adam's steps."""

import math
from typing import Any, NamedTuple

import numpy as np

from transcf.parallel import parallel_for

from . import Array, aligned_zeros
from .decorators import inlined, inner, shared
from .lanes import LANES, fill, load, prefetch, sqrt_lanes, store, sum_lanes, zeros

#: Starting a thread costs more than copying fewer rows than this.
_ROWS_OF_A_THREAD = 1024
#: Adam's decay rates of the first and second moment (beta1, beta2), and its epsilon.
FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8


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


@shared(lambda rows, width, *_: len(rows) // width)
def multiply_rows(
    rows: Array, width: int, matrix: Array, products: Array, first: int, end: int
) -> None:
    """Multiply every row by a matrix, (width * width,); all arrays are flat and of one type."""
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
def first_from(items: Array, start: int, stop: int, lowest: int) -> int:
    """The first place from `start` on, and before `stop`, whose item is not below `lowest`.

    Items are ascending. NumPy's search takes a second to compile.
    """
    while start < stop:
        middle = (start + stop) // 2
        if items[middle] < lowest:
            start = middle + 1
        else:
            stop = middle
    return start


@inlined
def prefetch_row(array: Array, start: int, length: int) -> None:
    """Prefetch `array[start:start + length]`, which will be written soon."""
    for k in range(0, length, 64 // array.itemsize):
        prefetch(array, start + k)


# -- Adam on the rows that a batch has touched --------------------------------------------------


class AdamState(NamedTuple):
    """Trained values, with Adam's two moments of their gradients."""

    values: Array  # (n_rows, width) float32, or (n_rows,) for rows of one number
    means: Array  # first moments: running means of the gradients, of the same shape
    squares: Array  # second moments: running means of their squares, of the same shape


class AdamStep(NamedTuple):
    """One step."""

    size: float  # learning rate with bias correction, see `step_sizes`
    power: int  # how rows are projected into the unit ball, see `bring_into_ball`


def step_sizes(rates: Array, numbers: Array) -> Array:
    """Return learning rates with Adam's bias correction; `numbers` count steps from 1."""
    return rates * np.sqrt(1 - SECOND**numbers) / (1 - FIRST**numbers)


@inner
def flat(state: AdamState) -> AdamState:
    """Return views of the arrays as one dimension."""
    return AdamState(state.values.reshape(-1), state.means.reshape(-1), state.squares.reshape(-1))


@inlined
def prefetch_state(state: AdamState, start: int, width: int) -> None:
    """Prefetch a row of what `flat` returns."""
    prefetch_row(state.values, start, width)
    prefetch_row(state.means, start, width)
    prefetch_row(state.squares, start, width)


@inlined
def move_row(
    state: AdamState, start: int, width: int, slopes: Array, at: int, step: AdamStep
) -> None:
    """Take a step on a row with the gradient slopes[at : at + width], and project the row.

    It is at `start` in what `flat` returns.
    """
    values, means, squares = state
    first, second = fill(np.float32(FIRST)), fill(np.float32(SECOND))
    rest, rest_of_squares = fill(np.float32(1 - FIRST)), fill(np.float32(1 - SECOND))
    size, epsilon = fill(np.float32(step.size)), fill(np.float32(EPSILON))
    for k in range(0, width, LANES):
        slope = load(slopes, at + k)
        mean = first * load(means, start + k) + rest * slope
        square = second * load(squares, start + k) + rest_of_squares * slope * slope
        store(means, start + k, mean)
        store(squares, start + k, square)
        moved = load(values, start + k) - size * mean / (sqrt_lanes(square) + epsilon)
        store(values, start + k, moved)
    bring_into_ball(values, start, width, step.power)


@inlined
def move_bias(state: AdamState, row: int, slope: float, step: AdamStep) -> None:
    """Take a step on a single number, without a projection."""
    mean = FIRST * state.means[row] + (1 - FIRST) * slope
    square = SECOND * state.squares[row] + (1 - SECOND) * slope * slope
    state.means[row], state.squares[row] = mean, square
    state.values[row] -= step.size * mean / (math.sqrt(square) + EPSILON)
