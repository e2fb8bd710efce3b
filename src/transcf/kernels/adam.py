"""Adam's steps on the rows that a batch has touched, each followed by a projection.

Rows are projected into the unit ball.
"""

import math
from typing import NamedTuple

import numpy as np

from . import Array
from .decorators import inlined, inner
from .lanes import LANES, fill, load, sqrt_lanes, store
from .rows import bring_into_ball, prefetch_row

#: Adam's decay rates of the first and second moment (beta1, beta2), and its epsilon.
FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8


class AdamState(NamedTuple):
    """Trained values, with Adam's two moments of their gradients.

    Attributes:
        values: (n_rows, width) float32, or (n_rows,) for rows of one number.
        means: First moments: running means of the gradients, of the same shape.
        squares: Second moments: running means of their squares, of the same shape.
    """

    values: Array
    means: Array
    squares: Array


class AdamStep(NamedTuple):
    """One step.

    Attributes:
        size: Learning rate with bias correction, see `step_sizes`.
        power: How rows are projected into the unit ball, see `bring_into_ball`.
    """

    size: float
    power: int


def step_sizes(rates: Array, numbers: Array) -> Array:
    """Return learning rates with Adam's bias correction; `numbers` count steps from 1."""
    sizes: Array = rates * np.sqrt(1 - SECOND**numbers) / (1 - FIRST**numbers)
    return sizes


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
