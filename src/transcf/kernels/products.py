"""Inner products of single pairs, the same to the last bit wherever they are computed.

The order of the sum is written out and nothing is relaxed, so that no compiler may change it from
one place to the next. Products of two float32 are exact in float64, and the sum is rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from transcf.kernels import unlocked
from transcf.kernels.decorators import compiled, compiled_strictly
from transcf.kernels.lanes import LANES, Lanes, fill, load, prefetch_for_reading, sum_lanes

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _add_products(typing: Any, total: Any, left: Any, right: Any) -> Any:
    """`total + left * right` for float64 lanes and two float32 lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.VectorType(ir.DoubleType(), LANES)
        factors = [builder.fpext(lanes, wide) for lanes in args[1:]]
        # Fusing changes nothing: the product is exact.
        product = builder.fmul(*factors, flags=("contract",))
        return builder.fadd(args[0], product, flags=("contract",))

    wide = Lanes(types.float64)
    return wide(wide, left, right), generate


@compiled
def prefetch(vector: Floats) -> None:
    """Prefetch a vector that will be read soon."""
    for start in range(0, len(vector), LANES):
        prefetch_for_reading(vector, start)


@compiled_strictly
def _product(left: Floats, right: Floats) -> Any:
    """Inner product of two vectors in float64."""
    size = len(left)
    whole = size - size % LANES
    total = fill(0.0)
    for start in range(0, whole, LANES):
        total = _add_products(total, load(left, start), load(right, start))
    result = sum_lanes(total)
    for n in range(whole, size):
        result += np.float64(left[n]) * np.float64(right[n])
    return result


@compiled_strictly
def pair_score(user: Floats, item: Floats, constant: np.float32) -> Any:
    """Inner product of two vectors plus a constant, in float64, rounded once to float32."""
    return np.float32(_product(user, item) + constant)


def pair_scores(
    user_vectors: Floats, item_vectors: Floats, constants: Floats, users: Rows, items: Rows
) -> Floats:
    """`pair_score` of many pairs of rows: (n,)."""
    return _pair_scores(*map(unlocked, (user_vectors, item_vectors, constants, users, items)))


@compiled
def _pair_scores(
    user_vectors: Floats, item_vectors: Floats, constants: Floats, users: Rows, items: Rows
) -> Floats:
    """`pair_scores` of arrays that are writable: read-only ones would be compiled for again."""
    scores = np.empty(len(users), np.float32)
    for n in range(len(users)):
        user = users[n]
        scores[n] = pair_score(user_vectors[user], item_vectors[items[n]], constants[user])
    return scores
