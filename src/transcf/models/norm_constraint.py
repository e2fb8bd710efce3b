"""Constraint on the length of vectors: every vector stays in the unit ball."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from transcf.kernels import Array
from transcf.kernels.neighborhood import bound_rows

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
