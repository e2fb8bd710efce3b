"""Steps of Adam for the rows that a batch has touched, which then stay in the unit ball."""

import math
from typing import NamedTuple

import numpy as np

from . import Array, compiled, inlined
from .lanes import LANES, fill, load, sqrt_lanes, store
from .rows import bring_into_ball

_FIRST, _SECOND, _EPSILON = 0.9, 0.999, 1e-8


class Moving(NamedTuple):
    """Numbers that are learned, with the running means of their gradients.

    Attributes:
        values: (n_rows, width) float32, or (n_rows,) for rows of one number.
        means: Of the gradients, of the same shape.
        squares: Of their squares, of the same shape.
    """

    values: Array
    means: Array
    squares: Array


class Step(NamedTuple):
    """One step.

    Attributes:
        rate: Step size, with what Adam divides by in its first steps.
        power: How rows are brought into the ball, see `bring_into_ball`.
    """

    rate: float
    power: int


def step_of(rate: float, number: int, power: int = 1) -> Step:
    """Make a step with the size that Adam's running means ask for, counted from 1."""
    return Step(rate * math.sqrt(1 - _SECOND**number) / (1 - _FIRST**number), power)


@inlined
def _move_row(
    values: Array, means: Array, squares: Array, row: int, slopes: Array, at: int, width: int,
    step: Step,
) -> None:  # fmt: skip
    """Move the numbers of one row against their gradient, and into the ball."""
    first, second = fill(np.float32(_FIRST)), fill(np.float32(_SECOND))
    rest, rest_of_squares = fill(np.float32(1 - _FIRST)), fill(np.float32(1 - _SECOND))
    rate, epsilon = fill(np.float32(step.rate)), fill(np.float32(_EPSILON))
    for k in range(0, width, LANES):
        slope = load(slopes, at + k)
        mean = first * load(means, row + k) + rest * slope
        square = second * load(squares, row + k) + rest_of_squares * slope * slope
        store(means, row + k, mean)
        store(squares, row + k, square)
        moved = load(values, row + k) - rate * mean / (sqrt_lanes(square) + epsilon)
        store(values, row + k, moved)
    bring_into_ball(values, row, width, step.power)


@compiled
def move_rows(moving: Moving, rows: Array, slopes: Array, step: Step, first: int, end: int) -> None:
    """Move the rows first..end-1 of those listed.

    Args:
        moving: What is moved, in whole lanes.
        rows: Row numbers, each once; those below 0 are none, (n,).
        slopes: Gradients, (n, width).
        step: How far.
        first: Of the listed rows.
        end: Of the listed rows.
    """
    flat, width = slopes.reshape(-1), slopes.shape[1]
    values, means = moving.values.reshape(-1), moving.means.reshape(-1)
    squares = moving.squares.reshape(-1)
    for n in range(first, end):
        if rows[n] >= 0:
            _move_row(values, means, squares, rows[n] * width, flat, n * width, width, step)


@compiled
def move_numbers(
    moving: Moving, rows: Array, slopes: Array, step: Step, first: int, end: int
) -> None:
    """The same for rows of a single number, (n_rows,) and (n,), without a ball."""
    for n in range(first, end):
        row, slope = rows[n], slopes[n]
        if row >= 0:
            mean = _FIRST * moving.means[row] + (1 - _FIRST) * slope
            square = _SECOND * moving.squares[row] + (1 - _SECOND) * slope * slope
            moving.means[row], moving.squares[row] = mean, square
            moving.values[row] -= step.rate * mean / (math.sqrt(square) + _EPSILON)
