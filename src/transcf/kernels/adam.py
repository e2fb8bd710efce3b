"""Steps of Adam for the rows that a batch has touched, which then stay in the unit ball."""

import math
from typing import NamedTuple

import numpy as np

from . import Array
from .decorators import inlined, inner
from .lanes import LANES, fill, load, sqrt_lanes, store
from .rows import bring_into_ball, prefetch_row

#: How much of the running means stays at a step, of gradients and of their squares.
FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8


class AdamState(NamedTuple):
    """Numbers that are learned, with the running means of their gradients.

    Attributes:
        values: (n_rows, width) float32, or (n_rows,) for rows of one number.
        means: Of the gradients, of the same shape.
        squares: Of their squares, of the same shape.
    """

    values: Array
    means: Array
    squares: Array


class AdamStep(NamedTuple):
    """One step.

    Attributes:
        size: With what Adam divides by in its first steps, see `step_sizes`.
        power: How rows are brought into the ball, see `bring_into_ball`.
    """

    size: float
    power: int


def step_sizes(rates: Array, numbers: Array) -> Array:
    """Learning rates as Adam's running means ask for them; steps are counted from 1."""
    sizes: Array = rates * np.sqrt(1 - SECOND**numbers) / (1 - FIRST**numbers)
    return sizes


@inner
def flat(moving: AdamState) -> AdamState:
    """The same with all rows in one."""
    return AdamState(
        moving.values.reshape(-1), moving.means.reshape(-1), moving.squares.reshape(-1)
    )


@inlined
def prefetch_moving(moving: AdamState, start: int, width: int) -> None:
    """Ask for a row that will be moved soon, of what `flat` returns."""
    prefetch_row(moving.values, start, width)
    prefetch_row(moving.means, start, width)
    prefetch_row(moving.squares, start, width)


@inlined
def move_row(
    moving: AdamState, start: int, width: int, slopes: Array, at: int, step: AdamStep
) -> None:
    """Move a row against its gradient, slopes[at : at + width], and into the ball.

    It is at `start` in what `flat` returns.
    """
    values, means, squares = moving
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
def move_number(moving: AdamState, row: int, slope: float, step: AdamStep) -> None:
    """The same for a row of a single number, without a ball."""
    mean = FIRST * moving.means[row] + (1 - FIRST) * slope
    square = SECOND * moving.squares[row] + (1 - SECOND) * slope * slope
    moving.means[row], moving.squares[row] = mean, square
    moving.values[row] -= step.size * mean / (math.sqrt(square) + EPSILON)
